//! Models for `scripts/bench/instances`, and their runs in process with so many sessions and threads.
//!
//! ```text
//! layouts generate FOLDER                         image, text and mlp, as NAME/1/model.onnx, with seeded weights
//! layouts run GRAPH SECONDS SESSIONSxTHREADS...   for each layout in turn, one line of JSON: the median time of a run in a
//!                                                 session that is alone, and runs a second in all of them at once
//! layouts ask ADDRESS MODEL CLIENTS SECONDS       a server at ADDRESS instead, by so many clients of which each sends the next
//!                                                 request when it has its answer: answers a second, medians of the latency and
//!                                                 of the session's part of it
//! ```
//! A layout that ends in `s` has threads that spin between nodes. ORT_DYLIB_PATH names ONNX Runtime's library.

use anyhow::{Context, Result, anyhow, bail};
use ort::environment::Environment;
use ort::session::builder::SessionBuilder;
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Tensor, TensorElementType};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tierlab_models::generators::{ModelKind, Request, Size};
use tierlab_models::onnx::graph::{int, ints};
use tierlab_models::onnx::messages::ElementType;
use tierlab_models::onnx::{GraphBuilder, ModelProto, write_model};
use tierlab_models::weights::{Weights, he_bound};

/// Seed of the weights.
const SEED: u64 = 1;
/// Height and width of the picture.
const PIXELS: i64 = 640;
/// Channels and strides of the picture's convolutions.
const CONVS: [(usize, i64); 9] = [
    (32, 2),
    (48, 2),
    (64, 1),
    (96, 2),
    (96, 1),
    (128, 2),
    (128, 1),
    (192, 2),
    (192, 1),
];
/// Tokens of the text, its vocabulary, and the transformer's width, heads and layers.
const TOKENS: usize = 64;
const VOCABULARY: usize = 8000;
const WIDTH: usize = 256;
const HEADS: usize = 4;
const LAYERS: usize = 6;

struct Net {
    graph: GraphBuilder,
    weights: Weights,
}

impl Net {
    fn new(name: &str) -> Self {
        Self {
            graph: GraphBuilder::new(name),
            weights: Weights::new(name, SEED),
        }
    }

    fn uniform(&mut self, name: &str, dims: &[usize], fan_in: usize) -> String {
        let values = self.weights.uniform(dims.iter().product(), he_bound(fan_in));
        let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        self.graph.constant(name, ElementType::Float, &dims, values)
    }

    fn matmul(&mut self, name: &str, input: &str, [from, to]: [usize; 2]) -> String {
        let weight = self.uniform(&format!("{name}.weight"), &[from, to], from);
        self.graph.node(name, "MatMul", &[input, &weight], &[])
    }

    /// `x * sigmoid(x)`.
    fn swish(&mut self, input: &str) -> String {
        let gate = self.graph.node(&format!("{input}.gate"), "Sigmoid", &[input], &[]);
        self.graph.node(&format!("{input}.act"), "Mul", &[input, &gate], &[])
    }

    fn norm(&mut self, name: &str, input: &str) -> String {
        let scale = self
            .graph
            .floats(&format!("{name}.scale"), &[WIDTH as i64], &[1.0; WIDTH]);
        self.graph.node(name, "LayerNormalization", &[input, &scale], &[])
    }
}

/// A stack of convolutions over one picture of 640x640.
fn image() -> ModelProto {
    let mut net = Net::new("image");
    let picture = net.graph.input("image", ElementType::Uint8, &[1, 3, PIXELS, PIXELS]);
    let mut value = net.graph.node("floats", "Cast", &[&picture], &[int("to", 1)]);
    let small = net.graph.floats("small", &[1], &[1.0 / 255.0]);
    value = net.graph.node("scaled", "Mul", &[&value, &small], &[]);
    let mut from = 3;
    for (i, (to, stride)) in CONVS.into_iter().enumerate() {
        let weight = net.uniform(&format!("conv{i}.weight"), &[to, from, 3, 3], from * 9);
        let window = [
            ints("kernel_shape", &[3, 3]),
            ints("pads", &[1; 4]),
            ints("strides", &[stride; 2]),
        ];
        value = net.graph.node(&format!("conv{i}"), "Conv", &[&value, &weight], &window);
        value = net.swish(&value);
        from = to;
    }
    let pooled = net.graph.node("pooled", "GlobalAveragePool", &[&value], &[]);
    let flat = net.graph.node("flat", "Flatten", &[&pooled], &[]);
    let logits = net.matmul("logits", &flat, [from, 100]);
    net.graph.output(&logits, ElementType::Float, &[1, 100]);
    net.graph.finish("Convolutions over 640x640 pixels with random weights")
}

/// A transformer's encoder over one text of 64 tokens.
fn text() -> ModelProto {
    let mut net = Net::new("text");
    let tokens = net.graph.input("tokens", ElementType::Int64, &[1, TOKENS as i64]);
    let table = net.uniform("table", &[VOCABULARY, WIDTH], WIDTH);
    let mut value = net.graph.node("embedded", "Gather", &[&table, &tokens], &[]);
    let width = (WIDTH / HEADS) as i64;
    let split = net.graph.ints("split", &[4], &[1, TOKENS as i64, HEADS as i64, width]);
    let joined = net.graph.ints("joined", &[3], &[1, TOKENS as i64, WIDTH as i64]);
    let scale = net.graph.floats("scale", &[1], &[(width as f32).powf(-0.5)]);
    for layer in 0..LAYERS {
        let name = |part: &str| format!("layer{layer}.{part}");
        let normed = net.norm(&name("norm"), &value);
        let mut head = |part: &str, order: [i64; 4]| {
            let flat = net.matmul(&name(part), &normed, [WIDTH, WIDTH]);
            let apart = net
                .graph
                .node(&name(&format!("{part}.split")), "Reshape", &[&flat, &split], &[]);
            net.graph.node(
                &name(&format!("{part}.heads")),
                "Transpose",
                &[&apart],
                &[ints("perm", &order)],
            )
        };
        let (query, key, values) = (
            head("q", [0, 2, 1, 3]),
            head("k", [0, 2, 3, 1]),
            head("v", [0, 2, 1, 3]),
        );
        let scores = net.graph.node(&name("scores"), "MatMul", &[&query, &key], &[]);
        let scaled = net.graph.node(&name("scaled"), "Mul", &[&scores, &scale], &[]);
        let shares = net
            .graph
            .node(&name("shares"), "Softmax", &[&scaled], &[int("axis", -1)]);
        let mixed = net.graph.node(&name("mixed"), "MatMul", &[&shares, &values], &[]);
        let transposed = net
            .graph
            .node(&name("turned"), "Transpose", &[&mixed], &[ints("perm", &[0, 2, 1, 3])]);
        let flat = net.graph.node(&name("flat"), "Reshape", &[&transposed, &joined], &[]);
        let attended = net.matmul(&name("out"), &flat, [WIDTH, WIDTH]);
        value = net.graph.node(&name("attended"), "Add", &[&value, &attended], &[]);
        let normed = net.norm(&name("norm2"), &value);
        let up = net.matmul(&name("up"), &normed, [WIDTH, 4 * WIDTH]);
        let act = net.swish(&up);
        let down = net.matmul(&name("down"), &act, [4 * WIDTH, WIDTH]);
        value = net.graph.node(&name("done"), "Add", &[&value, &down], &[]);
    }
    let pooled = net.graph.node(
        "pooled",
        "ReduceMean",
        &[&value],
        &[ints("axes", &[1]), int("keepdims", 0)],
    );
    net.graph.output(&pooled, ElementType::Float, &[1, WIDTH as i64]);
    net.graph
        .finish("A transformer's encoder over 64 tokens with random weights")
}

fn generate(folder: &Path) -> Result<()> {
    let mlp = Request {
        kind: ModelKind::Mlp,
        size: Size::Small,
        seed: SEED,
    };
    for (name, model) in [("image", image()), ("text", text()), ("mlp", mlp.build())] {
        let folder = folder.join(name).join("1");
        fs::create_dir_all(&folder)?;
        write_model(&model, &mut File::create(folder.join("model.onnx"))?)?;
    }
    Ok(())
}

/// Sessions of one layout.
struct Layout {
    name: String,
    sessions: Vec<Session>,
}

impl Layout {
    fn open(environment: &Environment, graph: &[u8], name: &str) -> Result<Self> {
        let spins = name.ends_with('s');
        let (count, threads) = name
            .trim_end_matches('s')
            .split_once('x')
            .context("a layout such as 2x1")?;
        let (count, threads): (usize, usize) = (count.parse()?, threads.parse()?);
        let open = |_| {
            let text = |e: ort::Error<SessionBuilder>| anyhow!("{e}");
            let mut builder = Session::builder(environment)?
                .with_intra_threads(threads)
                .map_err(text)?
                .with_inter_threads(1)
                .map_err(text)?
                .with_intra_op_spinning(spins)
                .map_err(text)?;
            Ok(builder.commit_from_memory(graph)?)
        };
        let sessions = (0..count).map(open).collect::<Result<_>>()?;
        let name = name.to_owned();
        Ok(Self { name, sessions })
    }

    /// The median time of a run, in microseconds.
    fn alone_us(&mut self, time: Duration) -> Result<f64> {
        let session = &mut self.sessions[0];
        let input = zeros(session)?;
        let values: [SessionInputValue<'_>; 1] = [(&input).into()];
        session.run(values.as_slice())?;
        let mut times = Vec::new();
        let began = Instant::now();
        while times.is_empty() || began.elapsed() < time {
            let began = Instant::now();
            session.run(values.as_slice())?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// Runs a second in all sessions at once, each without a pause.
    fn together(&mut self, time: Duration) -> Result<f64> {
        let (stop, start) = (AtomicBool::new(false), Barrier::new(self.sessions.len() + 1));
        let (stop, start) = (&stop, &start);
        std::thread::scope(|scope| {
            let sessions = self.sessions.iter_mut();
            let threads: Vec<_> = sessions
                .map(|session| scope.spawn(move || repeat(session, stop, start)))
                .collect();
            start.wait();
            std::thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            let rates = threads.into_iter().map(|thread| match thread.join() {
                Ok(rate) => rate,
                Err(_) => bail!("a session's thread panicked"),
            });
            rates.sum()
        })
    }
}

/// Runs until it is stopped; runs a second.
fn repeat(session: &mut Session, stop: &AtomicBool, start: &Barrier) -> Result<f64> {
    let input = zeros(session)?;
    let values: [SessionInputValue<'_>; 1] = [(&input).into()];
    start.wait();
    let (began, mut runs) = (Instant::now(), 0.0);
    while !stop.load(Ordering::Relaxed) {
        session.run(values.as_slice())?;
        runs += 1.0;
    }
    Ok(runs / began.elapsed().as_secs_f64())
}

fn zeros(session: &Session) -> Result<DynValue> {
    let input = session.inputs().first().context("no input")?.dtype();
    let dims = input.tensor_shape().context("no tensor")?.iter();
    let shape: Vec<i64> = dims.map(|&dim| dim.max(1)).collect();
    let count = usize::try_from(shape.iter().product::<i64>())?;
    Ok(match input.tensor_type() {
        Some(TensorElementType::Float32) => Tensor::from_array((shape, vec![0.0_f32; count]))?.into_dyn(),
        Some(TensorElementType::Int64) => Tensor::from_array((shape, vec![0_i64; count]))?.into_dyn(),
        Some(TensorElementType::Uint8) => Tensor::from_array((shape, vec![0_u8; count]))?.into_dyn(),
        other => bail!("an input of {other:?}"),
    })
}

/// Time limit of one reply.
const REPLY: Duration = Duration::from_secs(60);

/// One connection to a server, with the one request that it sends.
struct Client {
    reader: BufReader<TcpStream>,
    request: Vec<u8>,
    body: Vec<u8>,
}

impl Client {
    fn connect(address: &str, model: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY))?;
        Ok(Self {
            reader: BufReader::with_capacity(64 * 1024, stream),
            request: request(model)?,
            body: Vec::new(),
        })
    }

    /// Sends the request and reads the whole reply; the session's part of its time, in microseconds.
    fn infer(&mut self) -> Result<f64> {
        self.reader.get_mut().write_all(&self.request)?;
        let (mut line, mut length, mut infer_us) = (String::new(), None, None);
        self.reader.read_line(&mut line)?;
        let status = line.trim_end().to_owned();
        loop {
            line.clear();
            if self.reader.read_line(&mut line)? == 0 {
                bail!("the server closed the connection");
            }
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Some(value.trim().parse()?),
                "server-timing" => infer_us = infer_us.or_else(|| infer_ms(value).map(|ms| ms * 1e3)),
                _ => {}
            }
        }
        self.body.resize(length.context("a reply without a length")?, 0);
        self.reader.read_exact(&mut self.body)?;
        if !status.starts_with("HTTP/1.1 200") {
            bail!("{status}: {}", String::from_utf8_lossy(&self.body));
        }
        infer_us.context("no time of the session in Server-Timing")
    }
}

/// The session's part of a `Server-Timing` header, in milliseconds.
fn infer_ms(header: &str) -> Option<f64> {
    let part = header
        .split(',')
        .find_map(|part| part.trim().strip_prefix("infer;dur="))?;
    part.split(';').next()?.parse().ok()
}

/// The bytes of a request with binary tensors for one of the models, or for a copy of it (`mlp-2x1`).
fn request(model: &str) -> Result<Vec<u8>> {
    let (name, datatype, shape, data) = match model.split('-').next() {
        Some("image") => ("image", "UINT8", format!("[1,3,{PIXELS},{PIXELS}]"), {
            vec![0; (3 * PIXELS * PIXELS) as usize]
        }),
        Some("text") => ("tokens", "INT64", format!("[1,{TOKENS}]"), {
            (0..TOKENS as i64).flat_map(i64::to_le_bytes).collect()
        }),
        Some("mlp") => ("input", "FP32", "[1,64]".to_owned(), vec![0; 256]),
        _ => bail!("no request for model {model}: image, text or mlp"),
    };
    let head = format!(
        r#"{{"inputs":[{{"name":"{name}","datatype":"{datatype}","shape":{shape},"parameters":{{"binary_data_size":{}}}}}],"parameters":{{"binary_data_output":true}}}}"#,
        data.len()
    );
    let mut bytes = format!(
        "POST /v2/models/{model}/infer HTTP/1.1\r\nHost: bench\r\nContent-Type: application/octet-stream\r\n\
         Inference-Header-Content-Length: {}\r\nContent-Length: {}\r\n\r\n{head}",
        head.len(),
        head.len() + data.len()
    )
    .into_bytes();
    bytes.extend(data);
    Ok(bytes)
}

/// Figures of one client: answers per second, and latency and session time of each answer, in microseconds.
struct RunFigures {
    per_s: f64,
    latencies: Vec<f64>,
    infers: Vec<f64>,
}

fn measure(address: &str, model: &str, clients: usize, time: Duration) -> Result<()> {
    let connect = |_| Client::connect(address, model);
    let mut clients = (0..clients).map(connect).collect::<Result<Vec<_>>>()?;
    for client in &mut clients {
        client.infer()?;
    }
    let start = &Barrier::new(clients.len());
    let figures: Vec<RunFigures> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(move || closed_loop(client, start, time)))
            .collect();
        let all = threads.into_iter().map(|thread| match thread.join() {
            Ok(figures) => figures,
            Err(_) => bail!("a client's thread panicked"),
        });
        all.collect::<Result<_>>()
    })?;
    let median = |of: fn(&RunFigures) -> &Vec<f64>| {
        let mut all: Vec<f64> = figures.iter().flat_map(of).copied().collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    // Each client's own rate: the last answer of one may come long after another's.
    let per_s: f64 = figures.iter().map(|one| one.per_s).sum();
    let (latency_us, infer_us) = (median(|one| &one.latencies), median(|one| &one.infers));
    println!(r#"{{"per_s":{per_s:.2},"latency_us":{latency_us:.1},"infer_us":{infer_us:.1}}}"#);
    Ok(())
}

fn closed_loop(client: &mut Client, start: &Barrier, time: Duration) -> Result<RunFigures> {
    let (mut latencies, mut infers) = (Vec::new(), Vec::new());
    start.wait();
    let began = Instant::now();
    while latencies.is_empty() || began.elapsed() < time {
        let sent = Instant::now();
        infers.push(client.infer()?);
        latencies.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    let per_s = latencies.len() as f64 / began.elapsed().as_secs_f64();
    Ok(RunFigures {
        per_s,
        latencies,
        infers,
    })
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["generate", folder] => generate(Path::new(folder)),
        ["run", graph, seconds, layouts @ ..] if !layouts.is_empty() => {
            let library = std::env::var("ORT_DYLIB_PATH").context("ORT_DYLIB_PATH is not set")?;
            let environment = ort::init_from(library)?.with_telemetry(false).build()?;
            let graph = fs::read(graph)?;
            let time = Duration::from_secs_f64(seconds.parse()?);
            for name in layouts {
                let mut layout = Layout::open(&environment, &graph, name)?;
                let (alone_us, per_s) = (layout.alone_us(time)?, layout.together(time)?);
                let name = &layout.name;
                println!(r#"{{"layout":"{name}","alone_us":{alone_us:.1},"per_s":{per_s:.2}}}"#);
            }
            Ok(())
        }
        ["ask", address, model, clients, seconds] => measure(
            address,
            model,
            clients.parse()?,
            Duration::from_secs_f64(seconds.parse()?),
        ),
        _ => bail!(
            "layouts generate FOLDER | layouts run GRAPH SECONDS SESSIONSxTHREADS... | layouts ask ADDRESS MODEL CLIENTS SECONDS"
        ),
    }
}
