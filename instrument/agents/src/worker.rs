//! One process from the run's view, on any host, and the common start of several. In: a link, or a number on this host. Out: the
//! process's clock, and a description of its end.

use crate::clock::{self, CONCURRENT_ESTIMATES, Offset, TRIPS, Trip, WallClock};
use crate::link::{Link, LinkError};
use crate::message::{MAX_TO_RUN, ToRun, ToWorker};
use futures::{StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// Time limit for the answer to a ping.
const TRIP_LIMIT: Duration = Duration::from_secs(10);
/// Time to wait for the last output of an ended process.
const FINAL_MESSAGE_WAIT: Duration = Duration::from_secs(1);

/// Failure of a process.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A process ended, timed out, refused, or sent an unexpected message; the text names it.
    #[error("{0}")]
    Failed(String),
    /// The connection to an agent is lost; the text names the agent.
    #[error("{0}")]
    Lost(String),
    /// A process could not be started, or a file could not be sent.
    #[error("{}: {source}", path.display())]
    Io {
        /// Program or file.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
}

impl WorkerError {
    /// Creates an error about a program or a file.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Estimate of a process's clock.
#[derive(Debug, Clone, Copy)]
pub struct ClockEstimate {
    /// Offset of the clock.
    pub offset: Offset,
    /// Duration of the longest trip.
    pub slowest: Duration,
}

/// One process from the run's view.
#[derive(Debug)]
pub struct Worker {
    /// Link to the process.
    pub link: Link,
    /// Child process, if it runs on this host.
    pub process: Option<Child>,
}

impl Worker {
    /// Starts this executable as process `number` of `of` on this host, with a link over its pipes.
    ///
    /// # Errors
    /// The executable is not found or does not start.
    pub fn start(number: u32, of: u32) -> Result<Self, WorkerError> {
        let executable = Path::new("/proc/self/exe");
        let program = std::env::current_exe().map_err(WorkerError::io(executable))?;
        let mut process = Command::new(&program)
            .arg("load-process")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is handled by the run, which ends its processes.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(WorkerError::io(&program))?;
        let id = process.id().unwrap_or_default();
        let name = format!("load process {} of {of} (id {id})", number + 1);
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(WorkerError::Failed(format!("{name} has no pipes")));
        };
        Ok(Self {
            link: Link::new(name, true, tokio::io::join(stdout, stdin)).admitted(MAX_TO_RUN),
            process: Some(process),
        })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// See [`Worker::check`].
    pub async fn send(&mut self, message: &impl Serialize) -> Result<(), WorkerError> {
        let sent = self.link.send(message).await;
        self.check(sent).await
    }

    /// Returns an error of the link with the process's name and end.
    ///
    /// # Errors
    /// The given error, with the process's name and end.
    pub async fn check<T>(&mut self, received: Result<T, LinkError>) -> Result<T, WorkerError> {
        let error = match received {
            Ok(message) => return Ok(message),
            Err(error) => error,
        };
        // The peer may have sent the reason before it closed the connection.
        if error.is_unreachable()
            && let Err(LinkError::Reported(what)) = self.link.answer::<()>(FINAL_MESSAGE_WAIT).await
        {
            return Err(WorkerError::Failed(format!("{}: {what}", self.link.name)));
        }
        let name = &self.link.name;
        Err(match &mut self.process {
            Some(process) if error.is_closed() => {
                let exit = describe_exit(process).await;
                WorkerError::Failed(format!(
                    "{name} ended {exit}; the current step is lost, finished ones are saved: resume with --resume"
                ))
            }
            None if error.is_unreachable() => WorkerError::Lost(format!("{name} is lost: {error}")),
            _ => WorkerError::Failed(format!("{name}: {error}")),
        })
    }

    async fn estimate_clock<R: DeserializeOwned>(&mut self, clock: &WallClock) -> Result<ClockEstimate, WorkerError> {
        let mut trips = Vec::with_capacity(TRIPS);
        for _ in 0..TRIPS {
            let sent_ns = clock.now_ns();
            self.send(&ToWorker::<()>::Ping).await?;
            let received = match self.link.answer::<R>(TRIP_LIMIT).await {
                Ok(ToRun::Pong(peer_ns)) => Ok((peer_ns, clock.now_ns())),
                Ok(_) => Err(LinkError::Unexpected("Pong")),
                Err(error) => Err(error),
            };
            let (peer_ns, received_ns) = self.check(received).await?;
            trips.push(Trip {
                sent_ns,
                peer_ns,
                received_ns,
            });
        }
        let slowest = trips.iter().map(Trip::took_ns).max().unwrap_or_default();
        let offset = clock::offset(&trips).unwrap_or(Offset {
            ns: 0,
            uncertainty_ns: u64::MAX,
        });
        Ok(ClockEstimate {
            offset,
            slowest: Duration::from_nanos(slowest),
        })
    }
}

/// Common start of several processes.
#[derive(Debug)]
pub struct CommonStart {
    /// Start, on this process's clock.
    pub at: Instant,
    /// Time from the last start message to the start.
    pub lead: Duration,
    /// Estimates of the processes' clocks.
    pub clocks: Vec<ClockEstimate>,
}

/// Waits until every process has prepared its step, compares their clocks, and sends each the start on its own clock.
///
/// # Errors
/// A process failed, ended or timed out; the error names it.
pub async fn start_together<R: DeserializeOwned>(
    workers: &mut [Worker],
    clock: &WallClock,
    prepare_limit: Duration,
) -> Result<CommonStart, WorkerError> {
    let ready = workers.iter_mut().map(async |worker| {
        let ready = match worker.link.answer::<R>(prepare_limit).await {
            Ok(ToRun::Ready) => Ok(()),
            Ok(_) => Err(LinkError::Unexpected("Ready")),
            Err(error) => Err(error),
        };
        worker.check(ready).await
    });
    futures::future::try_join_all(ready).await?;
    let estimates = workers.iter_mut().map(|worker| worker.estimate_clock::<R>(clock));
    let estimates = futures::stream::iter(estimates).buffered(CONCURRENT_ESTIMATES);
    let clocks: Vec<ClockEstimate> = estimates.try_collect().await?;
    let slowest = clocks.iter().map(|estimate| estimate.slowest).max().unwrap_or_default();
    let lead = clock::lead(workers.len(), slowest);
    let start_ns = clock.now_ns().saturating_add(clock::nanos(lead));
    for (worker, estimate) in workers.iter_mut().zip(&clocks) {
        let clock_ns = start_ns.saturating_add(estimate.offset.ns);
        worker.send(&ToWorker::<()>::Start(clock_ns)).await?;
    }
    Ok(CommonStart {
        at: clock.instant(start_ns),
        lead,
        clocks,
    })
}

/// Describes the end of a process that may still run.
async fn describe_exit(process: &mut Child) -> String {
    match tokio::time::timeout(Duration::from_secs(5), process.wait()).await {
        Ok(Ok(status)) => describe_status(status),
        _ => "its output, but it still runs".to_owned(),
    }
}

/// Describes the end of a process: its exit code, or the signal that ended it.
pub fn describe_status(status: ExitStatus) -> String {
    let by_signal = || format!("by signal {}", status.signal().unwrap_or_default());
    status
        .code()
        .map_or_else(by_signal, |code| format!("with exit code {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_agent_that_is_never_ready_is_given_up_by_name() {
        let (end, _peer) = tokio::io::duplex(1 << 16);
        let link = Link::new("agent a:7070".into(), true, end);
        let mut workers = [Worker { link, process: None }];
        let clock = WallClock::with_offset_ms(0);
        let started = start_together::<()>(&mut workers, &clock, Duration::from_millis(50));
        let error = tokio::time::timeout(Duration::from_secs(60), started).await;
        let error = error.expect("the wait ends").unwrap_err();
        assert!(matches!(error, WorkerError::Lost(_)), "{error}");
        assert!(error.to_string().contains("agent a:7070 is lost: no answer"), "{error}");
    }
}
