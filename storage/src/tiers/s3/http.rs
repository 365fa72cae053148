//! The HTTP client that both S3 clients share. In: a config. Out: a client that speaks HTTP/1.1 with the endpoint alone:
//! a redirect is followed only to the same scheme, host and port, since the headers of a request hold its session token
//! and its signature. Knows nothing of S3.

use super::config::S3Config;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, Client, Url};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The longest wait for a TCP and TLS connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Idle connections kept beyond `concurrency`, for hedges and for calls other than reads.
const SPARE_CONNECTIONS: usize = 4;
/// Redirects within the endpoint that are followed.
const REDIRECTS: usize = 4;

/// Builds the client; each call may take `limit`. A `local` client resolves every name to this machine.
pub(super) fn client(config: &S3Config, limit: Duration, local: bool) -> Result<Client, String> {
    let idle = usize::try_from(config.concurrency).unwrap_or(usize::MAX);
    let builder = Client::builder()
        .user_agent(concat!("tierlab/", env!("CARGO_PKG_VERSION")))
        .http1_only()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .https_only(!config.allow_http)
        .timeout(limit)
        .connect_timeout(limit.min(CONNECT_LIMIT))
        .pool_max_idle_per_host(idle.saturating_add(SPARE_CONNECTIONS))
        .redirect(Policy::custom(within_the_endpoint))
        .dns_resolver(Resolver { local })
        .tls_certs_merge(certificates(config)?);
    builder.build().map_err(|e| e.to_string())
}

fn certificates(config: &S3Config) -> Result<Vec<Certificate>, String> {
    let Some(file) = &config.ca_file else {
        return Ok(Vec::new());
    };
    let wrong = |why: String| format!("`ca_file` {}: {why}", file.display());
    let pem = std::fs::read(file).map_err(|e| wrong(e.to_string()))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|e| wrong(e.to_string()))?;
    if certificates.is_empty() {
        return Err(wrong("holds no PEM certificate".into()));
    }
    Ok(certificates)
}

fn within_the_endpoint(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let first = attempt.previous().first().map(Url::origin);
    if first == Some(attempt.url().origin()) && attempt.previous().len() <= REDIRECTS {
        attempt.follow()
    } else {
        // The redirect itself is the reply, and becomes an error that names it.
        attempt.stop()
    }
}

/// Resolves names with the system's resolver, in random order, so that connections spread over the addresses of a name.
#[derive(Debug)]
struct Resolver {
    /// Every name is this machine: for names below `localhost`, which are reserved for it (RFC 6761) but which few
    /// resolvers know.
    local: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let local = self.local;
        Box::pin(async move {
            if local {
                let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
                return Ok(Box::new(std::iter::once(here)) as Addrs);
            }
            let mut addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let chance = RandomState::new();
            addresses.sort_by_cached_key(|address| chance.hash_one(address));
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
