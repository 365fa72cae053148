//! The server seen from outside: request ids in the log, spans at a collector, and the metrics.

use crate::grpc::{call, infer, raw, serve, wire};
use crate::harness::{Data, PATIENCE, Reply, Server, entity_ids, mlp_input, on_tier, refused, root};
use crate::standin::StandIn;
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::collections::BTreeSet;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;
use tierlab_protocol::grpc::messages::ModelInferResponse;
use tierlab_protocol::timing::Stage;
use tokio::net::TcpListener;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const SENT: &str = "tierlab_spans_total{outcome=\"sent\"}";
const FAILED: &str = "tierlab_spans_total{outcome=\"failed\"}";
const DROPPED: &str = "tierlab_spans_total{outcome=\"dropped\"}";

/// Collector that keeps received spans, and the names of the services that sent them.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    services: Arc<Mutex<BTreeSet<String>>>,
}

impl Collector {
    /// Starts one; gives its address.
    async fn start(&self) -> String {
        let collector = self.clone();
        let take = move |body: Bytes| async move {
            let Ok(request) = ExportTraceServiceRequest::decode(body) else {
                return StatusCode::BAD_REQUEST;
            };
            for resource in request.resource_spans {
                for attribute in resource.resource.into_iter().flat_map(|resource| resource.attributes) {
                    if let (true, Some(Value::StringValue(name))) = (
                        attribute.key == "service.name",
                        attribute.value.and_then(|value| value.value),
                    ) {
                        collector.services.lock().unwrap().insert(name);
                    }
                }
                for scope in resource.scope_spans {
                    collector.spans.lock().unwrap().extend(scope.spans);
                }
            }
            StatusCode::OK
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/v1/traces", post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("telemetry.otlp_endpoint=http://{address}")
    }

    /// The spans that carry a request id, once there is one of the request itself.
    async fn spans_of(&self, id: &str) -> Vec<Span> {
        let began = Instant::now();
        loop {
            let all = self.spans.lock().unwrap().clone();
            if let Some(top) = all
                .iter()
                .find(|span| text(span, "tierlab.request_id").as_deref() == Some(id))
            {
                let below = all.iter().filter(|span| span.parent_span_id == top.span_id);
                return std::iter::once(top).chain(below).cloned().collect();
            }
            assert!(began.elapsed() < PATIENCE, "no span of `{id}` among {}", all.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn text(span: &Span, key: &str) -> Option<String> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "otlp"), ignore = "spans want the feature `otlp`")]
async fn a_grpc_call_is_a_span_as_well() {
    let data = Data::generate(&[ModelKind::Ctr], 100);
    let collector = Collector::default();
    let endpoint = collector.start().await;
    let server = serve(&data, "nvme", &[&endpoint, "cache.capacity_bytes=0"]);
    for (id, entity, code) in [("sampled", 3, "200"), ("refused", 1_000_000, "200")] {
        let mut request = tonic::Request::new(raw("ctr", entity_ids(&[entity])));
        let metadata = request.metadata_mut();
        metadata.insert("x-request-id", id.parse().unwrap());
        metadata.insert("traceparent", format!("00-{TRACE}-{PARENT}-01").parse().unwrap());
        let reply: Result<tonic::Response<ModelInferResponse>, tonic::Status> =
            call(wire(&server), "ModelInfer", request).await;
        assert_eq!(reply.is_ok(), id == "sampled");
        let metadata = reply.map_or_else(|status| status.metadata().clone(), |reply| reply.metadata().clone());
        assert_eq!(metadata.get("x-request-id").unwrap(), id);

        let spans = collector.spans_of(id).await;
        let (top, below) = spans.split_first().unwrap();
        assert_eq!(
            (hex::encode(&top.trace_id), hex::encode(&top.parent_span_id)),
            (TRACE.into(), PARENT.into())
        );
        for (key, value) in [
            ("rpc.system", "grpc"),
            ("rpc.service", "inference.GRPCInferenceService"),
            ("rpc.method", "ModelInfer"),
            ("tierlab.model", "ctr"),
            ("tierlab.rows", "1"),
            ("http.response.status_code", code),
        ] {
            assert_eq!(text(top, key).as_deref(), Some(value), "{id}: {key}");
        }
        let refused = (id == "refused").then_some("unknown_entity");
        assert_eq!(text(top, "error.type").as_deref(), refused);
        let names: Vec<&str> = below.iter().map(|span| span.name.as_str()).collect();
        for stage in ["decode", "tier", "infer"] {
            assert_eq!(
                names.contains(&stage),
                id == "sampled" || stage == "decode",
                "{id}: {names:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "otlp"), ignore = "spans want the feature `otlp`")]
#[allow(clippy::too_many_lines, reason = "several checks of one trace")]
async fn a_request_is_one_span_with_its_stages_below_it() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr], 100);
    let collector = Collector::default();
    let endpoint = collector.start().await;
    let server = Server::start(&on_tier(&data, "nvme"), &[&endpoint, "cache.capacity_bytes=0"]);
    let infer = |id: &str, parent: String| {
        server
            .infer_request("ctr", entity_ids(&[3, 4]))
            .header("x-request-id", id)
            .header("traceparent", parent)
            .send()
    };
    let reply = infer("unsampled", format!("00-{TRACE}-{PARENT}-00")).await.unwrap();
    assert_eq!(reply.headers()["x-request-id"], "unsampled");
    assert_eq!(
        infer("sampled", format!("00-{TRACE}-{PARENT}-01"))
            .await
            .unwrap()
            .status(),
        200
    );
    server.get("/v2/health/ready").await;
    let unknown = server
        .infer_request("none", mlp_input(1))
        .header("x-request-id", "nobody");
    assert_eq!(unknown.send().await.unwrap().status(), 404);
    let short = server
        .infer_request("ctr", entity_ids(&[1_000_000]))
        .header("x-request-id", "refused");
    assert_eq!(short.send().await.unwrap().status(), 404);

    let spans = collector.spans_of("sampled").await;
    let (top, below) = spans.split_first().unwrap();
    assert_eq!(top.name, "POST /v2/models/{model}/infer");
    assert_eq!(
        (hex::encode(&top.trace_id), hex::encode(&top.parent_span_id)),
        (TRACE.into(), PARENT.into())
    );
    assert_eq!(text(top, "tierlab.model").as_deref(), Some("ctr"));
    assert_eq!(text(top, "tierlab.rows").as_deref(), Some("2"));
    assert_eq!(text(top, "http.response.status_code").as_deref(), Some("200"));
    let names: Vec<&str> = below.iter().map(|span| span.name.as_str()).collect();
    for stage in ["receive", "tier", "infer"] {
        assert!(names.contains(&stage), "{names:?}");
    }
    let valid: BTreeSet<&str> = Stage::ALL.map(Stage::as_str).into_iter().chain(["receive"]).collect();
    for span in below {
        assert!(valid.contains(span.name.as_str()), "{names:?}");
        assert_eq!(span.trace_id, top.trace_id);
        assert!(top.start_time_unix_nano <= span.start_time_unix_nano, "{}", span.name);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{}", span.name);
        assert!(span.end_time_unix_nano <= top.end_time_unix_nano, "{}", span.name);
    }
    let tier = below.iter().find(|span| span.name == "tier").unwrap();
    assert!(text(tier, "tierlab.tier.requests").is_some_and(|requests| requests != "0"));

    let unnamed = collector.spans_of("nobody").await;
    assert_eq!(text(&unnamed[0], "http.response.status_code").as_deref(), Some("404"));
    assert!(unnamed[0].parent_span_id.is_empty());
    let refused = collector.spans_of("refused").await;
    assert_eq!(text(&refused[0], "error.type").as_deref(), Some("unknown_entity"));
    let ids: Vec<_> = collector
        .spans
        .lock()
        .unwrap()
        .iter()
        .filter_map(|span| text(span, "tierlab.request_id"))
        .collect();
    assert!(!ids.iter().any(|id| id == "unsampled"), "{ids:?}");
    assert_eq!(ids.len(), 3, "health and metrics have no spans: {ids:?}");
    assert!(collector.services.lock().unwrap().contains("tierlab-server"));
    server.metric_reaches(SENT, spans.len() as f64).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "otlp"), ignore = "spans want the feature `otlp`")]
async fn a_client_that_goes_away_ends_its_span() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let collector = Collector::default();
    let endpoint = collector.start().await;
    let name = [("OTEL_SERVICE_NAME", "edge")];
    let server = Server::start_with(&on_tier(&data, "memory"), &[&endpoint], &name);
    let head = "POST /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\nx-request-id: gone\r\ncontent-length: 10\r\n\r\n{";
    let mut stream = tokio::net::TcpStream::connect(&server.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes())
        .await
        .unwrap();
    drop(stream);
    let spans = collector.spans_of("gone").await;
    assert!(
        text(&spans[0], "http.response.status_code").is_none_or(|status| ["400", "499"].contains(&status.as_str())),
        "{spans:?}"
    );
    assert!(collector.services.lock().unwrap().contains("edge"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(feature = "otlp"), ignore = "spans want the feature `otlp`")]
async fn a_collector_that_is_away_or_silent_holds_nothing_up() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    // Nobody listens on the first; the second takes connections and never answers.
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let unreachable = away.local_addr().unwrap();
    drop(away);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_address = silent.local_addr().unwrap();
    for (address, queue, counter) in [(unreachable, "2048", FAILED), (silent_address, "2", DROPPED)] {
        let endpoint = format!("telemetry.otlp_endpoint=http://{address}");
        let queue = format!("telemetry.queue_requests={queue}");
        let mut server = Server::start(
            &on_tier(&data, "memory"),
            &[&endpoint, &queue, "telemetry.timeout_ms=60000"],
        );
        let began = Instant::now();
        loop {
            let replies = futures::future::join_all((0..16).map(|_| server.infer("mlp", mlp_input(1)))).await;
            assert!(replies.iter().all(|reply| reply.status == 200));
            if server.metric(counter).await > 0.0 {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{counter} stays 0");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(server.metric(SENT).await, 0.0);
        server.terminate();
        assert_eq!(server.wait().await.code(), Some(0), "{}", server.log());
        let log = server.log();
        assert_eq!(
            log.matches("cannot send spans").count(),
            usize::from(counter == FAILED),
            "{log}"
        );
    }
}

#[tokio::test]
async fn every_line_about_a_request_has_its_id() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let mut arguments = on_tier(&data, "memory");
    arguments.extend(["--log-format", "json", "--log-level", "info,access=debug"].map(str::to_owned));
    let server = Server::start(&arguments, &[]);
    let with_secret = server
        .infer_request("mlp", mlp_input(1))
        .header("x-request-id", "order-17")
        .header("authorization", "Bearer hunter2");
    assert_eq!(with_secret.send().await.unwrap().status(), 200);
    let traced = server
        .infer_request("none", mlp_input(1))
        .header("traceparent", format!("00-{TRACE}-{PARENT}-01"));
    let refused = traced.send().await.unwrap();
    assert_eq!(refused.headers()["x-request-id"], TRACE);
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
    let began = Instant::now();
    let lines: Vec<serde_json::Value> = loop {
        let log = server.log();
        let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if lines.iter().filter(|line| line["target"] == "access").count() == 3 {
            break lines;
        }
        assert!(began.elapsed() < PATIENCE, "{log}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let access: Vec<_> = lines.iter().filter(|line| line["target"] == "access").collect();
    let ids: Vec<&str> = access.iter().map(|line| line["request_id"].as_str().unwrap()).collect();
    assert_eq!(ids[..2], ["order-17", TRACE]);
    assert_eq!(ids[2].len(), 32);
    assert_eq!((&access[0]["status"], &access[1]["status"]), (&200.into(), &404.into()));
    assert_eq!(access[0]["path"], "/v2/models/mlp/infer");
    assert!(
        lines
            .iter()
            .any(|line| line["message"] == "loaded" && line.get("request_id").is_none())
    );
    assert!(!server.log().contains("hunter2"));
}

#[tokio::test]
async fn the_access_log_has_the_status_of_a_refused_call() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = serve(&data, "memory", &["log.level=\"info,access=debug\""]);
    infer(&server, raw("none", mlp_input(1))).await.unwrap_err();
    server.logged(&["access: request", "ModelInfer", "status=200", "grpc_status=\"5\""]);
}

#[test]
fn a_wrong_log_level_or_endpoint_is_a_wrong_configuration() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    for (extra, named) in [
        (["--log-level", "info,=,"], "log.level"),
        (["--log-level", "inof,access=debug"], "`inof`"),
        (["--log-format", "xml"], "log-format"),
        (["--set", "telemetry.otlp_endpoint=nowhere"], "telemetry.otlp_endpoint"),
        (["--set", "log.colour=red"], "colour"),
    ] {
        let mut arguments = on_tier(&data, "memory");
        arguments.extend(extra.map(str::to_owned));
        let output = refused(&arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(named), "{message} should name {named}");
    }
}

/// A row of the table in `docs/reference/metrics.md`: name, type, labels.
type Row = (String, String, BTreeSet<String>);

#[tokio::test]
async fn the_table_of_metrics_is_what_is_exported() {
    let data = Data::generate(&[ModelKind::Ctr], 100);
    // With everything around the tier that has metrics.
    let stage = tempfile::tempdir().unwrap();
    let staged = format!("tiers.nvme.staged.root={}", stage.path().display());
    let gds = format!("tiers.gds.root={}", data.0.path().display());
    let mut arguments = on_tier(&data, "nvme");
    arguments.extend(["--model-tier".to_owned(), "gds".to_owned()]);
    // With a GPU that is none.
    let standin = StandIn::build();
    let library_path = standin.folder().display().to_string();
    let environment = [("LD_LIBRARY_PATH", library_path.as_str())];
    let set = [&staged, &gds, "tiers.nvme.emulated.retries=1"];
    let server = Server::start_with(&arguments, &set, &environment);
    assert_eq!(server.infer("ctr", entity_ids(&[3])).await.status, 200);
    assert_eq!(server.infer("none", entity_ids(&[3])).await.status, 404);
    let text = server.get("/metrics").await.text();
    let exported = exported(&text);
    let path = root().join("docs/reference/metrics.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let table = documented(&document);
    let reasons: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("tierlab_refusals_total{reason=\"")?.split('"').next())
        .collect();
    let listed = document
        .lines()
        .find(|line| line.starts_with("| `tierlab_refusals_total`"))
        .unwrap();
    for reason in reasons {
        let mut fields = listed.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        assert!(
            fields.any(|field| field == reason),
            "{} does not name the reason {reason}",
            path.display()
        );
    }
    let names = |rows: &BTreeSet<Row>| rows.iter().map(|row| row.0.clone()).collect::<BTreeSet<_>>();
    let (there, written) = (names(&exported), names(&table));
    assert_eq!(there, written, "{} does not list what /metrics has", path.display());
    for row in &exported {
        assert!(table.contains(row), "{} says otherwise of {row:?}", path.display());
    }
}

fn exported(text: &str) -> BTreeSet<Row> {
    let mut rows = BTreeSet::new();
    for line in text.lines() {
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let series = text.lines().find(|line| {
            let rest = line.strip_prefix(name).map(|rest| rest.trim_start_matches("_bucket"));
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let series = series.unwrap_or_else(|| panic!("{name} has no series"));
        let labels = series
            .split_once('{')
            .map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
        let labels = labels
            .split("\",")
            .filter_map(|label| label.split_once('='))
            .map(|(label, _)| label.to_owned());
        rows.insert((
            name.to_owned(),
            kind.to_owned(),
            labels.filter(|label| label != "le").collect(),
        ));
    }
    rows
}

fn documented(text: &str) -> BTreeSet<Row> {
    let code = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 5, "{line}");
        let labels = cells[2].split(',').map(code).filter(|label| !label.is_empty());
        (code(cells[0]), code(cells[1]), labels.collect())
    })
    .collect()
}

#[tokio::test]
async fn clients_cannot_make_series() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    let count = async || server.get("/metrics").await.text().lines().count();
    assert_eq!(server.infer("first", mlp_input(1)).await.status, 404);
    let before = count().await;
    for i in 0..50 {
        assert_eq!(server.infer(&format!("name{i}"), mlp_input(1)).await.status, 404);
        server.get(&format!("/v2/models/name{i}/ready")).await;
    }
    assert_eq!(count().await, before);
}

#[tokio::test]
async fn metrics_are_compressed_for_those_who_ask() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    let get = async |accepted: &str| {
        let request = server
            .client
            .get(server.url("/metrics"))
            .header("accept-encoding", accepted);
        Reply::of(request.send().await.unwrap()).await
    };
    let plain = get("identity").await;
    assert_eq!(plain.header("content-encoding"), None);
    let packed = get("gzip").await;
    assert_eq!((packed.status, packed.header("content-encoding")), (200, Some("gzip")));
    assert_eq!(packed.header("content-type"), plain.header("content-type"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed.body[..])
        .read_to_string(&mut text)
        .unwrap();
    let names = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with('#'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&text), names(&plain.text()));
    assert!(packed.body.len() * 3 < text.len());
}
