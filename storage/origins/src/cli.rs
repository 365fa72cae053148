//! Command line of `tierlab-origin`. Parses flags, binds, prints one line, runs until it is stopped.

use crate::nfs::NfsOrigin;
use crate::s3::{FaultPlan, S3Origin};
use anyhow::{Context, Result};
use clap::{ArgGroup, Parser};
use futures::FutureExt as _;
use futures::future::{LocalBoxFuture, try_join_all};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

const AFTER_HELP: &str = "\
Once ready, prints one line of JSON to stdout, with the servers that run:
  {\"s3\":\"http://127.0.0.1:PORT\",\"bucket\":\"tierlab\",\"nfs\":\"nfs://127.0.0.1:PORT/export\",
   \"flight\":\"grpc://127.0.0.1:PORT\"}

S3 requests may be unsigned, or signed with access key `tierlab` and secret `tierlab-secret`. The bucket is in the path, \
or in the host's name below `localhost`.

Flight serves the table features/NAME.rows below its root as the flight of the path [NAME]. Tickets are JSON:
  {\"table\":NAME}, with \"ids\":[...] for some entities, with \"version\" for one version
from Python:
  client = pyarrow.flight.connect(URL); client.list_flights()
  client.do_get(pyarrow.flight.Ticket(b'{\"table\":\"ctr\",\"ids\":[7,3]}')).read_all()

Keys of --s3-fault; rates are shares of the GETs and HEADs of objects, from 0 to 1, drawn from a seed:
  error-rate      share answered with 500 or 503
  retry-after-s   seconds in the Retry-After header of these, which are then 503 or 429
  slow-rate       share that waits for slow-ms (default: 2000)
  stall-rate, truncate-rate, reset-rate
                  shares whose body stops, ends early, or has its connection reset
  change-rate     share answered from another version: another ETag, every byte inverted
  first-byte-ms   milliseconds before every reply
  mb-per-s        speed of a body on its connection, in 10^6 bytes per second
  seed            seed of all draws (default: 1)

Examples:
  tierlab-origin --s3-root /tmp/s3
  tierlab-origin --s3-root /tmp/s3 --s3-fault first-byte-ms=30,mb-per-s=90,error-rate=0.01
  tierlab-origin --flight-root /tmp/flight --flight-listen 127.0.0.1:8815
  tierlab-origin --s3-root /tmp/s3 --s3-listen 127.0.0.1:9000 --nfs-root /tmp/nfs --nfs-listen 127.0.0.1:2049

Exit codes: 0 stopped by a signal or with its parent, 2 bad usage, 1 any other error.";

/// Serve folders over S3, NFSv3 and Arrow Flight, for tests and for the lab
#[derive(Debug, Parser)]
#[command(name = "tierlab-origin", version = tierlab_program::version(None), after_help = AFTER_HELP)]
#[command(group(ArgGroup::new("roots").args(["s3_root", "nfs_root", "flight_root"]).required(true).multiple(true)))]
struct Flags {
    /// Folder to serve over S3: each folder in it is a bucket; created if missing
    #[arg(long, value_name = "DIR")]
    s3_root: Option<PathBuf>,
    /// Address of the S3 server; port 0 takes a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", requires = "s3_root")]
    s3_listen: SocketAddr,
    /// Bucket to create if missing
    #[arg(long, default_value = "tierlab", requires = "s3_root")]
    bucket: String,
    /// Faults and delays of the S3 server, as `key=value,...`; see below
    #[arg(long, value_name = "FAULTS", requires = "s3_root")]
    s3_fault: Option<FaultPlan>,
    /// Folder to serve over NFSv3 as /export; created if missing
    #[arg(long, value_name = "DIR")]
    nfs_root: Option<PathBuf>,
    /// Address of the NFSv3 server, MOUNT included (IPv4); port 0 takes a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", requires = "nfs_root")]
    nfs_listen: SocketAddrV4,
    /// Folder to serve over Arrow Flight; created if missing
    #[arg(long, value_name = "DIR")]
    flight_root: Option<PathBuf>,
    /// Address of the Flight server; port 0 takes a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", requires = "flight_root")]
    flight_listen: SocketAddr,
    /// Allow addresses that other machines can reach: anyone there may read and write the folders
    #[arg(long)]
    allow_remote: bool,
    /// Stop when the process that started this one ends
    #[arg(long)]
    exit_with_parent: bool,
    /// Filter of log messages on stderr, as `tracing` directives
    #[arg(
        long,
        value_name = "FILTER",
        env = "TIERLAB_LOG",
        default_value = "warn,s3s=off,nfs3_server=off"
    )]
    log: String,
}

/// Line on stdout: the servers that run, each with its address.
type Ready = BTreeMap<&'static str, String>;

/// Runs the program with the arguments of the process. Part of the library, so that its futures are compiled once.
pub fn main() -> ExitCode {
    // Read first, so that a parent that ends during the start is noticed.
    let parent = std::os::unix::process::parent_id();
    let flags: Flags = tierlab_program::start();
    let filter = match EnvFilter::try_new(&flags.log) {
        Ok(filter) => filter,
        Err(e) => return refuse(&format!("--log `{}`: {e}", flags.log)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    // Without its folder, a server has its default address, which is a loopback address.
    for (flag, address) in [
        ("--s3-listen", flags.s3_listen),
        ("--nfs-listen", SocketAddr::V4(flags.nfs_listen)),
        ("--flight-listen", flags.flight_listen),
    ] {
        if !address.ip().is_loopback() && !flags.allow_remote {
            return refuse(&format!(
                "{flag} {address} can be reached by other machines, and anyone there could read and write the folder; \
                 use 127.0.0.1, or pass --allow-remote to permit that"
            ));
        }
    }
    let ran = tierlab_program::can_start_workers(0)
        .and_then(|()| tokio::runtime::Builder::new_multi_thread().enable_all().build())
        .context("cannot start the runtime")
        .and_then(|runtime| runtime.block_on(run(flags, parent)));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tierlab-origin: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("tierlab-origin: {message}");
    ExitCode::from(2)
}

async fn run(flags: Flags, parent: u32) -> Result<()> {
    let (stop, stopped) = watch::channel(false);
    let (mut ready, mut servers) = (Ready::default(), Vec::new());
    if let Some(root) = &flags.s3_root {
        servers.push(s3(root, &flags, &mut ready, wait(stopped.clone())).await?);
    }
    if let Some(root) = &flags.nfs_root {
        servers.push(nfs(root, flags.nfs_listen, &mut ready, wait(stopped.clone())).await?);
    }
    if let Some(root) = &flags.flight_root {
        servers.push(flight(root, flags.flight_listen, &mut ready, wait(stopped.clone())).await?);
    }
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop_requested = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = parent_ends(parent), if flags.exit_with_parent => {}
        }
        // The receivers live as long as the servers.
        let _ = stop.send(true);
        std::future::pending::<()>().await;
    };
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", serde_json::to_string(&ready)?)
        .and_then(|()| stdout.flush())
        .context("cannot write to stdout")?;
    tokio::select! {
        served = try_join_all(servers) => served.map(drop),
        () = stop_requested => Ok(()),
    }
}

async fn wait(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// A bound server, which runs until it is stopped.
type Serving = LocalBoxFuture<'static, Result<()>>;

async fn listen(flag: &str, address: SocketAddr) -> Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("cannot listen on {flag} {address}"))
}

async fn s3(
    root: &Path,
    flags: &Flags,
    ready: &mut Ready,
    stopped: impl Future<Output = ()> + 'static,
) -> Result<Serving> {
    let folder = || format!("cannot serve --s3-root {}", root.display());
    let origin = S3Origin::open(root).with_context(folder)?;
    origin
        .ensure_bucket(&flags.bucket)
        .with_context(|| format!("cannot create --bucket {}", flags.bucket))?;
    origin.faults().set(flags.s3_fault.unwrap_or_default());
    let listener = listen("--s3-listen", flags.s3_listen).await?;
    ready.insert("s3", format!("http://{}", listener.local_addr()?));
    ready.insert("bucket", flags.bucket.clone());
    Ok(async move { origin.serve(listener, stopped).await.context("S3 server") }.boxed_local())
}

async fn nfs(
    root: &Path,
    listen: SocketAddrV4,
    ready: &mut Ready,
    stopped: impl Future<Output = ()> + 'static,
) -> Result<Serving> {
    let shown = root.display();
    let bound = NfsOrigin::bind(listen, root).await;
    let origin = bound.with_context(|| format!("cannot serve --nfs-root {shown} on --nfs-listen {listen}"))?;
    ready.insert("nfs", origin.url());
    Ok(async move { origin.serve(stopped).await.context("NFS server") }.boxed_local())
}

#[cfg(feature = "flight")]
async fn flight(
    root: &Path,
    address: SocketAddr,
    ready: &mut Ready,
    stopped: impl Future<Output = ()> + 'static,
) -> Result<Serving> {
    let opened = crate::flight::FlightOrigin::open(root).await;
    let origin = opened.with_context(|| format!("cannot serve --flight-root {}", root.display()))?;
    let listener = listen("--flight-listen", address).await?;
    ready.insert("flight", format!("grpc://{}", listener.local_addr()?));
    Ok(async move { origin.serve(listener, stopped).await.context("Flight server") }.boxed_local())
}

#[cfg(not(feature = "flight"))]
async fn flight(root: &Path, _: SocketAddr, _: &mut Ready, _: impl Future<Output = ()>) -> Result<Serving> {
    let shown = root.display();
    anyhow::bail!(
        "cannot serve --flight-root {shown}: this build has no Flight origin: build it with `--features flight`"
    )
}

/// Resolves once the process has another parent than at its start.
async fn parent_ends(parent: u32) {
    while std::os::unix::process::parent_id() == parent {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
