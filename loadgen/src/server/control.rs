//! Requests to a server outside a step: its model, a checked reply, its metrics.
//!
//! In: a server with its access settings. Out: typed answers, or an error that names the address and gives advice.
//! Never used while the clock runs.

use super::delta::{Reading, Statistics};
use super::metadata;
use super::scrape::Scrape;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tierlab_analysis::record::Failure;
use tierlab_load::custom::Custom;
use tierlab_load::driver::HttpRoute;
use tierlab_load::endpoint::{Access, Alpn, Answer, ConnectError, Endpoint, NoAnswer, Query, TargetSpec};
use tierlab_load::grpc::Connections;
use tierlab_load::payload::Body;
use tierlab_load::reply::{Expected, Limit, METADATA_BYTES, METRICS_BYTES, NoReply, unrequested_coding};
use tierlab_protocol::infer::{HEADER_LENGTH, InferReply};
use tierlab_protocol::metadata::{LoadDocument, ModelMetadata};

/// Time limit for one request, its connection included.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Number of readings that check whether one address of metrics always reaches the same process.
const SAME_READINGS: u32 = 4;

/// Failed request to a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {problem}")]
pub struct ControlError {
    /// Requested URL.
    pub url: String,
    /// Error with advice.
    pub problem: String,
    /// True for a refusal that may be over soon, as of a server that just started or sheds load.
    pub(crate) is_transient: bool,
}

impl ControlError {
    /// The same error after a failure, which is transient if it is 429, 503 or UNAVAILABLE.
    pub(crate) fn after(self, failure: Failure) -> Self {
        Self {
            is_transient: matches!(failure, Failure::Status(429 | 503) | Failure::Rpc(14)),
            ..self
        }
    }
}

/// One server, several behind one address, or a fleet of them.
#[derive(Debug, Clone)]
pub struct Control {
    pub(crate) spec: Arc<TargetSpec>,
    /// Address of the server, `http://HOST:PORT` with its prefix.
    pub(crate) base: String,
    /// Address and access settings of the server.
    pub(crate) endpoint: Arc<Endpoint>,
    /// Endpoint for gRPC.
    pub(crate) grpc: Option<Arc<Endpoint>>,
    /// Requests of another protocol than the Open Inference Protocol.
    pub(crate) custom: Option<Arc<Custom>>,
    /// Addresses of metrics, one for each replica.
    metrics: Vec<Arc<Endpoint>>,
    /// True if its statistics by model are read.
    has_statistics: bool,
    /// Further equal servers, which take turns with it.
    others: Vec<Control>,
}

impl Control {
    /// Creates a control of the project's own server at `http://HOST:PORT`, with its `/metrics`, and with gRPC if it has an address.
    ///
    /// # Errors
    /// An invalid address.
    pub fn own(url: &str, grpc_url: Option<String>) -> Result<Self, ControlError> {
        let mut control = Self::new(&TargetSpec::plain(url, grpc_url))?;
        control.metrics = vec![control.metrics_below()?];
        Ok(control)
    }

    /// Creates a control of any server, without metrics.
    ///
    /// # Errors
    /// An invalid address, tokens and certificates that cannot be read, bodies that cannot be built.
    pub fn new(spec: &TargetSpec) -> Result<Self, ControlError> {
        let access = spec.access.open().map_err(refuse(&spec.url))?;
        let endpoint = Endpoint::new(&spec.url, &access).map_err(refuse(&spec.url))?;
        let grpc = spec.grpc_url.as_deref();
        let grpc = grpc.map(|url| Endpoint::new(url, &access).map(Arc::new).map_err(refuse(url)));
        let custom = spec.custom.as_ref().map(Custom::open).transpose();
        Ok(Self {
            base: endpoint.address.url(),
            endpoint: Arc::new(endpoint),
            grpc: grpc.transpose()?,
            custom: custom.map_err(refuse(&spec.url))?.map(Arc::new),
            metrics: Vec::new(),
            has_statistics: false,
            others: spec.others.iter().map(Self::new).collect::<Result<_, _>>()?,
            spec: Arc::new(spec.clone()),
        })
    }

    /// Combines several servers that take turns. Their metrics are read together; other requests go to the first one.
    pub fn fleet(mut first: Self, others: Vec<Self>) -> Self {
        let mut spec = first.spec.as_ref().clone();
        spec.others = others.iter().map(|other| other.spec.as_ref().clone()).collect();
        first.spec = Arc::new(spec);
        let metrics = others.iter().flat_map(|other| other.metrics.clone());
        first.metrics.extend(metrics);
        first.others = others;
        first
    }

    /// Servers that take turns.
    pub fn servers(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    /// Creates a control of any server, with its own reports: metrics at `metrics_urls` (default: `/metrics`
    /// after its own), and statistics of `model` if there are no metrics of inference. The second part describes the
    /// missing reports.
    ///
    /// # Errors
    /// Those of [`Control::new`]; a given address without metrics, or with several servers behind it.
    pub async fn open(
        spec: &TargetSpec,
        metrics_urls: Option<&[String]>,
        model: &str,
    ) -> Result<(Self, Vec<String>), ControlError> {
        let mut control = Self::new(spec)?;
        let mut notes = Vec::new();
        match metrics_urls {
            Some(urls) => {
                let access = control.access()?;
                for url in urls {
                    let endpoint = control.metrics_at(url, &access)?;
                    if has_several(&endpoint).await? {
                        return Err(refusal(&endpoint.address.url(), SEVERAL));
                    }
                    control.metrics.push(Arc::new(endpoint));
                }
            }
            // An endpoint that is not an inference server has no known reports.
            None if control.custom.is_some() => {}
            None => {
                let endpoint = control.metrics_below()?;
                match probe(&endpoint).await? {
                    Ok(()) => match has_several(&endpoint).await? {
                        false => control.metrics.push(endpoint),
                        true => notes.push(format!("{}: {SEVERAL}", endpoint.address.url())),
                    },
                    Err(error) => notes.push(format!(
                        "no metrics: {error}; give their addresses by --metrics-url (one for each replica), or \
                         pass --no-metrics"
                    )),
                }
            }
        }
        if control.custom.is_none() && !control.reports_inference().await {
            control.has_statistics = control.statistics(model).await.is_some();
            if !control.has_statistics {
                notes.push(
                    "neither metrics nor statistics of this server report the times of its stages; they are known only \
                     if its replies report them"
                        .to_owned(),
                );
            }
        }
        Ok((control, notes))
    }

    /// True if a replica's metrics have counters of inference.
    async fn reports_inference(&self) -> bool {
        let Ok(reading) = self.read(&[]).await else {
            return false;
        };
        let names = [tierlab_protocol::metrics::BUILD_INFO, "nv_inference_request_success"];
        let has_any = |scrape: &Scrape| names.iter().any(|name| scrape.has(name));
        reading.replicas.iter().any(has_any)
    }

    fn access(&self) -> Result<Access, ControlError> {
        self.spec.access.open().map_err(refuse(&self.base))
    }

    fn metrics_below(&self) -> Result<Arc<Endpoint>, ControlError> {
        self.metrics_at(&format!("{}/metrics", self.base), &self.access()?)
            .map(Arc::new)
    }

    fn metrics_at(&self, url: &str, access: &Access) -> Result<Endpoint, ControlError> {
        let endpoint = self.endpoint.with_same_access(url, access).map_err(refuse(url))?;
        if endpoint.address.prefix.is_empty() {
            let below = format!("{}/metrics", endpoint.address.url());
            return self.endpoint.with_same_access(&below, access).map_err(refuse(url));
        }
        Ok(endpoint)
    }

    /// Returns every address of it, replicas included.
    pub fn addresses(&self) -> Vec<String> {
        let more = self.grpc.iter().chain(&self.metrics);
        let more = more.map(|endpoint| endpoint.address.url());
        let own = std::iter::once(self.base.clone()).chain(more);
        own.chain(self.others.iter().flat_map(Self::addresses)).collect()
    }

    /// Requested version of the model.
    pub fn model_version(&self) -> Option<&str> {
        self.spec.model_version.as_deref()
    }

    /// True if the server reports anything.
    pub fn has_reports(&self) -> bool {
        !self.metrics.is_empty() || self.has_statistics
    }

    /// Route of requests to a model.
    ///
    /// # Errors
    /// An invalid path.
    pub fn route(&self, model: &str) -> Result<HttpRoute, ControlError> {
        let endpoint = Arc::clone(&self.endpoint);
        let route = match &self.custom {
            Some(custom) => HttpRoute::custom(endpoint, custom),
            None => HttpRoute::infer(endpoint, &self.infer_path(model)),
        };
        route.map_err(refuse(&self.base))
    }

    /// Returns the path of requests to a model, after the prefix.
    pub fn infer_path(&self, model: &str) -> String {
        format!("{}/infer", self.model_path(model))
    }

    fn model_path(&self, model: &str) -> String {
        match self.model_version() {
            Some(version) => format!("/v2/models/{model}/versions/{version}"),
            None => format!("/v2/models/{model}"),
        }
    }

    /// Requests a model's metadata.
    ///
    /// # Errors
    /// No server, no such model, or an answer that is not metadata.
    pub async fn model(&self, model: &str) -> Result<ModelMetadata, ControlError> {
        let path = self.model_path(model);
        let answer = self.fetch(Query::get(&path), &Limit::of(METADATA_BYTES)).await?;
        let metadata = metadata::read(model, &answer.body);
        let metadata = metadata.map_err(|problem| refusal(&self.url_of(&path), &problem.to_string()))?;
        if metadata.batched.is_some() {
            return Ok(metadata);
        }
        let max_batch_size = self.max_batch_size(&path).await?;
        Ok(ModelMetadata {
            batched: max_batch_size.map(|rows| rows > 0),
            max_batch_size,
            ..metadata
        })
    }

    /// Returns the maximum rows of a run, if the server reports them in its model's configuration as Triton does;
    /// `None` without such a document. A refusal that may be over soon is an error.
    async fn max_batch_size(&self, model_path: &str) -> Result<Option<u32>, ControlError> {
        let path = format!("{model_path}/config");
        let answer = match self.fetch(Query::get(&path), &Limit::of(METADATA_BYTES)).await {
            Err(error) if error.is_transient => return Err(error),
            answer => answer.ok(),
        };
        let config = answer.and_then(|answer| serde_json::from_slice::<serde_json::Value>(&answer.body).ok());
        Ok(config.and_then(|config| config["max_batch_size"].as_u64()?.try_into().ok()))
    }

    /// Loads a model, and returns the times of its stages.
    ///
    /// # Errors
    /// No server, one that does not allow it (`repository.control`, `admin.enabled`), or a model that is refused.
    pub async fn load(&self, model: &str) -> Result<LoadDocument, ControlError> {
        let path = format!("/v2/repository/models/{model}/load");
        let answer = self.fetch(Query::post(&path), &Limit::of(METADATA_BYTES)).await?;
        serde_json::from_slice(&answer.body)
            .map_err(|error| refusal(&self.url_of(&path), &format!("invalid reply to a load: {error}")))
    }

    /// Unloads a model.
    ///
    /// # Errors
    /// Those of [`Control::load`].
    pub async fn unload(&self, model: &str) -> Result<(), ControlError> {
        let path = format!("/v2/repository/models/{model}/unload");
        let unloaded = self.fetch(Query::post(&path), &Limit::of(METADATA_BYTES)).await;
        unloaded.map(drop)
    }

    /// Reads the metrics of the first replica; empty if none are read.
    ///
    /// # Errors
    /// No server, no such route, or text in another format.
    pub async fn scrape(&self) -> Result<Scrape, ControlError> {
        match self.metrics.first() {
            Some(endpoint) => scrape(endpoint).await,
            None => Ok(Scrape::default()),
        }
    }

    /// Reads all reports of the server.
    ///
    /// # Errors
    /// Those of [`Control::scrape`], of any replica; missing statistics.
    pub async fn read(&self, models: &[&str]) -> Result<Reading, ControlError> {
        let replicas = futures::future::try_join_all(self.metrics.iter().map(|endpoint| scrape(endpoint))).await?;
        let mut statistics = BTreeMap::new();
        for model in models.iter().filter(|_| self.has_statistics) {
            let read = self.statistics(model).await;
            let read = read.ok_or_else(|| refusal(&self.base, "its statistics can no longer be read"))?;
            statistics.insert((*model).to_owned(), read);
        }
        Ok(Reading {
            at: SystemTime::now(),
            replicas,
            statistics,
        })
    }

    async fn statistics(&self, model: &str) -> Option<Statistics> {
        let path = format!("{}/stats", self.model_path(model));
        let answer = self.fetch(Query::get(&path), &Limit::of(METADATA_BYTES)).await.ok()?;
        Statistics::parse(model, &answer.body)
    }

    /// Checks that the server answers.
    ///
    /// # Errors
    /// No answer.
    pub async fn check_alive(&self) -> Result<(), ControlError> {
        if self.has_reports() {
            return self.read(&[]).await.map(|_| ());
        }
        for server in self.servers() {
            let connected = server.endpoint.connect(Alpn::Http1).await;
            connected.map_err(|error| refusal(&server.base, &error.to_string()))?;
        }
        Ok(())
    }

    /// Sends one infer request and reads the whole reply.
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
        let path = self.infer_path(model);
        let request = Query {
            headers: self.route(model)?.headers(body),
            body: body.bytes.clone(),
            ..Query::post(&path)
        };
        let Answer { headers, body, .. } = self.fetch(request, limit).await?;
        let json_len = headers.get(HEADER_LENGTH);
        let json_len = json_len.and_then(|value| value.to_str().ok()?.parse().ok());
        let checked = expected.check_http(&body, json_len);
        checked.map_err(|fault| {
            let problem = unrequested_coding(&headers).unwrap_or_else(|| fault.to_string());
            refusal(&self.url_of(&path), &format!("invalid infer reply: {problem}"))
        })
    }

    /// Sends one request of any kind, and checks the reply by the plan's rule. `timeout` is that of the plan's requests.
    ///
    /// # Errors
    /// No server, or a reply that the rule refuses.
    pub async fn try_custom(
        &self,
        custom: &Custom,
        body: &Body,
        limit: &Limit,
        timeout: Duration,
    ) -> Result<(), ControlError> {
        let route = self.route("")?;
        let (method, path) = match &body.line {
            Some(line) => (&line.method, &line.path),
            None => (&custom.method, &custom.path),
        };
        let request = Query {
            method: method.clone(),
            path,
            headers: route.headers(body),
            body: body.bytes.clone(),
        };
        let url = tierlab_load::redact::urls(&self.url_of(path));
        let refuse = |problem: String| refusal(&url, &problem);
        let response = self.endpoint.send(request, limit, TIMEOUT.max(timeout)).await;
        let answer = response.map_err(|error| refuse(error.to_string()))?;
        let status = answer.status.as_u16();
        if !custom.success.has_status(status) {
            let (failure, expected) = (describe_failure(&url, &answer), &custom.success.status);
            let problem = format!("{failure}; `target.success.status` is {expected:?}");
            return Err(refuse(problem).after(Failure::Status(status)));
        }
        let checked = custom.check_body(&answer.headers, &answer.body);
        checked.map_err(|problem| refuse(format!("the reply does not meet `target.success`: {problem}")))
    }

    async fn fetch(&self, request: Query<'_>, limit: &Limit) -> Result<Answer, ControlError> {
        let url = self.url_of(request.path);
        fetch_from(&self.endpoint, &url, request, limit).await
    }

    fn url_of(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// Sends one framed message and reads the whole reply.
///
/// # Errors
/// No server, another status than OK, or a reply that cannot be decoded.
pub async fn infer_over_grpc(
    connections: &Connections,
    body: Bytes,
    expected: &Expected,
    limit: &Limit,
) -> Result<InferReply, ControlError> {
    let refuse = |problem: String| refusal(&connections.endpoint.address.url(), &problem);
    let calling = tokio::time::timeout(TIMEOUT, connections.call(body, limit));
    let reply = match calling.await {
        Ok(Ok(reply)) => reply,
        Ok(Err(NoReply { failure, message })) => {
            let hint = match message.is_none() || matches!(failure, Failure::Connect | Failure::Broken) {
                true => "; check that the server speaks gRPC there",
                false => "",
            };
            let why = message.unwrap_or_else(|| format!("no answer over gRPC ({failure})"));
            return Err(refuse(format!("{why}{hint}")));
        }
        Err(_) => return Err(refuse(format!("no answer over gRPC in {} s", TIMEOUT.as_secs()))),
    };
    reply.decode(expected).map_err(|failed| {
        let message = failed.message.unwrap_or_else(|| reply.error_message());
        let hint = match failed.failure {
            Failure::Status(_) => "; check that the server speaks gRPC there",
            _ => "",
        };
        refuse(format!("answered {}: {}{hint}", failed.failure, message.trim_end())).after(failed.failure)
    })
}

async fn scrape(endpoint: &Endpoint) -> Result<Scrape, ControlError> {
    let url = endpoint.address.url();
    let answer = fetch_from(endpoint, &url, Query::get(""), &Limit::of(METRICS_BYTES)).await?;
    Scrape::parse(&String::from_utf8_lossy(&answer.body)).map_err(|error| refusal(&url, &error.to_string()))
}

const SEVERAL: &str = "several servers, started at different times, take turns at this address of metrics, as behind a balancer, so their \
                       counters are useless; give each replica's by --metrics-url (`target.metrics`), or pass --no-metrics";

/// True if several servers take turns at one address of metrics.
async fn has_several(endpoint: &Endpoint) -> Result<bool, ControlError> {
    let first = scrape(endpoint).await?.started_s();
    for _ in 1..SAME_READINGS {
        if scrape(endpoint).await?.started_s() != first {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks for metrics at an address that was only guessed; returns the error if there are none. An endless page is refused.
async fn probe(endpoint: &Endpoint) -> Result<Result<(), ControlError>, ControlError> {
    let url = endpoint.address.url();
    match endpoint.send(Query::get(""), &Limit::of(METRICS_BYTES), TIMEOUT).await {
        Err(error @ NoAnswer::TooLarge(_)) => Err(refusal(&url, &error.to_string())),
        _ => Ok(scrape(endpoint).await.map(|_| ())),
    }
}

async fn fetch_from(endpoint: &Endpoint, url: &str, request: Query<'_>, limit: &Limit) -> Result<Answer, ControlError> {
    let response = endpoint.send(request, limit, TIMEOUT).await;
    let answer = response.map_err(|error| {
        let hint = match error {
            NoAnswer::Timeout(_) | NoAnswer::Connect(ConnectError::Unreachable(_) | ConnectError::Timeout) => {
                "; check that the server runs there"
            }
            _ => "",
        };
        refusal(url, &format!("no answer: {error}{hint}"))
    })?;
    if answer.status.is_success() {
        return Ok(answer);
    }
    Err(refusal(url, &describe_failure(url, &answer)).after(Failure::Status(answer.status.as_u16())))
}

/// Describes an unsuccessful reply, with advice if there is any.
fn describe_failure(url: &str, answer: &Answer) -> String {
    let text: String = String::from_utf8_lossy(&answer.body).chars().take(500).collect();
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let advice = match answer.status.as_u16() {
        301 | 302 | 303 | 307 | 308 => {
            let to = answer.headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
            let to = tierlab_load::redact::urls(to);
            format!("; it redirects to {to}, and redirects are not followed: give that address")
        }
        401 | 403 => "; give a token by --token-env NAME or --token-file FILE (`target.token_env`, `target.token_file`)".to_owned(),
        400 | 422 if url.ends_with("/infer") => "; describe its inputs in the plan's `[inputs]` (docs/how-to/inputs.md)".to_owned(),
        // Metrics and the like involve no model.
        404 if url.contains("/v2/models/") => "; check the model's name, and that the address has the prefix of its routes (--url http://HOST:PORT/PREFIX)".to_owned(),
        _ => String::new(),
    };
    format!("answered {}: {}{advice}", answer.status, text.trim())
}

/// Returns an error about an address, whose secrets are hidden.
fn refuse(url: &str) -> impl Fn(anyhow::Error) -> ControlError {
    let url = tierlab_load::redact::urls(url);
    move |problem| refusal(&url, &problem.to_string())
}

pub(crate) fn refusal(url: &str, problem: &str) -> ControlError {
    // A refusal of an address names it already.
    let rest = problem.strip_prefix(url);
    let problem = rest.map_or(problem, |rest| rest.trim_start_matches(": "));
    ControlError {
        url: url.to_owned(),
        problem: problem.to_owned(),
        is_transient: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn only_addresses_are_taken() {
        for bad in ["127.0.0.1:8000", "ftp://h:1", "nonsense", ""] {
            assert!(Control::own(bad, None).is_err(), "{bad}");
        }
        for with in [
            "http://user:S3CRET@h:1",
            "http://h:1/?token=S3CRET",
            "http://h:1/#S3CRET",
            "http://u:S3CRET@h:x",
        ] {
            let error = Control::own(with, None).unwrap_err().to_string();
            assert!(!error.contains("S3CRET"), "{error}");
        }
        for bad in ["127.0.0.1:8001", "ftp://h:1", "http://u:S3CRET@h:1"] {
            let error = Control::own("http://127.0.0.1:8000", Some(bad.into())).unwrap_err();
            assert_eq!(error.url, tierlab_load::redact::urls(bad), "{error}");
            assert!(!error.to_string().contains("127.0.0.1:8000:"), "{error}");
        }
        let control = Control::own("http://127.0.0.1:8000/p/", None).unwrap();
        assert_eq!(
            control.route("ctr").unwrap().shown(),
            "http://127.0.0.1:8000/p/v2/models/ctr/infer"
        );
        assert_eq!(control.addresses()[1], "http://127.0.0.1:8000/p/metrics");
        let versioned = TargetSpec {
            model_version: Some("3".into()),
            ..TargetSpec::plain("http://h", None)
        };
        let route = Control::new(&versioned).unwrap().route("ctr").unwrap();
        assert_eq!(route.shown(), "http://h/v2/models/ctr/versions/3/infer");
    }

    #[tokio::test]
    async fn a_refused_configuration_is_not_a_model_without_batching() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4_096];
                let length = stream.read(&mut request).await.unwrap();
                let (status, body) = match String::from_utf8_lossy(&request[..length]).contains("/config ") {
                    true => ("503 Service Unavailable", "busy"),
                    false => ("200 OK", r#"{"name":"m","inputs":[],"outputs":[]}"#),
                };
                let length = body.len();
                let reply = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                stream.write_all(reply.as_bytes()).await.unwrap();
            }
        });
        let control = Control::own(&format!("http://{address}"), None).unwrap();
        let error = control.model("m").await.unwrap_err();
        assert!(
            error.is_transient && error.url.ends_with("/v2/models/m/config"),
            "{error}"
        );
        server.abort();
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let error = Control::own(&format!("http://{closed}"), None)
            .unwrap()
            .scrape()
            .await
            .unwrap_err();
        assert!(error.to_string().contains(&closed.to_string()), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
}
