//! Authentication between a run and an agent. In: a connection, and a token if there is one. Out: proof that both sides know
//! it, or a refusal.
//!
//! Each side sends a nonce and receives an HMAC-SHA-256 (RFC 2104) of both nonces under the token. The HMAC includes
//! the role, so that an answer works neither for the other role nor twice. The token itself is never sent. Later messages are
//! not protected: that takes TLS.

use crate::link::{Link, LinkError};
use crate::message::{MAX_TO_RUN, MAX_TO_WORKER, Nonce, PROTOCOL, Proof, ToRun, ToWorker, printable};
use anyhow::{Result, anyhow, bail};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;
use std::time::Duration;

/// Time limit of the handshake.
pub const LIMIT: Duration = Duration::from_secs(10);
/// Minimum length of a token: brute force finds shorter ones from one recorded handshake.
const SHORTEST_TOKEN: usize = 16;

/// Shared secret. Never printed.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Token {
    /// Creates a token from a text.
    ///
    /// # Errors
    /// A text that is too short to be safe.
    pub fn new(text: &str) -> Result<Self> {
        if text.len() < SHORTEST_TOKEN {
            bail!(
                "the agents' token is shorter than {SHORTEST_TOKEN} characters; create one with `openssl rand -hex 32`"
            );
        }
        Ok(Self(text.as_bytes().to_vec()))
    }

    fn mac(&self, side: &str, agent: &Nonce, run: &Nonce) -> Hmac<Sha256> {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            unreachable!("an HMAC takes keys of any length");
        };
        for part in [b"tierlab agent", side.as_bytes(), agent, run] {
            mac.update(part);
            mac.update(&[0]);
        }
        mac
    }

    fn proof(&self, side: &str, agent: &Nonce, run: &Nonce) -> Proof {
        self.mac(side, agent, run).finalize().into_bytes().into()
    }

    fn is_proven(&self, side: &str, agent: &Nonce, run: &Nonce, proof: Option<Proof>) -> bool {
        // Takes constant time.
        proof.is_some_and(|proof| self.mac(side, agent, run).verify_slice(&proof).is_ok())
    }
}

/// Performs the side of an agent of `program`. Returns the name of the run, once `admit` has accepted it, and the link to it.
///
/// # Errors
/// Token or build differs, a message is invalid, or `admit` refused; the run has been notified.
pub async fn receive(
    mut link: Link,
    token: Option<&Token>,
    program: &str,
    admit: impl FnOnce(&str) -> Result<()>,
) -> Result<(String, Link), LinkError> {
    let own_nonce: Nonce = rand::random();
    link.send(&ToRun::<()>::Challenge {
        protocol: PROTOCOL,
        program: program.to_owned(),
        nonce: own_nonce,
        token: token.is_some(),
    })
    .await?;
    let ToWorker::Hello {
        protocol,
        run,
        nonce,
        proof,
    } = link.order::<()>(LIMIT).await?
    else {
        return Err(LinkError::Unexpected("Hello"));
    };
    let admitted = match token {
        Some(token) if !token.is_proven("run", &own_nonce, &nonce, proof) => Err(anyhow!(
            "the token differs from the agent's: pass the agent's token (--agents-token-env, --agents-token-file)"
        )),
        _ if protocol != PROTOCOL => Err(anyhow!(
            "the agent uses protocol version {PROTOCOL}, the run version {protocol}: install the same build"
        )),
        _ => admit(&run),
    };
    if let Err(reason) = admitted.map_err(|reason| reason.to_string()) {
        link.send(&ToRun::<()>::Failed(reason.clone())).await?;
        return Err(LinkError::Reported(reason));
    }
    let proof = token.map(|token| token.proof("agent", &own_nonce, &nonce));
    link.send(&ToRun::<()>::Welcome(proof)).await?;
    Ok((run, link.admitted(MAX_TO_WORKER)))
}

/// Performs the side of a run of `program`. Returns the link to the agent.
///
/// # Errors
/// The agent refuses, belongs to another program, or does not know the token.
pub async fn introduce(mut link: Link, token: Option<&Token>, program: &str, run: &str) -> Result<Link, LinkError> {
    let ToRun::Challenge {
        protocol,
        program: agent_program,
        nonce,
        token: requires_token,
    } = link.answer::<()>(LIMIT).await?
    else {
        return Err(LinkError::Unexpected("Challenge"));
    };
    let refusal = if protocol != PROTOCOL {
        Some(format!(
            "it uses protocol version {protocol}, this run version {PROTOCOL}: install the same build"
        ))
    } else if agent_program != program {
        let agent_program = printable(&agent_program);
        Some(format!(
            "it is an agent of `{agent_program}`: start one with `{program} agent`"
        ))
    } else if requires_token && token.is_none() {
        Some("it requires a token: pass --agents-token-env NAME or --agents-token-file FILE".to_owned())
    } else {
        None
    };
    if let Some(reason) = refusal {
        return Err(LinkError::Reported(reason));
    }
    let own_nonce: Nonce = rand::random();
    link.send(&ToWorker::<()>::Hello {
        protocol: PROTOCOL,
        run: run.to_owned(),
        nonce: own_nonce,
        proof: token.map(|token| token.proof("run", &nonce, &own_nonce)),
    })
    .await?;
    let ToRun::Welcome(proof) = link.answer::<()>(LIMIT).await? else {
        return Err(LinkError::Unexpected("Welcome"));
    };
    match token {
        Some(token) if !token.is_proven("agent", &nonce, &own_nonce, proof) => Err(LinkError::Reported(
            "it does not know the token: check the agent's address and token".to_owned(),
        )),
        _ => Ok(link.admitted(MAX_TO_RUN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    /// Performs both sides of one handshake.
    fn handshake(agent: Option<&Token>, run: Option<&Token>) -> (Result<String>, Result<()>) {
        handshake_of("p", agent, run)
    }

    fn handshake_of(program: &str, agent: Option<&Token>, run: Option<&Token>) -> (Result<String>, Result<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (a, b) = tokio::io::duplex(4096);
            let link = |stream| Link::new("peer".into(), true, stream);
            let (received, introduced) = tokio::join!(
                receive(link(a), agent, "p", |_| Ok(())),
                introduce(link(b), run, program, "r1")
            );
            (
                received.map(|(run, _)| run).map_err(anyhow::Error::from),
                introduced.map(|_| ()).map_err(anyhow::Error::from),
            )
        })
    }

    #[test]
    fn the_same_token_lets_in_and_no_other() {
        let (right, wrong) = (token("0123456789abcdef"), token("0123456789abcdeF"));
        let (received, introduced) = handshake(Some(&right), Some(&right));
        assert_eq!(received.unwrap(), "r1");
        introduced.unwrap();
        let (received, introduced) = handshake(Some(&right), Some(&wrong));
        assert!(received.unwrap_err().to_string().contains("differs from the agent's"));
        assert!(introduced.unwrap_err().to_string().contains("differs from the agent's"));
        let (_, introduced) = handshake(Some(&right), None);
        assert!(introduced.unwrap_err().to_string().contains("requires a token"));
        // An agent that accepts everyone does not share the token.
        let (_, introduced) = handshake(None, Some(&right));
        assert!(introduced.unwrap_err().to_string().contains("does not know the token"));
        handshake(None, None).1.unwrap();
        let (_, introduced) = handshake_of("q", Some(&right), Some(&right));
        assert!(introduced.unwrap_err().to_string().contains("agent of `p`"));
    }

    #[test]
    fn a_proof_serves_one_side_and_one_handshake() {
        let token = token("0123456789abcdef");
        let [a, b, c] = [[1; 16], [2; 16], [3; 16]];
        let proof = Some(token.proof("run", &a, &b));
        assert!(token.is_proven("run", &a, &b, proof));
        for (side, a, b) in [("agent", a, b), ("run", b, a), ("run", a, c)] {
            assert!(!token.is_proven(side, &a, &b, proof), "{side} {a:?} {b:?}");
        }
        assert!(!token.is_proven("run", &a, &b, None) && !token.is_proven("run", &a, &b, Some([0; 32])));
        assert!(Token::new("short").unwrap_err().to_string().contains("openssl"));
        assert!(!format!("{token:?}").contains("0123"));
    }
}
