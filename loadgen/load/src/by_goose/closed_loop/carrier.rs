//! Transport of a closed loop's requests inside goose's users: goose's client for HTTP, the connections of [`crate::grpc`] for
//! gRPC, which goose's client does not speak. In: a route, bodies. Out: replies, read to their last byte. Reads no clock.

use crate::by_goose::client::ServerClient;
use crate::by_goose::send::{Sent, send};
use crate::driver::{DriverError, HttpRoute, Route};
use crate::grpc::Connections;
use crate::payload::Body;
use crate::reply::Limit;
use goose::goose::GooseUser;
use reqwest::header::HeaderMap;
use reqwest::{Request, Url};
use std::sync::Arc;
use std::time::Duration;

/// Prepared [`Route`].
pub(super) enum Carrier {
    Http(Box<Http>),
    Grpc(Arc<Connections>, Duration),
}

/// Route over HTTP, with the parts common to all requests.
pub(super) struct Http {
    client: ServerClient,
    url: Url,
    headers: HeaderMap,
    route: HttpRoute,
}

impl Carrier {
    pub(super) fn new(route: &Route, timeout: Duration) -> Result<Self, DriverError> {
        let route = match route {
            Route::Grpc(connections) => return Ok(Self::Grpc(Arc::clone(connections), timeout)),
            Route::Http(route) => route.clone(),
        };
        let client = ServerClient::new(route.endpoint(), timeout)?;
        Ok(Self::Http(Box::new(Http {
            url: client.url(route.path())?,
            client,
            headers: route.endpoint().request_headers(),
            route,
        })))
    }

    /// Prepares a user's first request: sets the step's client, or opens a connection.
    pub(super) async fn begin(&self, user: &mut GooseUser) {
        match self {
            Self::Http(http) => user.client = http.client.client.clone(),
            Self::Grpc(connections, _) => connections.warm().await,
        }
    }

    pub(super) async fn send(&self, user: &mut GooseUser, body: &Body, limit: &Limit) -> Sent {
        match self {
            Self::Http(http) => {
                let mut request = Request::new(http.route.method().clone(), http.url.clone());
                request.headers_mut().clone_from(&http.headers);
                request.headers_mut().extend(http.route.headers(body));
                *request.body_mut() = Some(body.bytes.clone().into());
                send(user, "infer", request, http.route.success().cloned(), limit).await
            }
            Self::Grpc(connections, timeout) => {
                Sent::by_grpc(connections.call_within(body.bytes.clone(), limit, *timeout).await)
            }
        }
    }
}
