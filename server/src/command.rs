//! The `tierlab-server` command: flags to a configuration, a runtime, a listener, an exit code.

use crate::config::{Config, ConfigError, Described, Sources};
use crate::error::ServerError;
use crate::front::connections::listen as listen_on;
use crate::server::{Addresses, Listeners, run};
use crate::telemetry::log::{self, LogFormat};
use anyhow::{Context, Result, anyhow};
use clap::{Parser, Subcommand};
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Interval between checks that the parent process is alive.
const PARENT_POLL: Duration = Duration::from_millis(500);

/// Time limit at the end for background work, such as storing an optimised graph.
const WORK_TIMEOUT: Duration = Duration::from_secs(1);
/// Time until a forced exit, beyond the drain time and the time to send the last spans.
const HARD_EXIT_AFTER: Duration = Duration::from_secs(10);

/// Serves ONNX models over the Open Inference Protocol v2, with model files and feature rows read from a storage tier.
///
/// Prints one line of JSON on stdout once every model is loaded and warm: {"listen":"127.0.0.1:8000"}, plus
/// "grpc_listen" if gRPC is served. The log goes to stderr. SIGTERM or Ctrl-C drains: admitted requests are finished,
/// then the exit code is 0. Work not finished within the drain time is cancelled and named in the log; the exit code is
/// then 1. Exit codes: 0 success, 2 bad usage or configuration, 1 otherwise.
#[derive(Parser)]
#[command(name = "tierlab-server", version = tierlab_program::version(None), after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    sources: Sources,
    /// Log format (overrides `log.format`): plain lines, or one JSON object per line.
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<LogFormat>,
    /// Log filter (overrides `log.level`): error, warn, info, debug, trace, or a filter such as `info,access=debug`,
    /// which adds a line for each request.
    #[arg(long, value_name = "LEVEL", env = "RUST_LOG")]
    log_level: Option<String>,
    /// Drains and exits when the parent process has ended.
    #[arg(long)]
    exit_with_parent: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Prints the JSON Schema of a file, for editors.
    #[command(after_help = "Example:\n  tierlab-server schema server > server.schema.json")]
    Schema { file: Described },
}

const EXAMPLES: &str = "\
Examples:
  tierlab-server --tier nvme
  tierlab-server --config configs/server.toml --tier s3 --set tiers.s3.endpoint=http://127.0.0.1:9000
  tierlab-server --tier nfs --set tiers.nfs.url= --set tiers.nfs.path=/mnt/models
  tierlab-server --tier nvme --feature-tier nfs --set 'models=[\"ctr\"]' --set cache.capacity_bytes=0
  tierlab-server --tier nvme --log-format json --log-level info,access=debug
  tierlab-server --tier nvme --set telemetry.otlp_endpoint=http://127.0.0.1:4318
  tierlab-server --tier nvme --grpc-listen 127.0.0.1:8001
  ORT_DYLIB_PATH=/opt/onnxruntime/lib/libonnxruntime.so tierlab-server --tier memory --listen 127.0.0.1:0";

/// Runs the command with the arguments and the environment of the process.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    let environment = std::env::var("TIERLAB_LOG__FORMAT").ok();
    tierlab_program::begin();
    tierlab_program::describe::<Args>();
    let mut format = LogFormat::requested(&arguments, environment.as_deref());
    let args = match tierlab_program::parse::<Args>() {
        Ok(args) => args,
        Err(error) if format == LogFormat::Json && error.use_stderr() => {
            format.report_exit(&error.to_string());
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    if let Some(Command::Schema { file }) = args.command {
        println!("{:#}", file.schema().as_value());
        return ExitCode::SUCCESS;
    }
    let code = match start(args, &mut format) {
        Ok(()) => 0,
        Err(error) => {
            format.report_exit(&format!("{error:#}"));
            let is_config_error = error
                .downcast_ref::<ServerError>()
                .is_some_and(ServerError::is_configuration);
            1 + i32::from(is_config_error || error.is::<ConfigError>())
        }
    };
    exit_now(code)
}

/// Runs the server. Sets `format` to the format of its log.
fn start(args: Args, format: &mut LogFormat) -> Result<()> {
    let exit_with_parent = args.exit_with_parent;
    let environment = std::env::vars_os();
    let config = Config::read(&Sources {
        environment: environment
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        ..args.sources
    })?;
    *format = args.log_format.unwrap_or(config.raw.log.format);
    let level = args.log_level.as_deref().filter(|level| !level.is_empty());
    let level = level.unwrap_or(&config.raw.log.level);
    log::start(*format, level)?;
    tierlab_program::can_start_workers(config.raw.runtime.worker_threads)
        .context("starting the async runtime (`runtime.worker_threads`)")?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if config.raw.runtime.worker_threads > 0 {
        builder.worker_threads(config.raw.runtime.worker_threads);
    }
    builder.thread_name("http").enable_all();
    let runtime = builder.build().context("starting the async runtime")?;
    let served = runtime.block_on(async {
        let listen = |flag: &str, address: SocketAddr| {
            let listener = listen_on(address, config.connections.bounds.backlog);
            listener.map_err(|error| {
                anyhow!("cannot listen on {address}: {error}; set {flag} to another address (port 0 takes a free port)")
            })
        };
        let grpc = config.grpc_listen.map(|address| listen("--grpc-listen", address));
        let grpc = grpc.transpose()?;
        let listeners = Listeners {
            http: listen("--listen", config.listen)?,
            grpc,
        };
        let shutdown = shutdown(exit_with_parent)?;
        let limit = config.raw.drain.timeout + HARD_EXIT_AFTER;
        let shutdown = async move {
            shutdown.await;
            exit_after(limit);
        };
        run(config, listeners, announce, shutdown).await?;
        Ok(())
    });
    // Waits for files that are being stored, but not for work that does not end.
    runtime.shutdown_timeout(WORK_TIMEOUT);
    served
}

/// Ends the process after a time in any case, because its own threads may be stuck.
fn exit_after(limit: Duration) {
    let exit = move || {
        std::thread::sleep(limit);
        tracing::error!("process did not end in time; forcing exit");
        exit_now(1);
    };
    if let Err(error) = std::thread::Builder::new().name("exit".to_owned()).spawn(exit) {
        tracing::warn!(%error, "cannot start the thread that forces the exit");
    }
}

/// Prints the line that reports readiness.
fn announce(addresses: Addresses) {
    let http = addresses.http;
    let grpc = addresses.grpc.map(|address| format!(",\"grpc_listen\":\"{address}\""));
    let mut stdout = std::io::stdout().lock();
    // If nobody reads it, the server continues.
    let _ = writeln!(stdout, "{{\"listen\":\"{http}\"{}}}", grpc.unwrap_or_default()).and_then(|()| stdout.flush());
}

/// Ends at SIGTERM, at Ctrl-C, or when the parent has ended.
fn shutdown(exit_with_parent: bool) -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let parent = std::os::unix::process::parent_id();
    let orphaned = async move {
        if !exit_with_parent {
            std::future::pending::<()>().await;
        }
        while std::os::unix::process::parent_id() == parent {
            tokio::time::sleep(PARENT_POLL).await;
        }
    };
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = orphaned => {}
        }
    })
}

/// Ends the process at once with an exit code, without destructors of libraries.
///
/// Used because a session that is being built, or a run inside an operator, cannot be interrupted. `exit` would run the
/// destructors of ONNX Runtime's libraries meanwhile, which crashes after the log says `drained`. After draining
/// nothing is left to destroy: files are stored, spans are sent, the log is not buffered.
#[allow(unsafe_code)]
fn exit_now(code: i32) -> ! {
    // Fails if nobody reads it.
    let _ = std::io::stdout().flush();
    // SAFETY: `_exit` only ends the process; it takes no pointers and runs none of our code.
    unsafe { libc::_exit(code) }
}
