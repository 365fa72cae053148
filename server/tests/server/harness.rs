//! Generated data in a folder of its own, the server process over it, and requests to it.

use bytes::Bytes;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tierlab_models::generators::{ModelKind, Request, Size};
use tierlab_models::onnx::{self, ModelProto};
use tierlab_models::stop::Stop;
use tierlab_models::tables::{self, TableKind};
use tierlab_protocol::infer::{HEADER_LENGTH, InferReply, InferRequest, RequestedOutput, Tensor};
use tierlab_protocol::tensor::DataType;
use tierlab_protocol::timing::StageTimings;

/// Everything that is waited for in these tests is there within this time, or the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The project's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A tool that `scripts/setup` brings; without it the test fails and says what to run.
pub(crate) fn tool(path: &str, part: &str) -> PathBuf {
    let tool = root().join(path);
    assert!(
        tool.exists(),
        "{} is missing: run `scripts/setup {part}`",
        tool.display()
    );
    tool
}

/// Published data: `models/` and `features/` in a folder.
pub(crate) struct Data(pub(crate) TempDir);

impl Data {
    /// Generates models, and tables of `rows` rows for those that join them.
    pub(crate) fn generate(kinds: &[ModelKind], rows: u64) -> Self {
        let data = Self(tempfile::tempdir().unwrap());
        let stop = Stop::never();
        for &kind in kinds {
            let request = Request {
                kind,
                size: Size::Small,
                seed: 1,
            };
            tierlab_models::repository::write_generated(&data.path("models"), &request, &stop).unwrap();
            let table = match kind {
                ModelKind::Ctr => TableKind::Ctr,
                ModelKind::Vision => TableKind::Vision,
                ModelKind::Mlp => continue,
            };
            tables::generate(table, rows, 2, &data.path("features"), &stop).unwrap();
        }
        data
    }

    /// Puts a graph into the repository, alone in its folder.
    pub(crate) fn add_model(&self, name: &str, model: &ModelProto) {
        let folder = self.path(&format!("models/{name}/1"));
        std::fs::create_dir_all(&folder).unwrap();
        onnx::write_model(model, &mut File::create(folder.join("model.onnx")).unwrap()).unwrap();
    }

    /// Puts a graph whose rows are independent into the repository, with a config that says so.
    pub(crate) fn add_batched_model(&self, name: &str, model: &ModelProto) {
        self.add_model(name, model);
        self.configure(name, "max_batch_size = 256\n");
    }

    /// Writes a model's config.toml.
    pub(crate) fn configure(&self, name: &str, config: &str) {
        std::fs::write(self.path(&format!("models/{name}/config.toml")), config).unwrap();
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    /// Changes one byte of a file.
    pub(crate) fn damage(&self, file: &str, at: i64) {
        let path = self.path(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = if at < 0 { bytes.len() as i64 + at } else { at } as usize;
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
}

fn command(arguments: &[String]) -> Command {
    command_under(&[], arguments)
}

/// The server, run by another program: `prlimit` with its arguments, say.
fn command_under(wrapper: &[&str], arguments: &[String]) -> Command {
    let binary = env!("CARGO_BIN_EXE_tierlab-server");
    let mut command = match wrapper {
        [] => Command::new(binary),
        [program, rest @ ..] => {
            let mut command = Command::new(program);
            command.args(rest).arg(binary);
            command
        }
    };
    for (flag, value) in [("--config", "configs/server.toml"), ("--listen", "127.0.0.1:0")] {
        if !arguments.iter().any(|argument| argument == flag) {
            command.args([flag, value]);
        }
    }
    command
        .current_dir(root())
        .arg("--exit-with-parent")
        .args(arguments)
        .env_remove("RUST_LOG")
        // One session of one thread on every machine, where neither the model's config nor the test says otherwise.
        .env("TIERLAB_RUNTIME__INSTANCES__CORES", "1")
        .stdin(Stdio::null());
    command
}

/// Arguments that serve `data` from a tier.
pub(crate) fn on_tier(data: &Data, tier: &str) -> Vec<String> {
    let root = data.0.path().display();
    vec![
        "--tier".into(),
        tier.into(),
        "--set".into(),
        format!("tiers.{tier}.root={root}"),
    ]
}

/// Runs a server that is expected not to start.
pub(crate) fn refused(arguments: &[String]) -> Output {
    refused_under(&[], arguments)
}

/// The same, run by another program.
pub(crate) fn refused_under(wrapper: &[&str], arguments: &[String]) -> Output {
    let mut child = command_under(wrapper, arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the server neither refused nor ended");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// A running server. Dropping it ends it.
pub(crate) struct Server {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// The same of gRPC, where it is served.
    pub(crate) grpc_address: Option<String>,
    log: Arc<Mutex<String>>,
    /// Ends with the server's standard error.
    reader: Option<JoinHandle<()>>,
    pub(crate) client: reqwest::Client,
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub(crate) fn start(arguments: &[String], set: &[&str]) -> Self {
        Self::start_with(arguments, set, &[])
    }

    /// Starts one with more in its environment.
    pub(crate) fn start_with(arguments: &[String], set: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut arguments = arguments.to_vec();
        arguments.extend(set.iter().flat_map(|set| ["--set".to_owned(), (*set).to_owned()]));
        let mut command = command(&arguments);
        command.envs(environment.iter().copied());
        Self::start_command(command)
    }

    /// Starts one by another program, which becomes it.
    pub(crate) fn start_under(wrapper: &[&str], arguments: &[String], set: &[&str]) -> Self {
        let mut arguments = arguments.to_vec();
        arguments.extend(set.iter().flat_map(|set| ["--set".to_owned(), (*set).to_owned()]));
        Self::start_command(command_under(wrapper, &arguments))
    }

    /// Starts one on a free port, and does not wait until it is ready.
    pub(crate) fn start_unready(arguments: &[String], set: &[&str]) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let mut arguments = arguments.to_vec();
        arguments.extend(["--listen".to_owned(), address.clone()]);
        arguments.extend(set.iter().flat_map(|set| ["--set".to_owned(), (*set).to_owned()]));
        let mut server = Self::spawn(command(&arguments));
        server.address = address;
        server
    }

    fn start_command(command: Command) -> Self {
        let mut server = Self::spawn(command);
        let (sender, first_line) = mpsc::channel();
        let stdout = server.child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = first_line.recv_timeout(PATIENCE).unwrap_or_default();
        let Ok(ready) = serde_json::from_str::<serde_json::Value>(&line) else {
            panic!("no ready line but {line:?}; the log says\n{}", server.log());
        };
        ready["listen"].as_str().unwrap().clone_into(&mut server.address);
        server.grpc_address = ready["grpc_listen"].as_str().map(str::to_owned);
        server
    }

    /// A server whose addresses are not known yet.
    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (stderr, sink) = (child.stderr.take().unwrap(), Arc::clone(&log));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = sink.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self {
            child,
            address: String::new(),
            grpc_address: None,
            log,
            reader: Some(reader),
            // Bodies stay as they came over the wire, whatever features of the client the rest of the workspace has on.
            client: reqwest::Client::builder().no_gzip().no_deflate().build().unwrap(),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Log read so far; all of it once the server was waited for.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The line of the log that has all of this. A reply can be here before the line that was written first.
    pub(crate) fn logged(&self, parts: &[&str]) -> String {
        let began = Instant::now();
        loop {
            let log = self.log();
            if let Some(line) = log.lines().find(|line| parts.iter().all(|part| line.contains(part))) {
                return line.to_owned();
            }
            assert!(began.elapsed() < PATIENCE, "no line with {parts:?} in\n{log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn terminate(&self) {
        signal(self, "TERM");
    }

    pub(crate) async fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                if let Some(reader) = self.reader.take() {
                    reader.join().unwrap();
                }
                return status;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "the server does not end; the log says\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        Reply::of(self.client.get(self.url(path)).send().await.unwrap()).await
    }

    /// The value of a series of `/metrics`; 0 where there is none.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let text = self.get("/metrics").await.text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until a series is at least `value`.
    pub(crate) async fn metric_reaches(&self, series: &str, value: f64) {
        let began = Instant::now();
        while self.metric(series).await < value {
            assert!(began.elapsed() < PATIENCE, "{series} does not reach {value}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Reply {
        Reply::of(self.client.post(self.url(path)).body(body).send().await.unwrap()).await
    }

    /// Sends an infer request with binary inputs and asks for binary outputs.
    pub(crate) async fn infer(&self, model: &str, inputs: Vec<Tensor>) -> Reply {
        Reply::of(self.infer_request(model, inputs).send().await.unwrap()).await
    }

    pub(crate) fn infer_request(&self, model: &str, inputs: Vec<Tensor>) -> reqwest::RequestBuilder {
        let request = InferRequest {
            inputs,
            binary_output: true,
            ..InferRequest::default()
        };
        let (body, json_len) = request.encode_binary();
        let url = self.url(&format!("/v2/models/{model}/infer"));
        self.client.post(url).header(HEADER_LENGTH, json_len).body(body)
    }

    /// Sends bytes as they are and reads until the server closes.
    pub(crate) fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request).unwrap();
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    }
}

/// Sends a signal to a server.
pub(crate) fn signal(server: &Server, name: &str) {
    let pid = server.pid().to_string();
    let status = Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap();
    assert!(status.success());
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reply, read whole.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) async fn of(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self {
            status,
            headers,
            body: response.bytes().await.unwrap(),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The message of an error reply.
    pub(crate) fn error(&self) -> String {
        let json = self.json();
        let message = json["error"].as_str().unwrap_or_else(|| panic!("no `error` in {json}"));
        message.to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn timings(&self) -> StageTimings {
        StageTimings::parse_header(self.header("server-timing").expect("a Server-Timing header")).unwrap()
    }

    /// The decoded reply of an infer request.
    pub(crate) fn inferred(&self) -> InferReply {
        assert_eq!(self.status, 200, "{}", self.text());
        let json_len = self.header(HEADER_LENGTH).map(|len| len.parse().unwrap());
        InferReply::decode(&self.body, json_len).unwrap()
    }

    /// The FP32 elements of the first output.
    pub(crate) fn floats(&self) -> Vec<f32> {
        let reply = self.inferred();
        reply.outputs[0]
            .data
            .whole()
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    }
}

pub(crate) fn tensor(name: &str, dtype: DataType, shape: &[i64], data: Vec<u8>) -> Tensor {
    Tensor {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
        data: data.into(),
    }
}

/// The input of `mlp`: `rows` rows of 64 numbers.
pub(crate) fn mlp_input(rows: i64) -> Vec<Tensor> {
    let data = (0..rows * 64)
        .flat_map(|i| ((i % 17) as f32 / 17.0 - 0.5).to_le_bytes())
        .collect();
    vec![tensor("input", DataType::Fp32, &[rows, 64], data)]
}

pub(crate) fn entity_ids(ids: &[i64]) -> Vec<Tensor> {
    let data = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    vec![tensor("entity_id", DataType::Int64, &[ids.len() as i64], data)]
}

/// The input of `vision`: one run of 32 images takes long enough for others to come meanwhile.
pub(crate) fn images() -> Vec<Tensor> {
    vec![tensor(
        "image",
        DataType::Uint8,
        &[32, 3, 224, 224],
        vec![7; 32 * 3 * 224 * 224],
    )]
}

/// A JSON request with one parameter of its own.
pub(crate) fn json_request(inputs: Vec<Tensor>, timeout_us: Option<u64>, output: Option<&str>) -> Vec<u8> {
    let outputs = output.map(|name| RequestedOutput {
        name: name.to_owned(),
        ..RequestedOutput::default()
    });
    InferRequest {
        id: Some("seven".into()),
        inputs,
        outputs: outputs.into_iter().collect(),
        timeout_us,
        ..InferRequest::default()
    }
    .encode_json()
}
