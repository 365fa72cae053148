//! `[fleet]`: how many servers share a tier. In: TOML. Out: numbers of servers, and what an emulated service grants all of them together.

use crate::plan::check::within;
use serde::Deserialize;

/// Servers of a fleet on one machine.
const MOST_SERVERS: u32 = 64;

/// `[fleet]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plan) struct RawFleet {
    /// Numbers of servers: every variant is measured with each of them.
    servers: Vec<u32>,
    /// Requests per second that an emulated service grants all servers together, in the place of its profile's.
    #[serde(default)]
    requests_per_s: Option<u32>,
    /// Likewise bytes per second.
    #[serde(default)]
    bytes_per_s: Option<u64>,
}

impl RawFleet {
    /// The numbers of servers.
    pub(in crate::plan) fn sizes(&self) -> Result<&[u32], String> {
        if self.servers.is_empty() {
            return Err("`fleet.servers` is an empty list".into());
        }
        for (i, &servers) in self.servers.iter().enumerate() {
            within("fleet.servers", f64::from(servers), 1.0, f64::from(MOST_SERVERS))?;
            if self.servers[..i].contains(&servers) {
                return Err(format!("`fleet.servers`: {servers} stands twice"));
            }
        }
        Ok(&self.servers)
    }

    /// Keys of an emulated service that all servers share, as `KEY=VALUE`.
    pub(in crate::plan) fn shared_limits(&self) -> Vec<String> {
        let requests = self.requests_per_s.map(|rate| format!("requests_per_s={rate}"));
        let bytes = self.bytes_per_s.map(|rate| format!("service_bytes_per_s={rate}"));
        requests.into_iter().chain(bytes).collect()
    }
}
