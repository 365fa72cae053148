//! Runs from an agent's view. In: a listener, and the work of a run. Out: runs served one after another, each step started together
//! with the other agents.

use crate::clock::WallClock;
use crate::link::{Link, LinkError, Orders, Output};
use crate::listen::{self, Door, Served};
use crate::message::{ToRun, ToWorker, printable};
use std::fmt::Display;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Start of a step.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Ordered start time, on this process's clock. It may be in the past.
    pub at: Instant,
    /// Delay of the order after that time.
    pub late: Duration,
}

/// Reports that a step is prepared, and answers requests for the time until the start order comes.
///
/// # Errors
/// An unexpected order, or none within `limit`.
pub async fn ready<J>(
    orders: &mut Orders<J>,
    output: &mut Output,
    clock: &WallClock,
    limit: Duration,
) -> Result<Start, LinkError> {
    output.say(&ToRun::<()>::Ready).await?;
    loop {
        let heard = tokio::time::timeout(limit, orders.next()).await;
        match heard.map_err(|_| LinkError::Silent(limit))?? {
            ToWorker::Ping => output.say(&ToRun::<()>::Pong(clock.now_ns())).await?,
            ToWorker::Start(clock_ns) => {
                let at = clock.instant(clock_ns);
                let late = Instant::now().saturating_duration_since(at);
                return Ok(Start { at, late });
            }
            _ => return Err(LinkError::Unexpected("Start")),
        }
    }
}

/// Serves runs, one at a time, until interrupted.
pub async fn serve<E: Display>(
    listener: TcpListener,
    door: Door,
    clock: &WallClock,
    interrupted: impl Future<Output = ()>,
    work: impl AsyncFn(Link, &WallClock) -> Result<(), E>,
) {
    let served = Served::default();
    let (sender, mut runs) = mpsc::channel(1);
    let listening = tokio::spawn(listen::listen(listener, door, served.clone(), sender));
    let mut interrupted = std::pin::pin!(interrupted);
    let mut next = None;
    loop {
        let (run, link) = match next.take() {
            Some(known) => known,
            None => tokio::select! {
                Some(known) = runs.recv() => known,
                () = &mut interrupted => break,
            },
        };
        // A run whose last connection ended since it was accepted is still the current run.
        served.set(Some(&run));
        let name = link.name.clone();
        eprintln!("{name}: started");
        tokio::select! {
            ended = Box::pin(work(link, clock)) => {
                served.set(None);
                match ended {
                    Ok(()) => eprintln!("{name}: ended"),
                    Err(error) => eprintln!("{name}: ended: {}", printable(&error.to_string())),
                }
            }
            // The same run reconnects after losing this connection.
            Some(again) = runs.recv() => next = Some(again),
            () = &mut interrupted => break,
        }
    }
    listening.abort();
}
