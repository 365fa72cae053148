//! Counts the HTTP requests that really went out. In: requests marked with a counter. Out: their number, retries
//! included. What reqwest repeats on a pooled connection that closed before the request left is not seen here.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A counter that travels with a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Attempts(Arc<AtomicU32>);

impl Attempts {
    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Hands out one HTTP client that counts, whoever asks, so that all share its connections.
#[derive(Debug, Clone)]
pub(super) struct CountingConnector(HttpClient);

impl CountingConnector {
    pub(super) fn new(options: &ClientOptions) -> object_store::Result<Self> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(Self(HttpClient::new(CountingService { inner })))
    }
}

impl HttpConnector for CountingConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.0.clone())
    }
}

#[derive(Debug)]
struct CountingService {
    inner: HttpClient,
}

#[async_trait]
impl HttpService for CountingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(attempts) = request.extensions().get::<Attempts>() {
            attempts.0.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.execute(request).await
    }
}
