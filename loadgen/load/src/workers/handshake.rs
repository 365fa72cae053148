//! Authentication between a run and an agent. In: a connection, and a token if there is one. Out: proof that both sides know
//! it, or a refusal.
//!
//! Each side sends a nonce and receives an HMAC-SHA-256 (RFC 2104) of both nonces under the token. The name of the side is part
//! of it, so that no answer serves for the other side or a second time. The token itself is never sent. Later messages are not
//! protected by it: that takes TLS.

use super::link::{Link, LinkError};
use super::message::{Challenge, Hello, PROTOCOL, Refused, Welcome};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;
use std::time::Duration;

/// Time limit of the handshake.
pub const LIMIT: Duration = Duration::from_secs(10);
/// Minimum length of a token: shorter tokens can be found by brute force, from one recorded handshake.
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
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() < SHORTEST_TOKEN {
            return Err(format!(
                "the agents' token is shorter than {SHORTEST_TOKEN} characters; make one with `openssl rand -hex 32`"
            ));
        }
        Ok(Self(text.as_bytes().to_vec()))
    }

    fn mac(&self, side: &str, agent_nonce: &str, run_nonce: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        for part in ["tierlab agent", side, agent_nonce, run_nonce] {
            mac.update(part.as_bytes());
            mac.update(&[0]);
        }
        Some(mac)
    }

    fn proof(&self, side: &str, agent_nonce: &str, run_nonce: &str) -> Option<String> {
        let mac = self.mac(side, agent_nonce, run_nonce)?;
        Some(hex(mac.finalize().into_bytes().as_slice()))
    }

    fn is_proven(&self, side: &str, agent_nonce: &str, run_nonce: &str, proof: Option<&str>) -> bool {
        let mac = self.mac(side, agent_nonce, run_nonce);
        let proof = proof.and_then(unhex);
        // In constant time.
        mac.zip(proof)
            .is_some_and(|(mac, proof)| mac.verify_slice(&proof).is_ok())
    }
}

/// A number used once.
#[must_use]
pub fn nonce() -> String {
    hex(&rand::random::<[u8; 16]>())
}

/// Performs an agent's side. Returns the name of the run, once `admit` has accepted it.
///
/// # Errors
/// Another token or build, an invalid message, or `admit`'s reason; the other side has been notified.
pub async fn receive(
    link: &mut Link,
    token: Option<&Token>,
    admit: impl FnOnce(&str) -> Result<(), String>,
) -> Result<String, LinkError> {
    let own = nonce();
    link.say(&Challenge {
        protocol: PROTOCOL,
        nonce: own.clone(),
        token: token.is_some(),
    })
    .await?;
    let hello: Hello = link.hear(LIMIT).await?;
    let known = match token {
        Some(token) if !token.is_proven("run", &own, &hello.nonce, hello.proof.as_deref()) => Err(
            "the token is not the agent's: give the same to both (--agents-token-env, --agents-token-file)".to_owned(),
        ),
        _ if hello.protocol != PROTOCOL => Err(format!(
            "the agent speaks version {PROTOCOL} of the protocol and the run version {}: install the same build",
            hello.protocol
        )),
        _ => admit(&hello.run),
    };
    if let Err(why) = known {
        link.say(&Refused { why: why.clone() }).await?;
        return Err(LinkError::Says(why));
    }
    let proof = token.and_then(|token| token.proof("agent", &own, &hello.nonce));
    link.say(&Welcome { proof }).await?;
    Ok(hello.run)
}

/// Performs a run's side.
///
/// # Errors
/// An agent that refuses, is of another kind, or does not know the token.
pub async fn introduce(link: &mut Link, token: Option<&Token>, run: &str) -> Result<(), LinkError> {
    let challenge: Challenge = link.hear(LIMIT).await?;
    if challenge.protocol != PROTOCOL {
        return Err(LinkError::Says(format!(
            "it speaks version {} of the protocol and this run version {PROTOCOL}: install the same build",
            challenge.protocol
        )));
    }
    if challenge.token && token.is_none() {
        return Err(LinkError::Says(
            "it wants a token: name where it is by --agents-token-env NAME or --agents-token-file FILE".to_owned(),
        ));
    }
    let own = nonce();
    let proof = token.and_then(|token| token.proof("run", &challenge.nonce, &own));
    link.say(&Hello {
        protocol: PROTOCOL,
        run: run.to_owned(),
        nonce: own.clone(),
        proof,
    })
    .await?;
    let welcome: Welcome = link.hear(LIMIT).await?;
    match token {
        Some(token) if !token.is_proven("agent", &challenge.nonce, &own, welcome.proof.as_deref()) => Err(
            LinkError::Says("it does not know the token: it is not the agent that it should be".to_owned()),
        ),
        _ => Ok(()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    pairs
        .remainder()
        .is_empty()
        .then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    /// Performs both sides of one handshake.
    fn handshake(agent: Option<&Token>, run: Option<&Token>) -> (Result<String, String>, Result<(), String>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (a, b) = tokio::io::duplex(4096);
            let link = |stream: tokio::io::DuplexStream| {
                let (reader, writer) = tokio::io::split(stream);
                Link::new("peer".into(), true, Box::new(reader), Box::new(writer))
            };
            let (mut a, mut b) = (link(a), link(b));
            let (received, introduced) = tokio::join!(
                async {
                    let ended = receive(&mut a, agent, |_| Ok(())).await;
                    drop(a);
                    ended
                },
                async {
                    let ended = introduce(&mut b, run, "r1").await;
                    drop(b);
                    ended
                }
            );
            (
                received.map_err(|e| e.to_string()),
                introduced.map_err(|e| e.to_string()),
            )
        })
    }

    #[test]
    fn the_same_token_lets_in_and_no_other() {
        let (right, wrong) = (token("0123456789abcdef"), token("0123456789abcdeF"));
        let (received, introduced) = handshake(Some(&right), Some(&right));
        assert_eq!((received, introduced), (Ok("r1".to_owned()), Ok(())));
        let (received, introduced) = handshake(Some(&right), Some(&wrong));
        assert!(received.unwrap_err().contains("not the agent's"));
        assert!(introduced.unwrap_err().contains("not the agent's"));
        let (_, introduced) = handshake(Some(&right), None);
        assert!(introduced.unwrap_err().contains("wants a token"));
        // An agent that accepts everyone does not share the token.
        let (_, introduced) = handshake(None, Some(&right));
        assert!(introduced.unwrap_err().contains("does not know the token"));
        assert_eq!(handshake(None, None).1, Ok(()));
    }

    #[test]
    fn a_proof_serves_one_side_and_one_handshake() {
        let token = token("0123456789abcdef");
        let proof = token.proof("run", "a", "b").unwrap();
        assert!(token.is_proven("run", "a", "b", Some(&proof)));
        for (side, a, b) in [
            ("agent", "a", "b"),
            ("run", "b", "a"),
            ("run", "a", "c"),
            ("run", "ab", ""),
        ] {
            assert!(!token.is_proven(side, a, b, Some(&proof)), "{side} {a} {b}");
        }
        assert!(!token.is_proven("run", "a", "b", None) && !token.is_proven("run", "a", "b", Some("zz")));
        assert!(Token::new("short").unwrap_err().contains("openssl"));
        assert!(!format!("{token:?}").contains("0123"));
    }
}
