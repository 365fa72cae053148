//! An agent's door: who may come in, one run at a time. In: connections. Out: links to runs that have proven who they are.

use super::handshake::{self, Token};
use super::link::{Link, LinkError};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;

/// Connections that have not proven anything yet, at most; more are closed at once.
const STRANGERS: usize = 16;

/// What a caller has to show.
#[derive(Clone, Default)]
pub struct Door {
    /// That it knows this.
    pub token: Option<Token>,
    /// TLS, which may want a certificate.
    pub tls: Option<TlsAcceptor>,
    /// Whether that does.
    pub wants_certificate: bool,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl Door {
    /// Whether it may stand open to other hosts.
    ///
    /// # Errors
    /// Anybody who reaches the address could have requests sent to any server: says what to do.
    pub fn check(&self, listen: SocketAddr) -> Result<(), String> {
        if listen.ip().is_loopback() || self.token.is_some() || self.wants_certificate {
            return Ok(());
        }
        Err(format!(
            "--listen {listen} can be reached from other hosts, and whoever reaches an agent has it send requests to any server: \
             add a token (--token-env NAME or --token-file FILE; `openssl rand -hex 32` makes one), or mutual TLS (--cert, --key and \
             --client-ca); or listen on 127.0.0.1"
        ))
    }
}

/// The run that an agent serves.
#[derive(Debug, Clone, Default)]
pub struct Served(Arc<Mutex<Option<String>>>);

impl Served {
    /// Lets in a run where there is none, or the same again after its connection was lost.
    fn admit(&self, run: &str) -> Result<(), String> {
        let mut served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*served {
            Some(other) if other != run => {
                Err("it serves another run: wait for that, or take another agent".to_owned())
            }
            _ => {
                *served = Some(run.to_owned());
                Ok(())
            }
        }
    }

    /// It serves this run now; `None` where that has ended.
    pub fn set(&self, run: Option<&str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = run.map(str::to_owned);
    }
}

/// Takes connections for good; those that have proven themselves come out of `runs`.
pub async fn listen(listener: TcpListener, door: Door, served: Served, runs: mpsc::Sender<(String, Link)>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of files, mostly: others may be closed by then.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&strangers).try_acquire_owned() else {
            continue;
        };
        let (door, served, runs) = (door.clone(), served.clone(), runs.clone());
        tokio::spawn(async move {
            let greeted = tokio::time::timeout(2 * handshake::LIMIT, greet(stream, peer, &door, &served)).await;
            drop(permit);
            match greeted {
                Ok(Ok(run)) => {
                    // Where nobody takes it the agent is about to end.
                    let _ = runs.send(run).await;
                }
                Ok(Err(error)) => eprintln!("{peer}: not let in: {error}"),
                Err(_) => eprintln!("{peer}: not let in: it took too long to say who it is"),
            }
        });
    }
}

async fn greet(stream: TcpStream, peer: SocketAddr, door: &Door, served: &Served) -> Result<(String, Link), LinkError> {
    let broken = |error| LinkError::from(super::frame::FrameError::Io(error));
    stream.set_nodelay(true).map_err(broken)?;
    let name = format!("run at {peer}");
    let mut link = match &door.tls {
        None => {
            let (reader, writer) = stream.into_split();
            Link::new(name, peer.ip().is_loopback(), Box::new(reader), Box::new(writer))
        }
        Some(tls) => {
            let stream = tls.accept(stream).await.map_err(broken)?;
            let (reader, writer) = tokio::io::split(stream);
            Link::new(name, true, Box::new(reader), Box::new(writer))
        }
    };
    let run = handshake::receive(&mut link, door.token.as_ref(), |run| served.admit(run)).await?;
    Ok((run, link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_guarded_agent_is_open_to_other_hosts() {
        let open = Door::default();
        open.check("127.0.0.1:7000".parse().unwrap()).unwrap();
        open.check("[::1]:7000".parse().unwrap()).unwrap();
        for listen in ["0.0.0.0:7000", "10.0.0.1:7000", "[::]:7000"] {
            let refused = open.check(listen.parse().unwrap()).unwrap_err();
            assert!(
                refused.contains("--token-env") && refused.contains("--client-ca"),
                "{refused}"
            );
            let guarded = Door {
                token: Some(Token::new("0123456789abcdef").unwrap()),
                ..Door::default()
            };
            guarded.check(listen.parse().unwrap()).unwrap();
        }
    }

    #[test]
    fn one_run_at_a_time_and_the_same_again() {
        let served = Served::default();
        served.admit("a").unwrap();
        served.admit("a").unwrap();
        assert!(served.admit("b").unwrap_err().contains("another run"));
        served.set(None);
        served.admit("b").unwrap();
    }
}
