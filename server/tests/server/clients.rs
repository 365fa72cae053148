//! Other people's programs against the server: `tritonclient`, ONNX Runtime's Python package, promtool and Prometheus.

use crate::harness::{Data, PATIENCE, Server, entity_ids, mlp_input, on_tier, root, tool};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;

/// Runs a script of `tests/python` against an address and the data behind it.
fn python(script: &str, server: &Server, address: &str, data: &Data) {
    let output = Command::new(tool(".runtime/venv/bin/python", "python"))
        .arg(root().join("server/tests/python").join(script))
        .args([address, data.0.path().to_str().unwrap()])
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}\n{stderr}\n{}", server.log());
    assert!(stdout.contains("checks passed"), "{stdout}");
}

#[tokio::test]
async fn tritonclient_gets_what_onnxruntime_computes_in_python() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr, ModelKind::Vision], 64);
    let mut arguments = on_tier(&data, "nvme");
    arguments.extend(["--grpc-listen", "127.0.0.1:0"].map(str::to_owned));
    let set = [
        "repository.control=explicit",
        "admin.enabled=true",
        "models=[\"mlp\", \"ctr\", \"vision\"]",
    ];
    let server = Server::start(&arguments, &set);
    python("clients.py", &server, &server.address, &data);
    let grpc = server.grpc_address.as_ref().expect("gRPC is served");
    python("grpc_clients.py", &server, grpc, &data);
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
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
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
