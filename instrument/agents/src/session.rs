//! Runs from an agent's view. In: a listener, and the work of a run. Out: result runs served one after another,
//! each step started together with the other agents.

use crate::clock::{TRIPS, WallClock};
use crate::handshake::{self, Token};
use crate::link::{Link, LinkError, Orders, Output};
use crate::message::{ToRun, ToWorker, printable};
use anyhow::{Result, bail};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Start of a step.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Ordered start time, on this process's clock. It may be in the past.
    pub at: Instant,
    /// Delay of the order after that time.
    pub late: Duration,
}

/// Reports that a step is prepared, and answers requests for the time until the start order comes, as many as a run
/// sends.
///
/// # Errors
/// An unexpected order, or none within `limit`.
pub async fn ready<J>(
    orders: &mut Orders<J>,
    output: &mut Output,
    clock: &WallClock,
    limit: Duration,
) -> Result<Start, LinkError> {
    output.send(&ToRun::<()>::Ready).await?;
    for _ in 0..=TRIPS {
        let received = tokio::time::timeout(limit, orders.next()).await;
        match received.map_err(|_| LinkError::Silent(limit))?? {
            ToWorker::Ping => output.send(&ToRun::<()>::Pong(clock.now_ns())).await?,
            ToWorker::Start(clock_ns) => {
                let at = clock.instant(clock_ns);
                let late = Instant::now().saturating_duration_since(at);
                return Ok(Start { at, late });
            }
            _ => break,
        }
    }
    Err(LinkError::Unexpected("Start"))
}

/// Serves runs, one at a time, until interrupted.
pub async fn serve<E: Display>(
    listener: TcpListener,
    auth: Auth,
    clock: &WallClock,
    interrupted: impl Future<Output = ()>,
    work: impl AsyncFn(Link, &WallClock) -> Result<(), E>,
) {
    let served = Served::default();
    let (sender, mut runs) = mpsc::channel(1);
    let listening = tokio::spawn(listen(listener, auth, served.clone(), sender));
    let mut interrupted = std::pin::pin!(interrupted);
    let mut next = None;
    loop {
        let (run, link) = match next.take() {
            Some(accepted_run) => accepted_run,
            None => tokio::select! {
                Some(accepted_run) = runs.recv() => accepted_run,
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
            Some(reconnected) = runs.recv() => next = Some(reconnected),
            () = &mut interrupted => break,
        }
    }
    listening.abort();
}

/// Maximum number of unauthenticated connections. A further one replaces the oldest of the address with the most.
const MAX_UNAUTHENTICATED: usize = 16;

/// Credentials required from a caller.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    /// Program whose runs are admitted.
    pub program: &'static str,
    /// Token that the caller must prove.
    pub token: Option<Token>,
    /// TLS settings, which may require a client certificate.
    pub tls: Option<Arc<ServerConfig>>,
    /// True if the caller needs a client certificate.
    pub requires_certificate: bool,
}

impl Auth {
    /// Refuses to listen without authentication. Loopback is no exception, because every user of the host reaches it.
    ///
    /// # Errors
    /// Token and mutual TLS are both missing.
    pub fn check(&self) -> Result<()> {
        if self.token.is_some() || self.requires_certificate {
            return Ok(());
        }
        bail!(
            "an agent requires authentication: add a token (--token-env NAME or --token-file \
            FILE; create one with `openssl rand -hex 32`), or mutual TLS (--cert, --key and --client-ca)"
        )
    }
}

/// Run that an agent serves.
#[derive(Debug, Clone, Default)]
struct Served(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Free,
    /// Admitted run that is not yet welcomed.
    Reserved(String),
    Serving(String),
}

impl Served {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a run if the agent is free, or if the same run reconnects.
    fn admit(&self, run: &str) -> Result<()> {
        let mut state = self.state();
        match &*state {
            State::Reserved(other) | State::Serving(other) if other != run => {
                bail!("the agent serves another run: wait until it ends, or use another agent")
            }
            State::Free => {
                *state = State::Reserved(run.to_owned());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Frees an agent whose run was admitted and disconnected before it was welcomed.
    fn release(&self) {
        let mut state = self.state();
        if matches!(*state, State::Reserved(_)) {
            *state = State::Free;
        }
    }

    /// Sets the run that is served; `None` if there is none.
    fn set(&self, run: Option<&str>) {
        *self.state() = run.map_or(State::Free, |run| State::Serving(run.to_owned()));
    }
}

/// Frees the agent on drop, unless its run was welcomed.
struct Reservation<'a> {
    served: &'a Served,
    is_open: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.served.release();
        }
    }
}

/// Unauthenticated connections, oldest first: their addresses, and tasks that end with the authentication.
#[derive(Default)]
struct Unauthenticated(Vec<(IpAddr, AbortHandle)>);

impl Unauthenticated {
    /// Makes room for one more: drops the oldest connection of the address with the most.
    fn make_room(&mut self) {
        self.0.retain(|(_, task)| !task.is_finished());
        if self.0.len() < MAX_UNAUTHENTICATED {
            return;
        }
        let share = |address: IpAddr| self.0.iter().filter(|(other, _)| *other == address).count();
        let most = self.0.iter().map(|(address, _)| share(*address)).max();
        if let Some(oldest) = self.0.iter().position(|(address, _)| Some(share(*address)) == most) {
            self.0.remove(oldest).1.abort();
        }
    }
}

/// Accepts connections forever; result ones are sent to `runs`.
async fn listen(listener: TcpListener, auth: Auth, served: Served, runs: mpsc::Sender<(String, Link)>) {
    let mut unauthenticated = Unauthenticated::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Mostly too many open files: others may be closed by then.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        unauthenticated.make_room();
        let (auth, served, runs) = (auth.clone(), served.clone(), runs.clone());
        let task = tokio::spawn(async move {
            let result = tokio::time::timeout(2 * handshake::LIMIT, login(stream, peer, &auth, &served)).await;
            match result {
                Ok(Ok(run)) => {
                    // If the receiver is gone, the agent is about to end.
                    tokio::spawn(async move { runs.send(run).await });
                }
                Ok(Err(error)) => eprintln!("{peer}: rejected: {}", printable(&error.to_string())),
                Err(_) => eprintln!("{peer}: rejected: authentication timed out"),
            }
        });
        unauthenticated.0.push((peer.ip(), task.abort_handle()));
    }
}

async fn login(stream: TcpStream, peer: SocketAddr, auth: &Auth, served: &Served) -> Result<(String, Link), LinkError> {
    stream.set_nodelay(true).map_err(LinkError::Io)?;
    let name = format!("run at {peer}");
    let link = match &auth.tls {
        None => Link::new(name, peer.ip().is_loopback(), stream),
        Some(tls) => {
            let accepted = TlsAcceptor::from(Arc::clone(tls)).accept(stream).await;
            Link::new(name, true, accepted.map_err(LinkError::Io)?)
        }
    };
    let mut reservation = Reservation { served, is_open: false };
    let admit = |run: &str| {
        served.admit(run)?;
        reservation.is_open = true;
        Ok(())
    };
    let run = handshake::receive(link, auth.token.as_ref(), auth.program, admit).await?;
    reservation.is_open = false;
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_needs_a_token_or_mutual_tls() {
        let refused = Auth::default().check().unwrap_err().to_string();
        assert!(
            refused.contains("--token-env") && refused.contains("--client-ca"),
            "{refused}"
        );
        let guarded = Auth {
            token: Some(Token::new("0123456789abcdef").unwrap()),
            ..Auth::default()
        };
        guarded.check().unwrap();
    }

    #[test]
    fn a_run_that_breaks_off_before_its_welcome_frees_the_agent() {
        let served = Served::default();
        served.admit("a").unwrap();
        served.release();
        served.admit("b").unwrap();
        served.set(Some("b"));
        // A second connection of the served run is dropped before its welcome.
        served.admit("b").unwrap();
        served.release();
        assert!(served.admit("a").unwrap_err().to_string().contains("another run"));
    }

    #[tokio::test]
    async fn a_run_that_asks_for_the_time_without_an_end_is_given_up() {
        let (agent, run) = tokio::io::duplex(1 << 16);
        let link = |stream| Link::new("peer".into(), true, stream);
        let (input, mut output) = link(agent).halves();
        let (mut orders, reading) = input.orders::<()>();
        let mut run = link(run);
        let pings = async { while run.send(&ToWorker::<()>::Ping).await.is_ok() {} };
        let clock = WallClock::with_offset_ms(0);
        let error = tokio::select! {
            started = ready(&mut orders, &mut output, &clock, Duration::from_secs(60)) => started.unwrap_err(),
            ended = reading => ended,
            () = pings => LinkError::Ended,
        };
        assert!(matches!(error, LinkError::Unexpected("Start")), "{error}");
    }

    #[tokio::test]
    async fn the_address_with_most_strangers_gives_up_its_oldest() {
        let wait = || tokio::spawn(std::future::pending::<()>()).abort_handle();
        let mut unauthenticated = Unauthenticated::default();
        for number in 0..MAX_UNAUTHENTICATED {
            let address = if number == 0 { [10, 0, 0, 1] } else { [10, 0, 0, 2] };
            unauthenticated.0.push((address.into(), wait()));
        }
        let second = unauthenticated.0[1].1.clone();
        unauthenticated.make_room();
        assert_eq!(unauthenticated.0.len(), MAX_UNAUTHENTICATED - 1);
        assert_eq!(unauthenticated.0[0].0, IpAddr::from([10, 0, 0, 1]));
        tokio::task::yield_now().await;
        assert!(second.is_finished());
        // An admitted connection does not count.
        unauthenticated.0[0].1.abort();
        tokio::task::yield_now().await;
        unauthenticated.make_room();
        assert_eq!(unauthenticated.0.len(), MAX_UNAUTHENTICATED - 2);
    }

    #[test]
    fn one_run_at_a_time_and_the_same_again() {
        let served = Served::default();
        served.admit("a").unwrap();
        served.admit("a").unwrap();
        assert!(served.admit("b").unwrap_err().to_string().contains("another run"));
        served.set(None);
        served.admit("b").unwrap();
    }
}
