//! One request of a goose user, whose reply is read to its last byte. In: a request. Out: the reply, and the time of
//! goose's own clock. Knows nothing of schedules or of request contents.

use crate::custom::Success;
use crate::driver::{DriverError, HttpReply, Reply};
use crate::endpoint::Endpoint;
use crate::grpc::GrpcReply;
use crate::reply::{self, BodyError, Limit, NoReply};
use goose::goose::{GooseMethod, GooseRequest, GooseUser};
use reqwest::{Client, Method, Request, RequestBuilder, Url};
use std::net::ToSocketAddrs as _;
use std::sync::Arc;
use std::time::Duration;
use tierlab_analysis::record::Failure;

/// Result of a request.
pub(crate) struct Sent {
    /// Complete reply.
    pub(crate) reply: Result<Reply, NoReply>,
    /// HTTP status.
    pub(crate) status: Option<u16>,
    /// Time by goose's own clock, up to the reply's headers, in microseconds; `None` if goose did not send.
    pub(crate) goose_us: Option<u64>,
}

impl Sent {
    pub(crate) const fn failed(missing: NoReply) -> Self {
        Self {
            reply: Err(missing),
            status: None,
            goose_us: None,
        }
    }

    /// Result of a call by [`crate::grpc`], because goose's client does not speak gRPC.
    pub(crate) fn by_grpc(reply: Result<GrpcReply, NoReply>) -> Self {
        Self {
            reply: reply.map(Reply::Grpc),
            status: None,
            goose_us: None,
        }
    }
}

/// Sends a request by goose and reads the reply, to which the rule of success belongs, to its last byte.
pub(crate) async fn send(
    user: &mut GooseUser,
    name: &str,
    request: Request,
    success: Option<Arc<Success>>,
    limit: &Limit,
) -> Sent {
    let url = request.url().to_string();
    let request = GooseRequest::builder()
        .method(method(request.method()))
        .path(url.as_str())
        .name(name)
        .set_request_builder(RequestBuilder::from_parts(user.client.clone(), request))
        .build();
    let answered = match user.request(request).await {
        Ok(answered) => answered,
        Err(error) => {
            return Sent::failed(NoReply {
                failure: Failure::Broken,
                says: Some(format!("goose: {error}")),
            });
        }
    };
    let goose_us = Some(answered.request.response_time_micros());
    let response = match answered.response {
        Ok(response) => response,
        Err(error) => {
            return Sent {
                goose_us,
                ..Sent::failed(failure(&error).into())
            };
        }
    };
    let (status, headers) = (response.status(), response.headers().clone());
    let reply = match reply::read(reqwest::Body::from(response), limit).await {
        Ok(body) => Ok(Reply::Http(HttpReply::new(status, headers, body, success))),
        Err(BodyError::TooLarge(what)) => Err(what.into()),
        Err(BodyError::Lost(error)) => Err(failure(&error).into()),
    };
    Sent {
        status: reply.is_ok().then_some(status.as_u16()),
        reply,
        goose_us,
    }
}

/// goose's name of a method; plans have no others.
fn method(method: &Method) -> GooseMethod {
    match *method {
        Method::DELETE => GooseMethod::Delete,
        Method::HEAD => GooseMethod::Head,
        Method::PATCH => GooseMethod::Patch,
        Method::POST => GooseMethod::Post,
        Method::PUT => GooseMethod::Put,
        _ => GooseMethod::Get,
    }
}

fn failure(error: &reqwest::Error) -> Failure {
    if error.is_timeout() {
        Failure::Timeout
    } else if error.is_connect() {
        Failure::Connect
    } else {
        Failure::Broken
    }
}

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
            .redirect(reqwest::redirect::Policy::none());
        if let Some(config) = endpoint.tls_config() {
            builder = builder.tls_backend_preconfigured(config.clone());
        }
        let address = endpoint.address();
        // The certificate is checked against the address's name, so that name must resolve to the server.
        if let Some(name) = endpoint.tls_name().filter(|name| *name != address.host) {
            let found = (address.host.as_str(), address.port).to_socket_addrs();
            let found = found.map_err(|error| DriverError::Client(format!("{}: {error}", address.host)))?;
            builder = builder.resolve_to_addrs(&name, &found.collect::<Vec<_>>());
        }
        Ok(Self {
            origin: origin(endpoint)?,
            client: builder
                .build()
                .map_err(|error| DriverError::Client(error.to_string()))?,
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
    let address = endpoint.address();
    let host = match endpoint.tls_name().filter(|name| *name != address.host) {
        Some(name) if name.parse::<std::net::IpAddr>().is_ok() => {
            return Err(DriverError::Carried(format!(
                "goose's client, which runs closed loops and journeys, connects to the address that the certificate names, and \
                 `target.host` is the IP address {name}: give {}://{name}:{} as the server's address, or measure it in an open loop \
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
        let endpoint = Endpoint::new(url, &spec.open().unwrap()).map_err(DriverError::Client)?;
        origin(&endpoint)
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
