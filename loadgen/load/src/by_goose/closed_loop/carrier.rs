//! Transport of a closed loop's requests inside goose's users: goose's client for HTTP, the connections of [`crate::grpc`] for
//! gRPC, which goose's client does not speak. In: a route, bodies. Out: replies, read to their last byte. Reads no clock.

use crate::by_goose::attack::{Read, method, send};
use crate::by_goose::client::{address, client, origin};
use crate::driver::{DriverError, HttpRoute, Reply, Route};
use crate::grpc::Connections;
use crate::payload::Body;
use crate::reply::{Limit, NoReply};
use goose::goose::{GooseRequest, GooseUser};
use reqwest::header::HeaderMap;
use reqwest::{Client, Url};
use std::sync::Arc;
use std::time::Duration;
use tierlab_analysis::record::Failure;

/// Prepared [`Route`].
pub(super) enum Carrier {
    Http(Box<Http>),
    Grpc(Arc<Connections>, Duration),
}

/// Route over HTTP, with the parts common to all requests.
pub(super) struct Http {
    client: Client,
    origin: Url,
    url: String,
    headers: HeaderMap,
    route: HttpRoute,
}

/// Result of a request.
pub(super) struct Carried {
    /// Complete reply.
    pub(super) reply: Result<Reply, NoReply>,
    /// HTTP status.
    pub(super) status: Option<u16>,
    /// Time by goose's own clock, up to the reply's headers, in microseconds; `None` if goose did not send.
    pub(super) goose_us: Option<u64>,
}

impl Carrier {
    pub(super) fn new(route: &Route, timeout: Duration) -> Result<Self, DriverError> {
        let route = match route {
            Route::Grpc(connections) => return Ok(Self::Grpc(Arc::clone(connections), timeout)),
            Route::Http(route) => route.clone(),
        };
        let origin = origin(route.endpoint())?;
        Ok(Self::Http(Box::new(Http {
            client: client(route.endpoint(), timeout)?,
            url: format!("{}{}", origin.as_str().trim_end_matches('/'), route.path()),
            headers: route.endpoint().request_headers(),
            origin,
            route,
        })))
    }

    /// The server's address, which goose requires.
    ///
    /// # Errors
    /// An invalid URL.
    pub(super) fn origin(&self) -> Result<Url, DriverError> {
        match self {
            Self::Http(http) => Ok(http.origin.clone()),
            Self::Grpc(connections, _) => address(connections.endpoint()),
        }
    }

    /// Prepares a user's first request: sets the step's client, or opens a connection.
    pub(super) async fn begin(&self, user: &mut GooseUser) {
        match self {
            Self::Http(http) => user.client = http.client.clone(),
            Self::Grpc(connections, _) => connections.warm().await,
        }
    }

    pub(super) async fn send(&self, user: &mut GooseUser, body: &Body, limit: &Limit) -> Carried {
        match self {
            Self::Http(http) => http.send(user, body, limit).await,
            Self::Grpc(connections, timeout) => {
                let calling = tokio::time::timeout(*timeout, connections.call(body.bytes.clone(), limit));
                let reply = calling.await.unwrap_or_else(|_| Err(Failure::Timeout.into()));
                Carried {
                    reply: reply.map(Reply::Grpc),
                    status: None,
                    goose_us: None,
                }
            }
        }
    }
}

impl Http {
    async fn send(&self, user: &mut GooseUser, body: &Body, limit: &Limit) -> Carried {
        let builder = user
            .client
            .request(self.route.method().clone(), &self.url)
            .headers(self.headers.clone())
            .headers(self.route.headers(body))
            .body(body.bytes.clone());
        let request = GooseRequest::builder()
            .method(method(self.route.method()))
            .path(self.url.as_str())
            .name("infer")
            .set_request_builder(builder)
            .build();
        let sent = send(user, request, limit).await;
        let whole = |read: Read| self.route.reply(read.status, read.headers, read.body);
        Carried {
            status: sent.reply.as_ref().ok().map(|read| read.status.as_u16()),
            reply: sent.reply.map(whole).map(Reply::Http),
            goose_us: sent.goose_us,
        }
    }
}
