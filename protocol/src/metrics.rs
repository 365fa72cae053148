//! Names of the metrics that the server exports and the load generator scrapes. Each is registered, typed, by its
//! owner; the names live here because they are read on the other side of a process boundary. Units are in the names.

/// Label of every metric of a server that is one of a lab's variants.
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
/// Requests whose client went away, by `stage` (body, tier, batch).
pub const CANCELLED: &str = "tierlab_cancelled_total";
/// Requests between admission and reply.
pub const IN_FLIGHT: &str = "tierlab_in_flight_requests";
/// Maximum requests between admission and reply.
pub const IN_FLIGHT_LIMIT: &str = "tierlab_in_flight_limit_requests";
/// Requests waiting in a model's batch queue, by `model`.
pub const QUEUE_DEPTH: &str = "tierlab_batch_queue_requests";
/// Sessions still running although their run was ended, by `model`.
pub const STUCK_SESSIONS: &str = "tierlab_stuck_sessions";
/// Threads stuck decoding a damaged shard of a table.
pub const STUCK_DECODES: &str = "tierlab_stuck_decodes";
/// Sessions of abandoned loads whose threads have not ended.
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
/// Maximum open file descriptors.
pub const PROCESS_MAX_FDS: &str = "process_max_fds";
/// Start of the process, Unix time.
pub const PROCESS_START_SECONDS: &str = "process_start_time_seconds";
/// Time since the start of the server.
pub const UPTIME_SECONDS: &str = "tierlab_uptime_seconds";
/// Threads of the async runtime.
pub const RUNTIME_WORKERS: &str = "tierlab_runtime_workers";
/// Tasks of the async runtime.
pub const RUNTIME_TASKS: &str = "tierlab_runtime_tasks";
/// Time in which the async runtime's threads were not parked.
pub const RUNTIME_BUSY_SECONDS: &str = "tierlab_runtime_busy_seconds_total";

/// Requests of a tier to its device or server, by `tier` and `role` (model, feature).
pub const TIER_REQUESTS: &str = "tierlab_tier_requests_total";
/// Bytes received from the server or device, over-read included, by `tier` and `role`.
pub const TIER_WIRE_BYTES: &str = "tierlab_tier_wire_bytes_total";
/// Bytes requested by reads, by `tier` and `role`.
pub const TIER_READ_BYTES: &str = "tierlab_tier_read_bytes_total";
/// Retries of a tier, by `tier` and `role`.
pub const TIER_RETRIES: &str = "tierlab_tier_retries_total";
/// Requests of a tier sent a second time because the first was slow, by `tier` and `role`.
pub const TIER_HEDGES: &str = "tierlab_tier_hedges_total";
/// Failed reads of a tier, by `tier`, `role` and `kind` of error.
pub const TIER_ERRORS: &str = "tierlab_tier_errors_total";
/// Time of a read call, histogram, by `tier` and `role`.
pub const TIER_READ_SECONDS: &str = "tierlab_tier_read_duration_seconds";

/// Blocks found in the cache, by `tier`.
pub const CACHE_HITS: &str = "tierlab_cache_hits_total";
/// Blocks not found in the cache, by `tier`.
pub const CACHE_MISSES: &str = "tierlab_cache_misses_total";
/// Misses that joined a read in flight, by `tier`.
pub const CACHE_JOINED: &str = "tierlab_cache_joined_reads_total";
/// Blocks removed from the cache to make room or because of their age, by `tier`.
pub const CACHE_EVICTIONS: &str = "tierlab_cache_evictions_total";
/// Bytes held by the cache, by `tier`.
pub const CACHE_BYTES: &str = "tierlab_cache_bytes";
/// Capacity of the cache in bytes, by `tier`.
pub const CACHE_CAPACITY_BYTES: &str = "tierlab_cache_capacity_bytes";

/// Blocks read from the stage, by `tier`.
pub const STAGED_HITS: &str = "tierlab_staged_hits_total";
/// Blocks not found on the stage, by `tier`.
pub const STAGED_MISSES: &str = "tierlab_staged_misses_total";
/// Blocks missing on the stage that another process of the machine had, by `tier`.
pub const STAGED_NEIGHBOURS: &str = "tierlab_staged_neighbour_blocks_total";
/// Blocks written to the stage, by `tier`.
pub const STAGED_WRITTEN: &str = "tierlab_staged_written_blocks_total";
/// Blocks removed from the stage to make room, by `tier`.
pub const STAGED_EVICTED: &str = "tierlab_staged_evicted_blocks_total";
/// Staged blocks that were unreadable or failed their checksum, and were read from the tier instead, by `tier`.
pub const STAGED_TORN: &str = "tierlab_staged_torn_blocks_total";
/// Blocks not staged because too many were waiting or a write had just failed, by `tier`.
pub const STAGED_SKIPPED: &str = "tierlab_staged_skipped_blocks_total";
/// Writes to the stage that failed, by `tier`.
pub const STAGED_FAILURES: &str = "tierlab_staged_failures_total";
/// Bytes held by the stage, by `tier`.
pub const STAGED_BYTES: &str = "tierlab_staged_bytes";
/// Capacity of the stage in bytes, by `tier`.
pub const STAGED_CAPACITY_BYTES: &str = "tierlab_staged_capacity_bytes";

/// Faults that an emulated service injected, by `tier` and `kind` of error.
pub const EMULATED_FAULTS: &str = "tierlab_emulated_faults_total";

/// Feature rows that failed their checksum, by `tier` and `outcome`: mended by a second read, or refused.
pub const DAMAGED_ROWS: &str = "tierlab_damaged_rows_total";

/// Reads of cuFile into device memory, by `tier` and `way` (p2p, nvfs, posix), counted by cuFile.
pub const DEVICE_READS: &str = "tierlab_device_reads_total";
/// Requested path to device memory, by `tier`, `path` and the `missing` parts of GPUDirect Storage; 1 if cuFile counts
/// its reads, else 0.
pub const DEVICE_PATH: &str = "tierlab_device_path_info";

/// A GPU of the machine: value 1, by `gpu` (its number), `name`, `uuid` and `driver`.
pub const GPU_INFO: &str = "tierlab_gpu_info";
/// Time in which a kernel ran on a GPU, by `gpu`: NVML's utilisation times the sampling interval.
pub const GPU_BUSY_SECONDS: &str = "tierlab_gpu_busy_seconds_total";
/// Energy used by a GPU, by `gpu`.
pub const GPU_ENERGY_JOULES: &str = "tierlab_gpu_energy_joules_total";
/// Power drawn by a GPU, by `gpu`.
pub const GPU_POWER_WATTS: &str = "tierlab_gpu_power_watts";
/// Memory of a GPU in use, by `gpu`.
pub const GPU_MEMORY_USED_BYTES: &str = "tierlab_gpu_memory_used_bytes";
/// Memory of a GPU, by `gpu`.
pub const GPU_MEMORY_TOTAL_BYTES: &str = "tierlab_gpu_memory_total_bytes";
/// Clocks of a GPU, by `gpu` and `clock` (sm, memory).
pub const GPU_CLOCK_HZ: &str = "tierlab_gpu_clock_hertz";
/// Bytes per second over the PCIe bus of a GPU, by `gpu` and `direction` (received, sent).
pub const GPU_PCIE_BYTES_PER_S: &str = "tierlab_gpu_pcie_bytes_per_second";
/// Temperature of a GPU, by `gpu`.
pub const GPU_TEMPERATURE_CELSIUS: &str = "tierlab_gpu_temperature_celsius";
