//! Command line of `tierlab-origin`. Parses flags, binds, prints one line, runs until told to stop.

use crate::{
    flight::FlightOrigin,
    nfs::NfsOrigin,
    s3::{FaultPlan, S3Origin},
};
use anyhow::{Context, Result};
use clap::Parser;
use std::io::Write;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

const AFTER_HELP: &str = "\
Once ready, one line of JSON goes to stdout, absent parts left out:
  {\"s3\":\"http://127.0.0.1:PORT\",\"bucket\":\"tierlab\",\"nfs\":\"nfs://127.0.0.1:PORT/export\",
   \"flight\":\"grpc://127.0.0.1:PORT\"}

S3 requests may be unsigned, or signed with access key `tierlab` and secret `tierlab-secret`. The bucket is in the path,
or in the host's name below `localhost`.

Flight serves the table features/NAME.rows below its root as the flight of the path [NAME]. Tickets are JSON:
  {\"table\":NAME}, with \"ids\":[...] for some entities, with \"version\" for no other one
from Python:
  client = pyarrow.flight.connect(URL); client.list_flights()
  client.do_get(pyarrow.flight.Ticket(b'{\"table\":\"ctr\",\"ids\":[7,3]}')).read_all()

The keys of --s3-fault; rates are shares of the GETs and HEADs of objects, from 0 to 1, drawn from a seed:
  error-rate      answered with 500 or 503
  retry-after-s   these say in their header Retry-After, and are then 503 or 429
  slow-rate       answered after slow-ms (2000) more
  stall-rate, truncate-rate, reset-rate
                  bodies that stop, that end early, whose connection is reset
  change-rate     answered from another version: another ETag, every byte inverted
  first-byte-ms   the wait before every reply
  mb-per-s        the speed of a body on its connection, in 10^6 bytes per second
  seed            of what is drawn (1)

Examples:
  tierlab-origin --s3-root /tmp/s3
  tierlab-origin --s3-root /tmp/s3 --s3-fault first-byte-ms=30,mb-per-s=90,error-rate=0.01
  tierlab-origin --flight-root /tmp/flight --flight-listen 127.0.0.1:8815
  tierlab-origin --s3-root /tmp/s3 --s3-listen 127.0.0.1:9000 --nfs-root /tmp/nfs --nfs-listen 127.0.0.1:2049

Exit codes: 0 when told to stop, 2 bad usage, 1 anything else.";

/// Serve folders over S3, NFSv3 and Arrow Flight, for tests and for the lab
#[derive(Debug, Parser)]
#[command(name = "tierlab-origin", version = tierlab_program::version(None), after_help = AFTER_HELP)]
struct Flags {
    /// Folder to serve over S3: each folder in it is a bucket; made when missing
    #[arg(long, value_name = "DIR", required_unless_present_any = ["nfs_root", "flight_root"])]
    s3_root: Option<PathBuf>,
    /// Address of the S3 server; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", requires = "s3_root")]
    s3_listen: SocketAddr,
    /// Bucket to make when missing
    #[arg(long, default_value = "tierlab", requires = "s3_root")]
    bucket: String,
    /// Faults and delays of the S3 server, as `key=value,...`; see below
    #[arg(
        long,
        value_name = "FAULTS",
        default_value = "",
        requires = "s3_root",
        hide_default_value = true
    )]
    s3_fault: FaultPlan,
    /// Folder to serve over NFSv3 as /export; made when missing
    #[arg(long, value_name = "DIR")]
    nfs_root: Option<PathBuf>,
    /// Address of the NFSv3 server, MOUNT included (IPv4); port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", requires = "nfs_root")]
    nfs_listen: SocketAddrV4,
    /// Folder to serve over Arrow Flight; made when missing
    #[arg(long, value_name = "DIR")]
    flight_root: Option<PathBuf>,
    /// Address of the Flight server; port 0 takes a free one
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

/// The line on stdout.
#[derive(Debug, Default, serde::Serialize)]
struct Ready {
    #[serde(skip_serializing_if = "Option::is_none")]
    s3: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nfs: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flight: Option<String>,
}

/// Runs the program with the arguments of the process. Part of the library, so that its futures are compiled once.
#[must_use]
pub fn main() -> ExitCode {
    // Asked for first, so that a parent that ends during the start is noticed.
    let parent = std::os::unix::process::parent_id();
    tierlab_program::end_when_unread();
    if let Some(code) = tierlab_program::describe::<Flags>() {
        return code;
    }
    let flags = Flags::parse();
    let filter = match EnvFilter::try_new(&flags.log) {
        Ok(filter) => filter,
        Err(e) => return refuse(&format!("--log `{}`: {e}", flags.log)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let s3 = flags.s3_root.as_ref().map(|_| ("--s3-listen", flags.s3_listen));
    let nfs = flags
        .nfs_root
        .as_ref()
        .map(|_| ("--nfs-listen", SocketAddr::V4(flags.nfs_listen)));
    let flight = flags
        .flight_root
        .as_ref()
        .map(|_| ("--flight-listen", flags.flight_listen));
    for (flag, address) in s3.into_iter().chain(nfs).chain(flight) {
        if !address.ip().is_loopback() && !flags.allow_remote {
            return refuse(&format!(
                "{flag} {address} can be reached by other machines, and anyone there could read and write the folder; \
                 use 127.0.0.1, or add --allow-remote if that is meant"
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
    let mut ready = Ready::default();
    let s3 = bind_s3(&flags, &mut ready).await?;
    let nfs = bind_nfs(&flags, &mut ready).await?;
    let flight = bind_flight(&flags, &mut ready).await?;
    let (stop, stopped) = watch::channel(false);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let told = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = parent_ends(parent), if flags.exit_with_parent => {}
        }
        // Received below for as long as the servers run.
        let _ = stop.send(true);
        std::future::pending::<()>().await;
    };
    let wait = |mut stopped: watch::Receiver<bool>| async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", serde_json::to_string(&ready)?)
        .and_then(|()| stdout.flush())
        .context("cannot write to stdout")?;
    let s3 = async {
        match s3 {
            Some((origin, listener)) => origin.serve(listener, wait(stopped.clone())).await.context("S3 server"),
            None => Ok(()),
        }
    };
    let nfs = async {
        match nfs {
            Some(origin) => origin.serve(wait(stopped.clone())).await.context("NFS server"),
            None => Ok(()),
        }
    };
    let flight = async {
        match flight {
            Some((origin, listener)) => origin
                .serve(listener, wait(stopped.clone()))
                .await
                .context("Flight server"),
            None => Ok(()),
        }
    };
    tokio::select! {
        served = async { tokio::try_join!(s3, nfs, flight) } => served.map(|_| ()),
        () = told => Ok(()),
    }
}

async fn bind_s3(flags: &Flags, ready: &mut Ready) -> Result<Option<(S3Origin, TcpListener)>> {
    let Some(root) = &flags.s3_root else { return Ok(None) };
    let folder = || format!("cannot serve --s3-root {}", root.display());
    let origin = S3Origin::open(root).with_context(folder)?;
    origin
        .ensure_bucket(&flags.bucket)
        .with_context(|| format!("cannot make --bucket {}", flags.bucket))?;
    origin.faults().set(flags.s3_fault);
    let bound = TcpListener::bind(flags.s3_listen).await;
    let listener = bound.with_context(|| format!("cannot listen on --s3-listen {}", flags.s3_listen))?;
    ready.s3 = Some(format!("http://{}", listener.local_addr()?));
    ready.bucket = Some(flags.bucket.clone());
    Ok(Some((origin, listener)))
}

async fn bind_nfs(flags: &Flags, ready: &mut Ready) -> Result<Option<NfsOrigin>> {
    let Some(root) = &flags.nfs_root else { return Ok(None) };
    let (listen, shown) = (flags.nfs_listen, root.display());
    let bound = NfsOrigin::bind(listen, root).await;
    let origin = bound.with_context(|| format!("cannot serve --nfs-root {shown} on --nfs-listen {listen}"))?;
    ready.nfs = Some(origin.url());
    Ok(Some(origin))
}

async fn bind_flight(flags: &Flags, ready: &mut Ready) -> Result<Option<(FlightOrigin, TcpListener)>> {
    let Some(root) = &flags.flight_root else {
        return Ok(None);
    };
    let opened = FlightOrigin::open(root).await;
    let origin = opened.with_context(|| format!("cannot serve --flight-root {}", root.display()))?;
    let bound = TcpListener::bind(flags.flight_listen).await;
    let listener = bound.with_context(|| format!("cannot listen on --flight-listen {}", flags.flight_listen))?;
    ready.flight = Some(format!("grpc://{}", listener.local_addr()?));
    Ok(Some((origin, listener)))
}

/// Resolves once the process has another parent than the one that started it.
async fn parent_ends(parent: u32) {
    while std::os::unix::process::parent_id() == parent {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
