//! Names of the metrics that the server exports and the load generator scrapes. Each is registered, typed, by its
//! owner; the names live here because they are read on the other side of a process boundary. Units are in the names.

/// A label of every metric of a server that is one of a lab's variants.
pub const VARIANT_LABEL: &str = "variant";

/// Infer requests answered, by `model`, `mode`, `protocol` (http, grpc) and HTTP `code`.
pub const REQUESTS: &str = "tierlab_requests_total";
/// Server time of an infer request, histogram, by `model`, `tier`, `mode`.
pub const REQUEST_SECONDS: &str = "tierlab_request_duration_seconds";
/// Time of one stage, histogram, by `stage`, `model`, `tier`, `mode`.
pub const STAGE_SECONDS: &str = "tierlab_stage_duration_seconds";
/// Rows inferred, by `model`.
pub const INFERENCES: &str = "tierlab_inferences_total";
/// Requests refused before inference, by `reason`.
pub const REFUSALS: &str = "tierlab_refusals_total";
/// Requests whose client went away, by `stage`: where they were (body, tier, batch).
pub const CANCELLED: &str = "tierlab_cancelled_total";
/// Requests between admission and reply.
pub const IN_FLIGHT: &str = "tierlab_in_flight_requests";
/// Requests between admission and reply at most.
pub const IN_FLIGHT_LIMIT: &str = "tierlab_in_flight_limit_requests";
/// Requests waiting in a model's batch queue, by `model`.
pub const QUEUE_DEPTH: &str = "tierlab_batch_queue_requests";
/// Sessions whose run was ended and goes on all the same, by `model`.
pub const STUCK_SESSIONS: &str = "tierlab_stuck_sessions";
/// Threads that do not come to an end of decoding a damaged shard of a table.
pub const STUCK_DECODES: &str = "tierlab_stuck_decodes";
/// Sessions of loads that were given up and whose threads have not ended.
pub const ABANDONED_SESSIONS: &str = "tierlab_abandoned_sessions";
/// Runs of a session that were ended early, by `model`.
pub const INTERRUPTED_RUNS: &str = "tierlab_interrupted_runs_total";
/// Rows of each run of a session, histogram, by `model`.
pub const BATCH_ROWS: &str = "tierlab_batch_rows";
/// Time of a session's thread, by `model`, `session` and `state` (compute, queue_wait, storage_wait, no_requests).
pub const SESSION_SECONDS: &str = "tierlab_session_seconds_total";
/// Time to load a model, gauge of its latest load, by `model` and `stage` (read, verify, place, session, warmup, features).
pub const MODEL_LOAD_SECONDS: &str = "tierlab_model_load_seconds";
/// Build and settings of the server: value 1, by `version`, `onnxruntime`, `providers`, `model_tier`, `feature_tier`,
/// `feature_location` and `feature_notes`.
pub const BUILD_INFO: &str = "tierlab_build_info";
/// Trace spans, by `outcome` (sent, failed, dropped).
pub const SPANS: &str = "tierlab_spans_total";

/// CPU time of the process, user and system. The names of this group are those of every Prometheus client.
pub const PROCESS_CPU_SECONDS: &str = "process_cpu_seconds_total";
/// Memory of the process in RAM.
pub const PROCESS_RESIDENT_BYTES: &str = "process_resident_memory_bytes";
/// Address space of the process.
pub const PROCESS_VIRTUAL_BYTES: &str = "process_virtual_memory_bytes";
/// Threads of the process.
pub const PROCESS_THREADS: &str = "process_threads";
/// Open file descriptors.
pub const PROCESS_OPEN_FDS: &str = "process_open_fds";
/// File descriptors at most.
pub const PROCESS_MAX_FDS: &str = "process_max_fds";
/// When the process started, Unix time.
pub const PROCESS_START_SECONDS: &str = "process_start_time_seconds";
/// Time since the server began to start.
pub const UPTIME_SECONDS: &str = "tierlab_uptime_seconds";
/// Threads of the async runtime.
pub const RUNTIME_WORKERS: &str = "tierlab_runtime_workers";
/// Tasks of the async runtime.
pub const RUNTIME_TASKS: &str = "tierlab_runtime_tasks";
/// Time in which the async runtime's threads were not parked.
pub const RUNTIME_BUSY_SECONDS: &str = "tierlab_runtime_busy_seconds_total";

/// Requests that a tier made of its device or server, by `tier` and `role` (model, feature).
pub const TIER_REQUESTS: &str = "tierlab_tier_requests_total";
/// Bytes that came over the wire or from the device, over-read included, by `tier` and `role`.
pub const TIER_WIRE_BYTES: &str = "tierlab_tier_wire_bytes_total";
/// Bytes asked for, by `tier` and `role`.
pub const TIER_READ_BYTES: &str = "tierlab_tier_read_bytes_total";
/// Retries of a tier, by `tier` and `role`.
pub const TIER_RETRIES: &str = "tierlab_tier_retries_total";
/// Requests of a tier sent a second time because the first was slow to be answered, by `tier` and `role`.
pub const TIER_HEDGES: &str = "tierlab_tier_hedges_total";
/// Failed reads of a tier, by `tier`, `role` and `kind` of error.
pub const TIER_ERRORS: &str = "tierlab_tier_errors_total";
/// Time of a read call, histogram, by `tier` and `role`.
pub const TIER_READ_SECONDS: &str = "tierlab_tier_read_duration_seconds";

/// Blocks that the cache had, by `tier`.
pub const CACHE_HITS: &str = "tierlab_cache_hits_total";
/// Blocks that the cache had not, by `tier`.
pub const CACHE_MISSES: &str = "tierlab_cache_misses_total";
/// Misses that joined a read already under way, by `tier`.
pub const CACHE_JOINED: &str = "tierlab_cache_joined_reads_total";
/// Blocks that left the cache to make room or because of their age, by `tier`.
pub const CACHE_EVICTIONS: &str = "tierlab_cache_evictions_total";
/// Bytes held by the cache, by `tier`.
pub const CACHE_BYTES: &str = "tierlab_cache_bytes";
/// Bytes that the cache may hold, by `tier`.
pub const CACHE_CAPACITY_BYTES: &str = "tierlab_cache_capacity_bytes";

/// Blocks read from the stage, by `tier`.
pub const STAGED_HITS: &str = "tierlab_staged_hits_total";
/// Blocks that the stage had not, by `tier`.
pub const STAGED_MISSES: &str = "tierlab_staged_misses_total";
/// Blocks missing in a stage that another process of the machine had, by `tier`.
pub const STAGED_NEIGHBOURS: &str = "tierlab_staged_neighbour_blocks_total";
/// Blocks written to the stage, by `tier`.
pub const STAGED_WRITTEN: &str = "tierlab_staged_written_blocks_total";
/// Blocks that left the stage for others, by `tier`.
pub const STAGED_EVICTED: &str = "tierlab_staged_evicted_blocks_total";
/// Staged blocks that failed their checksum or could not be read, and came from the tier instead, by `tier`.
pub const STAGED_TORN: &str = "tierlab_staged_torn_blocks_total";
/// Blocks not staged because too many were waiting or a write had just failed, by `tier`.
pub const STAGED_SKIPPED: &str = "tierlab_staged_skipped_blocks_total";
/// Writes to the stage that failed, by `tier`.
pub const STAGED_FAILURES: &str = "tierlab_staged_failures_total";
/// Bytes held by the stage, by `tier`.
pub const STAGED_BYTES: &str = "tierlab_staged_bytes";
/// Bytes that the stage may hold, by `tier`.
pub const STAGED_CAPACITY_BYTES: &str = "tierlab_staged_capacity_bytes";

/// Faults that an emulated service injected, by `tier` and `kind` of error.
pub const EMULATED_FAULTS: &str = "tierlab_emulated_faults_total";

/// Feature rows that failed their checksum, by `tier` and `outcome`: mended by a second read, or refused.
pub const DAMAGED_ROWS: &str = "tierlab_damaged_rows_total";

/// Reads of cuFile into device memory, by `tier` and `way` (p2p, nvfs, posix), as cuFile's own counters say.
pub const DEVICE_READS: &str = "tierlab_device_reads_total";
/// The way to device memory that a tier was asked for, by `tier`, `path` and what GPUDirect Storage is `missing`; 1 where
/// cuFile counts its reads, else 0.
pub const DEVICE_PATH: &str = "tierlab_device_path_info";

/// A GPU of the machine: value 1, by `gpu` (its number), `name`, `uuid` and `driver`.
pub const GPU_INFO: &str = "tierlab_gpu_info";
/// Time in which a kernel ran on a GPU, by `gpu`: NVML's utilisation times the time between two looks.
pub const GPU_BUSY_SECONDS: &str = "tierlab_gpu_busy_seconds_total";
/// Energy that a GPU took, by `gpu`.
pub const GPU_ENERGY_JOULES: &str = "tierlab_gpu_energy_joules_total";
/// Power that a GPU takes, by `gpu`.
pub const GPU_POWER_WATTS: &str = "tierlab_gpu_power_watts";
/// Memory of a GPU in use, by `gpu`.
pub const GPU_MEMORY_USED_BYTES: &str = "tierlab_gpu_memory_used_bytes";
/// Memory of a GPU, by `gpu`.
pub const GPU_MEMORY_TOTAL_BYTES: &str = "tierlab_gpu_memory_total_bytes";
/// Clocks of a GPU, by `gpu` and `clock` (sm, memory).
pub const GPU_CLOCK_HZ: &str = "tierlab_gpu_clock_hertz";
/// Bytes over the bus of a GPU, by `gpu` and `direction` (received, sent).
pub const GPU_PCIE_BYTES_PER_S: &str = "tierlab_gpu_pcie_bytes_per_second";
/// Temperature of a GPU, by `gpu`.
pub const GPU_TEMPERATURE_CELSIUS: &str = "tierlab_gpu_temperature_celsius";
