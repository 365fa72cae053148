//! ONNX Runtime: finding the library, loading it, and building sessions.
//!
//! In: search paths, and graphs as bytes. Out: sessions. Knows nothing of models' names, requests or tiers. The library
//! is loaded at run time, so that the server builds without it and a user's own build (with CUDA, say) can replace it.

mod mapped;
mod optimized;
mod provider;

use crate::error::LoadError;
use crate::log_budget::LogBudget;
use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use libloading::{Library, Symbol};
use mapped::WeightFolder;
pub(crate) use mapped::{DiskSpace, MappedConfig, MappedWeights, NEVER_FROM_MEMORY_BYTES};
pub(crate) use optimized::OptimizedCache;
use ort::environment::Environment;
use ort::logging::{LogLevel, LoggerFunction};
use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
pub(crate) use provider::{CudaOptions, Provider, Providers, TensorRtOptions};
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tierlab_formats::model::{InstanceKind, MODEL_FILE};
use tierlab_program::onnxruntime::{self, newest_in};
use tracing::Level;

/// Session option that lets threads spin only during runs.
const STOP_SPINNING_AFTER_RUN: &str = "session.force_spinning_stop";
/// Oldest supported version of ONNX Runtime.
const OLDEST: &str = "1.23";
/// Names tried on the system's search path.
const SYSTEM_NAMES: [&str; 2] = ["libonnxruntime.so", "libonnxruntime.so.1"];

/// The loaded library.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    environment: Environment,
    pub(crate) providers: Arc<Providers>,
    /// Provider of models that ask for none.
    default_provider: Provider,
    /// Version, such as `1.31.1`.
    pub(crate) version: String,
    /// Path of the file.
    pub(crate) library: PathBuf,
}

/// Numbers of threads that ONNX Runtime uses for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Threads {
    /// Threads within a node of the graph.
    pub(crate) intra_op: u32,
    /// Nodes run at the same time; 1 is sequential.
    pub(crate) inter_op: u32,
    /// If true, threads of a run poll for work between two nodes. They always sleep between runs.
    pub(crate) spinning: bool,
}

/// Source of a session's graph.
#[derive(Debug, Clone, Default)]
pub(crate) enum GraphSource {
    /// The model itself.
    #[default]
    Original,
    /// The model itself; the optimised graph is written to this file.
    Saving(PathBuf),
    /// Graph written earlier by the optimiser. If it does not load, the model itself is used.
    Optimized(Bytes),
}

/// Built session and its source.
pub(crate) struct Built {
    pub(crate) session: Session,
    /// `cpu`, `cuda` or `tensorrt`.
    pub(crate) provider: &'static str,
    /// True if the session was built from a stored optimised graph.
    pub(crate) optimized: bool,
}

/// Model's graph, and the files of its large weights.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    /// Name in the log: `NAME/VERSION` of the model.
    pub(crate) name: Arc<str>,
    pub(crate) onnx: Bytes,
    pub(crate) weights: Weights,
}

/// Large weights of a graph, by their file names in the graph.
#[derive(Debug, Clone)]
pub(crate) enum Weights {
    /// In memory; each session copies them.
    InMemory(Vec<(String, Arc<[u8]>)>),
    /// In a folder, with the graph as `model.onnx` beside them; all sessions map the same files.
    Mapped(Arc<WeightFolder>),
}

impl Graph {
    /// Size of the graph and its weights: approximately a session's memory.
    pub(crate) fn bytes(&self) -> u64 {
        let files = match &self.weights {
            Weights::InMemory(files) => files.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
            Weights::Mapped(folder) => folder.disk_space.bytes,
        };
        files + self.onnx.len() as u64
    }

    /// Graph with all its weights inside.
    pub(crate) fn self_contained(name: Arc<str>, onnx: Bytes) -> Self {
        Self {
            name,
            onnx,
            weights: Weights::InMemory(Vec::new()),
        }
    }
}

impl Runtime {
    /// Finds and loads the library. The error lists the searched places and how to get it. Call it once per process:
    /// ONNX Runtime allows no second environment. `chosen` are the configured paths, each with the name of its setting.
    pub(crate) fn load(chosen: [(&str, Option<&Path>); 2], providers: Providers) -> Result<Self, LoadError> {
        let library = find(chosen)?;
        let environment = ort::init_from(&library)
            .map_err(|e| LoadError::new(format!("ONNX Runtime: {e}\n{}", advice())))?
            .with_name("tierlab")
            .with_telemetry(false)
            .with_logger(logger())
            .build()
            .map_err(|e| LoadError::new(format!("ONNX Runtime {}: {e}", library.display())))?;
        environment.set_log_level(log_level());
        let version = version_of(&library).map_err(|e| LoadError::new(format!("ONNX Runtime {e}")))?;
        let resolved = providers.resolve(&environment, &library);
        let default_provider = resolved.map_err(|e| LoadError::new(e.to_string()))?;
        Ok(Self {
            environment,
            providers: Arc::new(providers),
            default_provider,
            version,
            library,
        })
    }

    /// Provider for sessions of a model that asks for `kind`.
    ///
    /// # Errors
    /// Fails if the model requires a GPU but the server's configuration has none.
    pub(crate) fn provider_for(&self, kind: InstanceKind) -> Result<Provider> {
        match (kind, self.providers.choice) {
            (InstanceKind::Auto, _) => Ok(self.default_provider),
            (InstanceKind::Cpu, _) => Ok(Provider::Cpu),
            (InstanceKind::Gpu, Provider::Cpu) => {
                bail!("the model's config requires a GPU, but `runtime.provider` in server.toml is `cpu`")
            }
            (InstanceKind::Gpu, Provider::Tensorrt) => Ok(Provider::Tensorrt),
            (InstanceKind::Gpu, Provider::Auto | Provider::Cuda) => Ok(Provider::Cuda),
        }
    }

    /// Builds a session.
    ///
    /// # Errors
    /// Fails if ONNX Runtime refuses the graph, or if a requested provider does not start; lists all that the provider
    /// needs.
    pub(crate) fn session(
        &self,
        graph: &Graph,
        source: &GraphSource,
        threads: Threads,
        provider: Provider,
    ) -> Result<Built> {
        match provider {
            Provider::Cuda | Provider::Tensorrt => {
                let built = self.build(graph, threads, provider, Ok);
                built.map_err(|error| match self.on_cpu(graph, &GraphSource::Original, threads) {
                    // The graph is valid: the provider does not start.
                    Ok(_) => anyhow!(self.providers.unusable(provider, &self.library, &error.to_string())),
                    Err(_) => error,
                })
            }
            Provider::Auto => self.build(graph, threads, Provider::Cuda, Ok).or_else(|error| {
                tracing::warn!(%error, "cannot start CUDA; running the model on the CPU");
                self.on_cpu(graph, source, threads)
            }),
            Provider::Cpu => self.on_cpu(graph, source, threads),
        }
    }

    fn on_cpu(&self, graph: &Graph, source: &GraphSource, threads: Threads) -> Result<Built> {
        let attempt = match source {
            GraphSource::Original => None,
            GraphSource::Optimized(onnx) => {
                let ready = Graph::self_contained(Arc::clone(&graph.name), onnx.clone());
                // The graph is already optimised.
                let off = |b: SessionBuilder| Ok(b.with_optimization_level(GraphOptimizationLevel::Disable)?);
                let built = self.build(&ready, threads, Provider::Cpu, off);
                Some(built.map(|built| Built {
                    optimized: true,
                    ..built
                }))
            }
            GraphSource::Saving(path) => {
                let save = |b: SessionBuilder| Ok(b.with_optimized_model_path(path)?);
                Some(self.build(graph, threads, Provider::Cpu, save))
            }
        };
        match attempt {
            Some(Ok(built)) => return Ok(built),
            Some(Err(error)) => tracing::warn!(%error, "loading without the cache of optimised graphs"),
            None => {}
        }
        self.build(graph, threads, Provider::Cpu, Ok)
    }

    fn build(
        &self,
        graph: &Graph,
        threads: Threads,
        provider: Provider,
        finish: impl FnOnce(SessionBuilder) -> ort::Result<SessionBuilder>,
    ) -> Result<Built> {
        let build = || -> ort::Result<Session> {
            // Threads that spin between runs would take the cores that tiers and HTTP need, and make a session look
            // busy.
            let mut builder = Session::builder(&self.environment)?
                .with_intra_threads(threads.intra_op as usize)?
                .with_parallel_execution(threads.inter_op > 1)?
                .with_inter_threads(threads.inter_op as usize)?
                .with_intra_op_spinning(threads.spinning)?
                .with_log_id(&graph.name)?;
            if threads.spinning {
                builder = builder.with_config_entry(STOP_SPINNING_AFTER_RUN, "1")?;
            }
            if provider != Provider::Cpu {
                builder = builder.with_execution_providers(self.providers.dispatch(provider))?;
            }
            match &graph.weights {
                Weights::InMemory(files) => {
                    for (name, bytes) in files {
                        builder = builder.with_external_initializer_file_in_memory(name, Arc::clone(bytes))?;
                    }
                    finish(builder)?.commit_from_memory(&graph.onnx)
                }
                Weights::Mapped(folder) => {
                    let onnx = folder.file(MODEL_FILE).map_err(|e| ort::Error::new(e.to_string()))?;
                    finish(builder)?.commit_from_file(onnx)
                }
            }
        };
        Ok(Built {
            session: build()?,
            provider: provider.into_str(),
            optimized: false,
        })
    }
}

/// Finds the first library. A configured path is used or refused, never skipped.
fn find(chosen: [(&str, Option<&Path>); 2]) -> Result<PathBuf, LoadError> {
    let mut searched = Vec::new();
    for (name, path) in chosen {
        let Some(path) = path else {
            searched.push(format!("{name}: not set"));
            continue;
        };
        let file = path.is_file().then(|| path.to_owned());
        let library = file.or_else(|| newest_in(path));
        return library.ok_or_else(|| {
            LoadError::new(format!(
                "ONNX Runtime: no library at {name} `{}`.\n{}",
                path.display(),
                advice()
            ))
        });
    }
    for folder in onnxruntime::folders() {
        if let Some(library) = newest_in(&folder) {
            return Ok(library);
        }
        searched.push(format!("{}/libonnxruntime.so*: none", folder.display()));
    }
    for name in SYSTEM_NAMES {
        match ort::init_from(name) {
            Ok(_) => return Ok(name.into()),
            Err(error) => searched.push(format!("{name} on the system: {error}")),
        }
    }
    Err(LoadError::new(format!(
        "ONNX Runtime was not found. Searched:\n  {}\n{}",
        searched.join("\n  "),
        advice()
    )))
}

fn advice() -> String {
    format!(
        "Get it with `pip install onnxruntime` in the environment of this program, with `scripts/setup onnxruntime` in a checkout, \
         or set ORT_DYLIB_PATH to a libonnxruntime.so.* of your own; it must be version {OLDEST} or newer."
    )
}

/// `OrtGetApiBase`, the library's only public export.
type GetApiBase = unsafe extern "C" fn() -> *const ort::sys::OrtApiBase;

/// Reads a library's version, such as `1.31.1`. Calls ONNX Runtime's C interface directly, because the `ort` crate
/// makes the same call but does not expose the result.
///
/// # Errors
/// Fails if the file is not a library, or not ONNX Runtime.
#[allow(unsafe_code)]
fn version_of(library: &Path) -> Result<String> {
    let failed = |reason: &dyn std::fmt::Display| anyhow!("{}: {reason}", library.display());
    // SAFETY: `ort` loaded this library before, so its initialisers have run and do nothing again; the handle only
    // increments its count. `ort` keeps it loaded for the life of the process.
    let loaded = unsafe { Library::new(library) }.map_err(|e| failed(&e))?;
    // SAFETY: ONNX Runtime declares this symbol as a function of this type since its first version.
    let get: Symbol<'_, GetApiBase> = unsafe { loaded.get(b"OrtGetApiBase") }.map_err(|e| failed(&e))?;
    // SAFETY: it takes nothing and returns a pointer to static data, which is checked for null.
    let base = unsafe { get().as_ref() }.ok_or_else(|| failed(&"OrtGetApiBase returned nothing"))?;
    // SAFETY: it takes nothing and returns a pointer to a static string that ends in NUL.
    let version = unsafe { (base.GetVersionString)() };
    if version.is_null() {
        return Err(failed(&"GetVersionString returned nothing"));
    }
    // SAFETY: as above, and not null.
    let version = unsafe { CStr::from_ptr(version) };
    let version = version.to_str().map_err(|e| failed(&e))?;
    Ok(version.to_owned())
}

const TARGET: &str = "onnxruntime";
/// Maximum lines within one [`WINDOW`].
const MAX_LINES: u32 = 50;
const WINDOW: Duration = Duration::from_secs(1);
/// Text of an interrupted run's error, reported by its last operator and again by the session.
const ENDED: &str = "terminate flag";

/// Forwards the library's messages to this process's log, as events of the target `onnxruntime`, with the model of a
/// line and, on a session's thread, the current request. Its warnings are `warn`; its information is for its developers
/// and becomes `debug`. A request can cause messages in every run, so lines above `debug` are bounded, and the number
/// left out is logged.
fn logger() -> LoggerFunction {
    let budget = LogBudget::new(MAX_LINES, WINDOW);
    Arc::new(move |level, _category: &str, id: &str, location: &str, message: &str| {
        let level = match level {
            LogLevel::Verbose => Level::TRACE,
            LogLevel::Info => Level::DEBUG,
            _ if message.contains(ENDED) => Level::DEBUG,
            LogLevel::Warning => Level::WARN,
            LogLevel::Error | LogLevel::Fatal => Level::ERROR,
        };
        if level <= Level::WARN {
            let Some(left_out) = budget.spend() else { return };
            if left_out > 0 {
                tracing::warn!(target: TARGET, lines = left_out, "omitted lines of ONNX Runtime");
            }
        }
        forward(level, id, location, message);
    })
}

/// ONNX Runtime's log level, from the log's filter.
fn log_level() -> LogLevel {
    if tracing::enabled!(target: TARGET, Level::TRACE) {
        LogLevel::Verbose
    } else if tracing::enabled!(target: TARGET, Level::DEBUG) {
        LogLevel::Info
    } else if tracing::enabled!(target: TARGET, Level::WARN) {
        LogLevel::Warning
    } else {
        LogLevel::Error
    }
}

fn forward(level: Level, id: &str, location: &str, message: &str) {
    // Sessions are named `NAME/VERSION`; the library itself has no such name.
    let (model, version) = id.split_once('/').unzip();
    match level {
        Level::ERROR => tracing::error!(target: TARGET, model, version, location, "{message}"),
        Level::WARN => tracing::warn!(target: TARGET, model, version, location, "{message}"),
        Level::DEBUG => tracing::debug!(target: TARGET, model, version, location, "{message}"),
        _ => tracing::trace!(target: TARGET, model, version, location, "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_means_the_cpu_where_cuda_does_not_start() {
        let runtime = Runtime::load([("", None); 2], Providers::default()).unwrap();
        if !provider::has_cuda() {
            assert_eq!(runtime.provider_for(InstanceKind::Auto).unwrap(), Provider::Cpu);
        }
    }

    #[test]
    fn a_wrong_path_given_on_purpose_is_an_error_that_says_how_to_get_it() {
        let chosen = Path::new("/nowhere/libonnxruntime.so");
        let chosen = [("ORT_DYLIB_PATH", Some(chosen)), ("[runtime] library", None)];
        let message = find(chosen).unwrap_err().to_string();
        for part in [
            "ORT_DYLIB_PATH",
            "/nowhere/libonnxruntime.so",
            "scripts/setup onnxruntime",
            "pip install",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}
