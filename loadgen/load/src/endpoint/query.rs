//! One request outside of a step. In: a method, a path and a body. Out: the whole reply, or the reason for its absence.
//! Each request has a connection of its own, follows no redirects, and is bounded in time and length.

use super::stream::{Alpn, ConnectError, Endpoint};
use crate::reply::{self, BodyError, Limit};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::ClientConfig;

/// A single request.
#[derive(Debug, Default)]
pub struct Query<'a> {
    /// HTTP method.
    pub method: Method,
    /// Path and query after the server's prefix.
    pub path: &'a str,
    /// Headers of the body.
    pub headers: HeaderMap,
    /// Request body.
    pub body: Bytes,
}

impl<'a> Query<'a> {
    /// `GET PATH`.
    pub fn get(path: &'a str) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }

    /// `POST PATH` without a body.
    pub fn post(path: &'a str) -> Self {
        Self {
            method: Method::POST,
            ..Self::get(path)
        }
    }
}

/// Complete reply.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Reply headers.
    pub headers: HeaderMap,
    /// Reply body.
    pub body: Bytes,
}

/// Reason for a missing reply, with advice if there is any.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No reply within the time limit.
    #[error("no answer in {} s", .0.as_secs())]
    Timeout(Duration),
    /// The reply exceeded its limit.
    #[error("{0}")]
    TooLarge(String),
    /// Invalid request, or broken connection.
    #[error("{0}")]
    Broken(String),
}

impl Endpoint {
    /// Headers of every request.
    pub fn request_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.insert(HOST, self.authority.clone());
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        let agent = concat!("tierlab-loadgen/", env!("CARGO_PKG_VERSION"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        headers
    }

    /// Sends the request, and reads the whole reply.
    ///
    /// # Errors
    /// A failed or broken connection, a reply beyond the limit, or no reply in time.
    pub async fn send(&self, query: Query<'_>, limit: &Limit, within: Duration) -> Result<Answer, NoAnswer> {
        let answered = tokio::time::timeout(within, self.exchange(query, limit)).await;
        answered.unwrap_or(Err(NoAnswer::Timeout(within)))
    }

    /// Returns the reason for the end of a connection, with a possible cause: the alert of TLS 1.3 about a missing
    /// client certificate arrives after the handshake, and is lost if the end of the connection is noticed first.
    fn ended(&self, error: Option<&hyper::Error>) -> String {
        let has_certificate = |config: &ClientConfig| config.client_auth_cert_resolver.has_certs();
        let message = error.map_or_else(|| "the connection was closed".to_owned(), |error| broken(error));
        let is_explained = error.is_some_and(|error| requires_certificate(&cause(error)));
        if self.tls_config().is_none_or(has_certificate) || is_explained {
            return message;
        }
        format!(
            "{message}; if the server requires a client certificate, pass --cert FILE --key FILE (`target.cert`, \
             `target.key`)"
        )
    }

    async fn exchange(&self, call: Query<'_>, limit: &Limit) -> Result<Answer, NoAnswer> {
        let uri = self.path(call.path).parse::<Uri>();
        let uri = uri.map_err(|_| NoAnswer::Broken("invalid URL path".to_owned()))?;
        let mut request = Request::new(Full::new(call.body));
        *request.method_mut() = call.method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        *headers = self.request_headers();
        headers.extend(call.headers);
        let stream = self.connect(Alpn::Http1).await?;
        let lost = |error: hyper::Error| NoAnswer::Broken(broken(&error));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        // Ends with the reply.
        let mut connection = tokio::spawn(connection);
        let mut response = pin!(sender.send_request(request));
        let response = tokio::select! {
            response = &mut response => response.map_err(Some),
            // A request on an ended connection is neither answered nor refused.
            ended = &mut connection => match tokio::time::timeout(Duration::from_millis(200), &mut response).await {
                Ok(Ok(response)) => Ok(response),
                // Only the connection receives the TLS alert about a refused certificate.
                _ => Err(ended.ok().and_then(Result::err)),
            },
        };
        let (head, body) = match response {
            Ok(response) => response.into_parts(),
            Err(error) => {
                let error = closed(error, &mut connection).await;
                return Err(NoAnswer::Broken(self.ended(error.as_ref())));
            }
        };
        let body = reply::read(body, limit).await.map_err(|cut| match cut {
            BodyError::Lost(error) => lost(error),
            BodyError::TooLarge(what) => NoAnswer::TooLarge(what.to_string()),
        })?;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: body.bytes,
        })
    }
}

/// Returns the reason for a missing reply: that of the connection, or else that of the request; `None` for a connection that
/// ended without an error.
async fn closed(error: Option<hyper::Error>, connection: &mut JoinHandle<hyper::Result<()>>) -> Option<hyper::Error> {
    if connection.is_finished() {
        return error;
    }
    match tokio::time::timeout(Duration::from_millis(200), connection).await {
        Ok(Ok(Err(error))) => Some(error),
        _ => error,
    }
}

/// Describes a broken connection.
pub(crate) fn broken(error: &dyn Error) -> String {
    format!("the connection broke ({})", innermost(error))
}

/// Returns the innermost cause, which is the most specific, with advice if there is any.
pub(crate) fn innermost(error: &dyn Error) -> String {
    let text = cause(error);
    let advice = match requires_certificate(&text) {
        true => "; the server requires a client certificate: pass --cert FILE --key FILE (`target.cert`, `target.key`)",
        false => "",
    };
    text + advice
}

/// Returns the text of the innermost cause.
fn cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// True for the TLS alert about a missing client certificate. HTTP/2 keeps only the text of an error of TLS.
fn requires_certificate(cause: &str) -> bool {
    cause.contains("CertificateRequired") || cause.contains("certificate required")
}
