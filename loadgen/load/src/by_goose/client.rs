//! Client of goose's users. In: a server. Out: a client with its TLS, and whole addresses.

use crate::driver::DriverError;
use crate::endpoint::Endpoint;
use reqwest::{Client, Url};
use std::net::ToSocketAddrs as _;
use std::time::Duration;

/// Client shared by all users, with a connection for each request in flight: no proxy, no redirects to other servers,
/// and a limit from send to last byte.
pub(crate) struct ServerClient {
    pub(crate) client: Client,
    /// Scheme, name and port of requests.
    origin: String,
}

impl ServerClient {
    /// Creates a client for a server.
    ///
    /// # Errors
    /// A server that goose's client cannot reach: a certificate for an IP address other than the one connected to.
    pub(crate) fn new(endpoint: &Endpoint, timeout: Duration) -> Result<Self, DriverError> {
        let agent = concat!("tierlab-loadgen/", env!("CARGO_PKG_VERSION"));
        let mut builder = Client::builder()
            .user_agent(agent)
            .timeout(timeout)
            .no_proxy()
            // Open loops do not request it either; goose's own features would.
            .no_gzip()
            .redirect(reqwest::redirect::Policy::none());
        if let Some(config) = endpoint.tls_config() {
            builder = builder.tls_backend_preconfigured(config.clone());
        }
        let address = &endpoint.address;
        // The certificate is checked against the address's name, so that name must resolve to the server.
        if let Some(name) = endpoint.tls_name().filter(|name| *name != address.host) {
            let found = (address.host.as_str(), address.port).to_socket_addrs();
            let found = found.map_err(|error| DriverError::Client(format!("{}: {error}", address.host)))?;
            builder = builder.resolve_to_addrs(&name, &found.collect::<Vec<_>>());
        }
        let client = builder.build();
        Ok(Self {
            origin: origin(endpoint)?,
            client: client.map_err(|error| DriverError::Client(error.to_string()))?,
        })
    }

    /// Returns the URL of a path that has the server's prefix.
    ///
    /// # Errors
    /// An invalid path.
    pub(crate) fn url(&self, path: &str) -> Result<Url, DriverError> {
        let url = format!("{}{path}", self.origin);
        url.parse()
            .map_err(|error| DriverError::Client(format!("{url}: {error}")))
    }
}

/// Returns the origin that the client sends to. With TLS its name must be the certificate's.
fn origin(endpoint: &Endpoint) -> Result<String, DriverError> {
    let address = &endpoint.address;
    let host = match endpoint.tls_name().filter(|name| *name != address.host) {
        Some(name) if name.parse::<std::net::IpAddr>().is_ok() => {
            return Err(DriverError::UnsupportedByGoose(format!(
                "`target.host` is the IP address {name}, and goose's client (closed loops and journeys) connects to the address \
                 that the certificate names: use {}://{name}:{} as the server's address, or measure it in an open loop \
                 (`[[load]]` with `rates`)",
                address.scheme(),
                address.port
            )));
        }
        Some(name) => name,
        None if address.host.contains(':') => format!("[{}]", address.host),
        None => address.host.clone(),
    };
    Ok(format!("{}://{host}:{}", address.scheme(), address.port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::AccessSpec;

    fn origin_of(url: &str, host: Option<&str>) -> Result<String, DriverError> {
        let spec = AccessSpec {
            host: host.map(str::to_owned),
            ..AccessSpec::default()
        };
        let endpoint = Endpoint::new(url, &spec.open().unwrap());
        origin(&endpoint.map_err(|error| DriverError::Client(error.to_string()))?)
    }

    #[test]
    fn a_server_is_called_by_the_name_in_its_certificate_over_tls_alone() {
        assert_eq!(origin_of("http://[::1]:8000/p", None).unwrap(), "http://[::1]:8000");
        assert_eq!(origin_of("http://h:1/p", Some("other")).unwrap(), "http://h:1");
        // A system without roots supports TLS only with a given CA.
        if let Ok(named) = origin_of("https://127.0.0.1:8443/p", Some("models.internal:9")) {
            assert_eq!(named, "https://models.internal:8443");
            let refused = origin_of("https://127.0.0.1:8443", Some("10.0.0.1")).unwrap_err();
            assert!(refused.to_string().contains("https://10.0.0.1:8443"), "{refused}");
        }
    }
}
