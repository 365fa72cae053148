//! Everything asked of a server outside a step: its model, a checked reply, its metrics.
//!
//! In: an address. Out: typed answers, or an error that names the address and says what to do. Never used while the
//! clock runs.

use super::scrape::Scrape;
use bytes::Bytes;
use prost::Message as _;
use reqwest::{Client, Response, Url};
use std::time::Duration;
use tierlab_analysis::record::{Failure, Outcome};
use tierlab_load::driver::headers;
use tierlab_load::grpc::Connections;
use tierlab_load::payload::Body;
use tierlab_load::redact;
use tierlab_load::reply::{self, BodyError, Expected, Limit, METADATA_BYTES, METRICS_BYTES, NoReply};
use tierlab_protocol::grpc::messages::ModelInferResponse;
use tierlab_protocol::infer::{HEADER_LENGTH, InferReply};
use tierlab_protocol::metadata::{LoadDocument, ModelMetadata};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A server that could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {what}")]
pub struct ControlError {
    /// What was asked for.
    pub url: String,
    /// What happened, and what to do.
    pub what: String,
}

/// Whether an address has more in it than where it leads.
#[must_use]
pub fn carries_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some()
}

/// One server.
#[derive(Debug, Clone)]
pub struct Control {
    base: Url,
    client: Client,
}

impl Control {
    /// A server at `http://HOST:PORT`.
    ///
    /// # Errors
    /// What is no such address.
    pub fn new(url: &str) -> Result<Self, ControlError> {
        let refuse = |what: &str| ControlError {
            url: redact::urls(url),
            what: what.to_owned(),
        };
        let base: Url = url
            .parse()
            .map_err(|_| refuse("no URL; give one as http://127.0.0.1:8000"))?;
        if base.scheme() != "http" || base.host_str().is_none() {
            return Err(refuse("only http://HOST:PORT is measured"));
        }
        if carries_credentials(&base) {
            return Err(refuse(
                "give the server's address without a name, a password or a token: requests carry none, and the address is kept \
                 in the result",
            ));
        }
        if base.path() != "/" {
            return Err(refuse("give the server's address without a path"));
        }
        let client = Client::builder()
            .timeout(TIMEOUT)
            .no_proxy()
            // Another server is not the one that is measured.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| refuse(&error.to_string()))?;
        Ok(Self { base, client })
    }

    /// Its address, `http://HOST:PORT/`.
    #[must_use]
    pub fn base(&self) -> &str {
        self.base.as_str()
    }

    /// Where infer requests are posted.
    #[must_use]
    pub fn infer_url(&self, model: &str) -> Url {
        self.at(&format!("/v2/models/{model}/infer"))
    }

    /// Asks for a model's metadata.
    ///
    /// # Errors
    /// No server, no such model, or an answer that is no metadata.
    pub async fn model(&self, model: &str) -> Result<ModelMetadata, ControlError> {
        let url = self.at(&format!("/v2/models/{model}"));
        let (_, body) = self
            .fetch(self.client.get(url.clone()), &url, &Limit::of(METADATA_BYTES))
            .await?;
        let metadata: ModelMetadata =
            serde_json::from_slice(&body).map_err(|error| refusal(&url, &format!("no model metadata: {error}")))?;
        if metadata.batched.is_some() {
            return Ok(metadata);
        }
        let max_batch_size = self.max_batch_size(model).await;
        Ok(ModelMetadata {
            batched: max_batch_size.map(|rows| rows > 0),
            max_batch_size,
            ..metadata
        })
    }

    /// Rows of a run at most, of a server that says it in its model's configuration as Triton does; none where it has no such
    /// document.
    async fn max_batch_size(&self, model: &str) -> Option<u32> {
        #[derive(serde::Deserialize)]
        struct Config {
            max_batch_size: u32,
        }
        let url = self.at(&format!("/v2/models/{model}/config"));
        let limit = Limit::of(METADATA_BYTES);
        let asked = self.fetch(self.client.get(url.clone()), &url, &limit).await;
        let (_, body) = asked.ok()?;
        let config: Config = serde_json::from_slice(&body).ok()?;
        Some(config.max_batch_size)
    }

    /// Has a model loaded, and says where the time went.
    ///
    /// # Errors
    /// No server, one that does not let itself be told (`repository.control`, `admin.enabled`), or a model that is refused.
    pub async fn load(&self, model: &str) -> Result<LoadDocument, ControlError> {
        let url = self.at(&format!("/v2/repository/models/{model}/load"));
        let (_, body) = self
            .fetch(self.client.post(url.clone()), &url, &Limit::of(METADATA_BYTES))
            .await?;
        serde_json::from_slice(&body).map_err(|error| refusal(&url, &format!("no times of a load: {error}")))
    }

    /// Has a model unloaded.
    ///
    /// # Errors
    /// As [`Control::load`].
    pub async fn unload(&self, model: &str) -> Result<(), ControlError> {
        let url = self.at(&format!("/v2/repository/models/{model}/unload"));
        self.fetch(self.client.post(url.clone()), &url, &Limit::of(METADATA_BYTES))
            .await
            .map(|_| ())
    }

    /// Reads `/metrics`.
    ///
    /// # Errors
    /// No server, no such route, or text that is no exposition.
    pub async fn scrape(&self) -> Result<Scrape, ControlError> {
        let url = self.at("/metrics");
        let (_, body) = self
            .fetch(self.client.get(url.clone()), &url, &Limit::of(METRICS_BYTES))
            .await?;
        Scrape::parse(&String::from_utf8_lossy(&body)).map_err(|error| refusal(&url, &error.to_string()))
    }

    /// Sends one request and reads the whole reply.
    ///
    /// # Errors
    /// No server, an error reply, or a reply that cannot be decoded.
    pub async fn infer(
        &self,
        model: &str,
        body: &Body,
        expected: &Expected,
        limit: &Limit,
    ) -> Result<InferReply, ControlError> {
        let url = self.infer_url(model);
        let request = self
            .client
            .post(url.clone())
            .headers(headers(body))
            .body(body.bytes.clone());
        let (json_len, reply) = self.fetch(request, &url, limit).await?;
        // Before it is decoded: what passes holds no more than was asked for.
        expected
            .check_http(&reply, json_len)
            .map_err(|wrong| refusal(&url, &format!("no infer reply: {wrong}")))?;
        InferReply::decode(&reply, json_len).map_err(|error| refusal(&url, &format!("no infer reply: {error}")))
    }

    async fn fetch(
        &self,
        request: reqwest::RequestBuilder,
        url: &Url,
        limit: &Limit,
    ) -> Result<(Option<usize>, Bytes), ControlError> {
        let response = request.send().await.map_err(|error| unreachable(url, &error))?;
        let status = response.status();
        let json_len = json_len(&response);
        let received = reply::read(reqwest::Body::from(response), limit).await;
        let body = received.map_err(|cut| match cut {
            BodyError::Lost(error) => unreachable(url, &error),
            BodyError::TooLarge(what) => refusal(url, &format!("{what}; that is no answer of an inference server")),
        })?;
        let body = body.bytes;
        if status.is_success() {
            return Ok((json_len, body));
        }
        let said: String = String::from_utf8_lossy(&body).chars().take(500).collect();
        Err(refusal(url, &format!("answered {status}: {said}")))
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(path);
        url
    }
}

/// Sends one framed message and reads the whole reply.
///
/// # Errors
/// No server, another status than OK, or a reply that cannot be decoded.
pub async fn infer_over_grpc(
    connections: &Connections,
    body: Body,
    expected: &Expected,
    limit: &Limit,
) -> Result<InferReply, ControlError> {
    let refuse = |what: String| ControlError {
        url: format!("http://{}", connections.authority()),
        what,
    };
    let calling = tokio::time::timeout(TIMEOUT, connections.call(body.bytes, limit));
    let reply = match calling.await {
        Ok(Ok(reply)) => reply,
        Ok(Err(NoReply { says: Some(says), .. })) => return Err(refuse(says)),
        Ok(Err(NoReply {
            failure: Failure::Connect,
            ..
        })) => return Err(refuse("no connection; does a server speak gRPC there?".into())),
        Ok(Err(NoReply { failure, .. })) => {
            return Err(refuse(format!(
                "no answer over gRPC ({failure}); does a server speak it there?"
            )));
        }
        Err(_) => return Err(refuse(format!("no answer over gRPC in {} s", TIMEOUT.as_secs()))),
    };
    let judged = reply.judge(expected);
    let message = match (judged.outcome, reply.message()) {
        (Outcome::Ok, Some(message)) => message,
        (Outcome::Failed(failure), _) => {
            let says = judged.says.unwrap_or_else(|| reply.said());
            return Err(refuse(format!("answered {failure}: {says}")));
        }
        (Outcome::Ok, None) => return Err(refuse("answered without a message".into())),
    };
    let decoded = ModelInferResponse::decode(message).map_err(|error| error.to_string());
    decoded
        .and_then(|message| InferReply::try_from(message).map_err(|error| error.to_string()))
        .map_err(|error| refuse(format!("no infer reply: {error}")))
}

fn json_len(response: &Response) -> Option<usize> {
    response.headers().get(HEADER_LENGTH)?.to_str().ok()?.parse().ok()
}

fn refusal(url: &Url, what: &str) -> ControlError {
    ControlError {
        url: url.to_string(),
        what: what.to_owned(),
    }
}

fn unreachable(url: &Url, error: &reqwest::Error) -> ControlError {
    // reqwest's own text leaves out why; the innermost cause says it.
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    refusal(url, &format!("no answer ({cause}); is the server running there?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_taken() {
        for bad in ["127.0.0.1:8000", "https://h:1", "http://h:1/v2", "nonsense", ""] {
            assert!(Control::new(bad).is_err(), "{bad}");
        }
        for with in [
            "http://user:S3CRET@h:1",
            "http://h:1/?token=S3CRET",
            "http://h:1/#S3CRET",
            "http://u:S3CRET@h:x",
        ] {
            let error = Control::new(with).unwrap_err().to_string();
            assert!(!error.contains("S3CRET"), "{error}");
        }
        let control = Control::new("http://127.0.0.1:8000").unwrap();
        assert_eq!(
            control.infer_url("ctr").as_str(),
            "http://127.0.0.1:8000/v2/models/ctr/infer"
        );
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let error = Control::new(&format!("http://{closed}"))
            .unwrap()
            .scrape()
            .await
            .unwrap_err();
        assert!(error.to_string().contains(&closed.to_string()), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
}
