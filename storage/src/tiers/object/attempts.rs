//! Tally of the HTTP requests of a range. In: requests marked with a tally, and their replies. Out: the number of
//! requests sent, and the wait that the server asked for. Misses requests that reqwest resends because a pooled
//! connection closed before they were sent.

use super::xml;
use crate::ReadCost;
use crate::unreported::UnreportedCost;
use async_trait::async_trait;
use bytes::BytesMut;
use futures::StreamExt;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Maximum size of a reply other than object data. A page of a listing has 1,000 keys of at most 1,024 bytes, up to
/// three times as long when escaped.
const MAX_REPLY_BYTES: usize = 16 << 20;
/// Maximum bytes read from an error's body.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// Tally carried by the requests of a range.
pub(super) type Attempts = Arc<Mutex<RequestTally>>;

/// Counts of a range. If dropped before a read has reported them, they are added to the unreported cost.
#[derive(Debug, Default)]
pub(super) struct RequestTally {
    pub(super) unreported: Option<Arc<UnreportedCost>>,
    /// True if the read itself reports the counts.
    pub(super) is_reported: bool,
    /// Requests sent.
    pub(super) requests: u32,
    /// Hedged requests, included in `requests`.
    pub(super) hedges: u32,
    /// Bytes received, and those requested by requests whose reply was not used.
    pub(super) wire_bytes: u64,
    /// Wait that the server asked for, until it is taken.
    pub(super) retry_after: Option<Duration>,
}

impl Drop for RequestTally {
    fn drop(&mut self) {
        if self.requests == 0 || self.is_reported {
            return;
        }
        if let Some(unreported) = &self.unreported {
            unreported.add(&ReadCost {
                requests: self.requests,
                retries: self.requests.saturating_sub(1 + self.hedges),
                hedges: self.hedges,
                wire_bytes: self.wire_bytes,
                ..ReadCost::default()
            });
        }
    }
}

/// Wait that the server asks for because of overload.
fn retry_after_of(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let is_load = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    let value = headers.get(RETRY_AFTER).filter(|_| is_load)?;
    retry_after(value.to_str().ok()?, SystemTime::now())
}

/// Parses `Retry-After`: seconds, or a date (RFC 9110, 10.2.3). `None` for anything else.
fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

/// Gives all callers the same counting HTTP client, so that they share its connections, and another client to callers
/// that may use plain HTTP.
#[derive(Debug, Clone)]
pub(super) struct CountingConnector {
    client: HttpClient,
    plain: HttpClient,
}

impl CountingConnector {
    pub(super) fn new(client: reqwest::Client, plain: reqwest::Client) -> Self {
        let counting = |client| HttpClient::new(CountingService(HttpClient::new(client)));
        Self {
            client: counting(client),
            plain: counting(plain),
        }
    }
}

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // True for metadata servers and other sources of credentials that only this machine reaches.
        let may_be_plain = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let client = if may_be_plain { &self.plain } else { &self.client };
        Ok(client.clone())
    }
}

#[derive(Debug)]
struct CountingService(HttpClient);

#[async_trait]
impl HttpService for CountingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let attempts = request.extensions().get::<Attempts>().cloned();
        if let Some(attempts) = &attempts {
            attempts.lock().requests += 1;
        }
        let response = self.0.execute(request).await?;
        let status = response.status();
        if let Some((attempts, wait)) = attempts.as_ref().zip(retry_after_of(status, response.headers())) {
            attempts.lock().retry_after = Some(wait);
        }
        // Object data is counted as it is received; other replies are received whole.
        match (status.is_success(), &attempts) {
            (true, Some(_)) => Ok(response),
            (true, None) => receive_body(response, MAX_REPLY_BYTES, true).await,
            (false, _) => receive_body(response, MAX_ERROR_BYTES, false).await,
        }
    }
}

/// Receives a reply's body up to `limit`. A longer body is refused, or truncated if it is only an error text.
async fn receive_body(response: HttpResponse, limit: usize, all: bool) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    let mut received = BytesMut::new();
    let mut chunks = body.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        let room = limit - received.len();
        if chunk.len() > room {
            if all {
                let detail = format!("reply exceeds {limit} bytes");
                return Err(HttpError::new(HttpErrorKind::Decode, io::Error::other(detail)));
            }
            received.extend_from_slice(&chunk[..room]);
            break;
        }
        received.extend_from_slice(&chunk);
    }
    let body = if all {
        xml::without_invalid_keys(received.freeze())
    } else {
        String::from_utf8_lossy(&received).into_owned().into()
    };
    Ok(HttpResponse::from_parts(parts, body.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wait_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let wait = |text| retry_after(text, now);
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait(" 0 "), Some(Duration::ZERO));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:07 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        for neither in ["", "-1", "1.5", "soon"] {
            assert_eq!(wait(neither), None, "{neither}");
        }
    }

    #[test]
    fn only_refusals_for_load_say_when_to_come_back() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, "7".parse().unwrap())]);
        let seen = |status: u16, headers: &HeaderMap| retry_after_of(status.try_into().unwrap(), headers);
        for (status, want) in [(503, Some(7)), (429, Some(7)), (500, None), (200, None)] {
            assert_eq!(seen(status, &headers), want.map(Duration::from_secs), "{status}");
        }
        assert_eq!(seen(503, &HeaderMap::new()), None);
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_passed_over(text in ".{0,40}") {
            let _ = retry_after(&text, SystemTime::now());
        }
    }
}
