//! Other people's programs against the server: `tritonclient`, the `kserve` client, perf_analyzer, ONNX Runtime's Python
//! package, promtool and Prometheus.

use crate::grpc::serve;
use crate::harness::{Data, PATIENCE, Server, entity_ids, mlp_input, on_tier, root, tool};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;

/// Runs a script of `tests/python` in an environment of `scripts/setup`, against addresses and the data behind them.
fn python((environment, part): (&str, &str), script: &str, server: &Server, addresses: &[&str], data: &Data) {
    let interpreter = format!(".runtime/{environment}/bin/python");
    let output = Command::new(tool(&interpreter, part))
        .arg(root().join("server/tests/python").join(script))
        .args(addresses)
        .arg(data.0.path())
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}\n{stderr}\n{}", server.log());
    assert!(stdout.contains("checks passed"), "{stdout}");
}

fn grpc_address(server: &Server) -> &str {
    server.grpc_address.as_ref().expect("gRPC is served")
}

#[tokio::test]
async fn tritonclient_gets_what_onnxruntime_computes_in_python() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr, ModelKind::Vision], 64);
    let config = data.path("models/mlp/config.toml");
    let written = std::fs::read_to_string(&config).unwrap_or_default();
    let warmup =
        "[[warmup]]\nname = 'eight'\nbatch_size = 8\ncount = 2\n[warmup.inputs.input]\ndims = [64]\ndata = 'random'\n";
    std::fs::write(&config, format!("{written}\n{warmup}")).unwrap();
    let config = data.path("models/vision/config.toml");
    let written = std::fs::read_to_string(&config).unwrap_or_default();
    let labels = "[[outputs]]\nname = 'logits'\ndatatype = 'FP32'\ndims = [1000]\nlabels = 'labels.txt'\n";
    std::fs::write(&config, format!("{written}\n{labels}")).unwrap();
    let labels: String = (0..1000).map(|class| format!("label {class}\n")).collect();
    std::fs::write(data.path("models/vision/labels.txt"), labels).unwrap();
    let set = [
        "repository.control=explicit",
        "admin.enabled=true",
        "models=[\"mlp\", \"ctr\", \"vision\"]",
    ];
    let server = serve(&data, "nvme", &set);
    let environment = ("venv", "python");
    python(environment, "clients.py", &server, &[&server.address], &data);
    python(environment, "grpc_clients.py", &server, &[grpc_address(&server)], &data);
}

#[tokio::test]
async fn the_kserve_client_gets_what_onnxruntime_computes_in_python() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr, ModelKind::Vision], 64);
    let server = serve(&data, "memory", &[]);
    let addresses = [server.address.as_str(), grpc_address(&server)];
    python(("kserve", "kserve"), "kserve_client.py", &server, &addresses, &data);
}

/// A measurement takes a second; now and then perf_analyzer waits for ever after its last reply.
const ANALYZER_HANGS: Duration = Duration::from_secs(30);

/// Runs perf_analyzer. If it waits for ever though the server owes it no reply, it is ended and started again.
pub(crate) async fn analyze(server: &Server, arguments: &[&str]) -> Output {
    let program = tool(".runtime/perf_analyzer/perf_analyzer", "perf_analyzer");
    for _ in 0..3 {
        let mut command = tokio::process::Command::new(&program);
        command.args(arguments).kill_on_drop(true);
        if let Ok(ended) = tokio::time::timeout(ANALYZER_HANGS, command.output()).await {
            return ended.unwrap();
        }
        let in_flight = server.metric("tierlab_in_flight_requests").await;
        assert_eq!(in_flight, 0.0, "{arguments:?}: {}", server.log());
    }
    panic!("{arguments:?}: perf_analyzer waits for ever, three times, and the server owes it nothing")
}

/// Figure of a measurement by its name in perf_analyzer's text.
fn figure(report: &str, name: &str) -> u64 {
    let value = report.lines().find_map(|line| line.trim().strip_prefix(name));
    let value = value.unwrap_or_else(|| panic!("no `{name}` in\n{report}"));
    value.trim().parse().unwrap()
}

#[tokio::test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "NVIDIA publishes perf_analyzer for x86-64 alone"
)]
async fn perf_analyzer_measures_over_http_and_grpc() {
    const REQUESTS: u64 = 50;
    const ROWS: u64 = 4;
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = serve(&data, "memory", &[]);
    let http: &[&str] = &["-i", "http", "-u", &server.address];
    let grpc: &[&str] = &["-i", "grpc", "-u", grpc_address(&server)];
    for (protocol, options) in [
        (
            http,
            &["--input-tensor-format", "binary", "--output-tensor-format", "binary"][..],
        ),
        (
            http,
            &["--input-tensor-format", "json", "--output-tensor-format", "json"],
        ),
        (grpc, &[]),
        (grpc, &["--grpc-compression-algorithm", "gzip"]),
        (grpc, &["--streaming", "--async"]),
    ] {
        let (rows, requests) = (ROWS.to_string(), REQUESTS.to_string());
        let load = [
            "-m",
            "mlp",
            "-b",
            &rows,
            "--concurrency-range",
            "1",
            "--request-count",
            &requests,
        ];
        let output = analyze(&server, &[&load[..], protocol, options].concat()).await;
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{options:?}: {report}\n{}", server.log());
        let (sent, served) = report
            .split_once("Server:")
            .unwrap_or_else(|| panic!("no server side in\n{report}"));
        assert!(figure(sent, "Request count:") >= REQUESTS, "{report}");
        // The difference of two looks at the statistics, each taken while requests are under way: the first may come
        // after some of them. The exact count is that of `/metrics`, below.
        let counted = figure(served, "Successful request count:");
        assert!((1..=REQUESTS + 1).contains(&counted), "{options:?}: {report}");
        assert_eq!(
            figure(served, "Inference count:"),
            counted * ROWS,
            "{options:?}: {report}"
        );
    }
    let metrics = server.get("/metrics").await.text();
    for line in metrics
        .lines()
        .filter(|line| line.starts_with("tierlab_refusals_total{"))
    {
        assert!(line.ends_with(" 0"), "{line}");
    }
    for (protocol, runs) in [("http", 2), ("grpc", 3)] {
        let series =
            format!("tierlab_requests_total{{code=\"200\",mode=\"batch\",model=\"mlp\",protocol=\"{protocol}\"}}");
        let answered = server.metric(&series).await;
        assert!(answered >= (runs * REQUESTS) as f64, "{protocol}: {answered}");
    }
}

#[tokio::test]
async fn metrics_pass_promtool() {
    let promtool = tool(".runtime/prometheus/usr/bin/promtool", "prometheus");
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr], 10);
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    server.infer("mlp", mlp_input(2)).await;
    server.infer("ctr", entity_ids(&[1])).await;
    server.infer("ctr", entity_ids(&[10])).await;
    let text = server.get("/metrics").await.text();
    for name in [
        "tierlab_request_duration_seconds_bucket",
        "tierlab_tier_requests_total",
        "tierlab_build_info",
    ] {
        assert!(text.contains(name), "no {name}");
    }
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && printed.is_empty(),
        "{}",
        String::from_utf8_lossy(&printed)
    );
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn prometheus_scrapes_with_the_shipped_configuration() {
    let prometheus = tool(".runtime/prometheus/usr/bin/prometheus", "prometheus");
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    server.infer("mlp", mlp_input(5)).await;
    let shipped = std::fs::read_to_string(root().join("configs/prometheus/prometheus.yml")).unwrap();
    assert!(
        shipped.contains("127.0.0.1:8000"),
        "the shipped target is the server's default address"
    );
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    std::fs::write(&config, shipped.replace("127.0.0.1:8000", &server.address)).unwrap();
    let mut process = Ended(
        Command::new(prometheus)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let (sender, listening) = std::sync::mpsc::channel();
    let stderr = process.0.stderr.take().unwrap();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let address = line
                .contains("Listening on")
                .then(|| line.split("address=").nth(1))
                .flatten();
            if let Some(address) = address {
                let _ = sender.send(address.split_whitespace().next().unwrap_or_default().to_owned());
            }
        }
    });
    let address = listening
        .recv_timeout(PATIENCE)
        .expect("Prometheus says where it listens");
    let query = format!("http://{address}/api/v1/query?query=tierlab_inferences_total%7Bmodel%3D%22mlp%22%7D");
    let began = Instant::now();
    loop {
        // Until it is up, Prometheus answers 503 in plain text.
        let response = server
            .client
            .get(&query)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status);
        if let Ok(response) = response {
            let answer: serde_json::Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
            if let Some(value) = answer.pointer("/data/result/0/value/1") {
                assert_eq!(value, "5", "{answer}");
                return;
            }
        }
        assert!(began.elapsed() < PATIENCE, "Prometheus has no data");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
