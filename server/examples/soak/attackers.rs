//! The attackers: each repeats one attack until it is stopped.
//!
//! In: a server's addresses. Out: how often each attacked and what it was told. The attacks themselves are those of the tests.

use crate::attacks::{connections, graphs, messages};
use crate::served::{CONSTANT, ENDLESS, JOINED, MODEL, NESTED, SLOW, Served};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two rounds of one attacker: the machine is shared with those who mean well.
const PAUSE: Duration = Duration::from_millis(100);
/// A call that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(60);
/// Decompressed, just below the most that a body may have.
const LARGE_BODY_BYTES: usize = 60 << 20;
/// Small on the wire.
const SMALL_BYTES: usize = 64 << 10;
/// Connections of a crowd: more than the server has places for.
const CROWD: usize = 700;

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const LOAD: &str = "/inference.GRPCInferenceService/RepositoryModelLoad";

/// Some seconds of one operator.
const SLOW_REQUEST: &str = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[60000]}]}"#;

/// Rows of the damaged page.
const DAMAGED_REQUEST: &str =
    r#"{"inputs":[{"name":"entity_id","datatype":"INT64","shape":[6],"data":[137,582,782,64,261,120]}]}"#;

type Attack = Box<dyn Fn(&AtomicBool) -> io::Result<String> + Send>;

/// One who attacks.
pub(crate) struct Attacker {
    pub(crate) name: &'static str,
    attack: Attack,
}

/// Outcome of an attacker.
pub(crate) struct AttackOutcome {
    name: &'static str,
    pub(crate) rounds: u64,
    replies: BTreeMap<String, u64>,
}

impl fmt::Display for AttackOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:32} {:6} rounds:", self.name, self.rounds)?;
        for (reply, times) in &self.replies {
            write!(f, " {reply} x{times}")?;
        }
        Ok(())
    }
}

impl Attacker {
    pub(crate) fn attack(self, stop: &AtomicBool, until: Instant) -> AttackOutcome {
        let mut outcome = AttackOutcome {
            name: self.name,
            rounds: 0,
            replies: BTreeMap::new(),
        };
        while !stop.load(Ordering::Relaxed) && Instant::now() < until {
            let reply = (self.attack)(stop).unwrap_or_else(|error| error.kind().to_string());
            *outcome.replies.entry(reply).or_default() += 1;
            outcome.rounds += 1;
            std::thread::sleep(PAUSE);
        }
        outcome
    }

    /// Each one there is.
    #[allow(clippy::too_many_lines, reason = "a table of attackers")]
    pub(crate) fn all(served: &Served) -> Vec<Self> {
        let (http, grpc) = (served.address.clone(), served.grpc_address.clone());
        let infer = format!("/v2/models/{MODEL}/infer");
        let mut all = Vec::new();
        let mut add = |name, attack: Attack| all.push(Self { name, attack });
        for (name, key) in [
            ("gRPC: empty inputs", messages::EMPTY_INPUT),
            ("gRPC: empty outputs", messages::EMPTY_OUTPUT),
            ("gRPC: empty parameters", messages::EMPTY_PARAMETER),
            ("gRPC: empty raw contents", messages::EMPTY_RAW),
        ] {
            add(
                name,
                calls(&grpc, INFER, &messages::empty_entries(MODEL, key, SMALL_BYTES)),
            );
        }
        let texts = messages::typed_contents(MODEL, true, LARGE_BODY_BYTES / 2);
        add("gRPC: empty texts", calls(&grpc, INFER, &texts));
        let zeros = messages::typed_contents(MODEL, false, LARGE_BODY_BYTES);
        add("gRPC: zeros of one byte", calls(&grpc, INFER, &zeros));
        let load = messages::load_parameters(MODEL, SMALL_BYTES);
        add("gRPC: parameters of a load", calls(&grpc, LOAD, &load));
        let texts = messages::json_elements("BYTES", "\"\"", LARGE_BODY_BYTES / 3);
        add(
            "gzip: empty texts",
            posts(&http, &infer, "content-encoding: gzip\r\n", &messages::gzip(&texts)),
        );
        let doubles = messages::json_elements("FP64", "0", LARGE_BODY_BYTES / 2);
        add(
            "gzip: doubles",
            posts(&http, &infer, "content-encoding: gzip\r\n", &messages::gzip(&doubles)),
        );
        add("JSON: doubles", posts(&http, &infer, "", &doubles));
        add(
            "JSON: outputs",
            posts(&http, &infer, "", &messages::json_outputs(LARGE_BODY_BYTES)),
        );
        add(
            "JSON: a shape",
            posts(&http, &infer, "", &messages::json_shape(LARGE_BODY_BYTES)),
        );
        let endless = format!("/v2/models/{ENDLESS}/infer");
        add(
            "a run without an end",
            posts(&http, &endless, "", endless_request().as_bytes()),
        );
        let slow = format!("/v2/models/{SLOW}/infer");
        add(
            "an operator that takes long",
            posts(&http, &slow, "", SLOW_REQUEST.as_bytes()),
        );
        let joined = format!("/v2/models/{JOINED}/infer");
        let damaged = || posts(&http, &joined, "", DAMAGED_REQUEST.as_bytes());
        add(
            "NFS: endless empty fragments",
            flooded(&served.storage.is_flooding, damaged()),
        );
        add("Parquet: a damaged page", damaged());
        for (name, model) in [
            ("a session without an end", NESTED),
            ("a constant of gigabytes", CONSTANT),
        ] {
            let load = format!("/v2/repository/models/{model}/load");
            add(name, posts(&http, &load, "", b"{}"));
        }
        let unload = format!("/v2/repository/models/{MODEL}/unload");
        let page = "origin: http://elsewhere.example\r\ncontent-type: text/plain\r\n";
        add("a web page that unloads", posts(&http, &unload, page, b"{}"));
        add("replies that nobody takes", unread(&http));
        add("a reply taken by the byte", trickle(&http));
        add(
            "health that nobody takes",
            crowd(&http, CROWD, |address| {
                connections::request_unread(address, "/v2/health/live", 4, 0)
            }),
        );
        add(
            "health that is watched",
            crowd(&grpc, CROWD, |address| connections::watch_health(address, 1)),
        );
        add(
            "connections that say nothing",
            crowd(&http, CROWD, |address| connections::connect(address)),
        );
        add(
            "heads that never end",
            crowd(&http, CROWD, |address| connections::send(address, b"POST /v2/mod")),
        );
        all
    }
}

/// Sends one request over HTTP/1.1 and reads the status of its reply.
fn posts(address: &str, path: &str, headers: &str, body: &[u8]) -> Attack {
    let (address, request) = (address.to_owned(), messages::post(path, headers, body));
    Box::new(move |_| {
        let mut stream = connections::connect(&address)?;
        // An early refusal closes before all is sent, and its reply may be there still.
        let sent = stream.write_all(&request);
        let mut head = [0; 12];
        match stream.read_exact(&mut head) {
            Ok(()) => Ok(String::from_utf8_lossy(&head[9..]).into_owned()),
            Err(error) => Err(sent.err().unwrap_or(error)),
        }
    })
}

/// Attacks while the storage floods its clients.
fn flooded(is_flooding: &Arc<AtomicBool>, attack: Attack) -> Attack {
    let is_flooding = Arc::clone(is_flooding);
    Box::new(move |stop| {
        is_flooding.store(true, Ordering::Relaxed);
        let reply = attack(stop);
        is_flooding.store(false, Ordering::Relaxed);
        reply
    })
}

/// Sends one call of gRPC and reads its status.
fn calls(address: &str, path: &'static str, message: &[u8]) -> Attack {
    let uri = format!("http://{address}{path}");
    let frame = bytes::Bytes::from(messages::frame(message, false));
    Box::new(move |_| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client: Client<_, Full<bytes::Bytes>> =
                Client::builder(TokioExecutor::new()).http2_only(true).build_http();
            let request = http::Request::post(&uri)
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(Full::new(frame.clone()))
                .map_err(io::Error::other)?;
            let response = tokio::time::timeout(LIMIT, client.request(request)).await;
            let (head, body) = response?.map_err(io::Error::other)?.into_parts();
            let body = tokio::time::timeout(LIMIT, body.collect())
                .await?
                .map_err(io::Error::other)?;
            let status = |headers: &http::HeaderMap| headers.get("grpc-status").cloned();
            let status = status(&head.headers).or_else(|| body.trailers().and_then(status));
            Ok(status.map_or_else(
                || "no status".to_owned(),
                |s| format!("status {}", s.to_str().unwrap_or("?")),
            ))
        })
    })
}

/// A request whose run goes round for ever.
fn endless_request() -> String {
    let iterations = graphs::ENDLESS;
    format!(r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[1,1],"data":[{iterations}]}}]}}"#)
}

/// Asks for much on many streams and takes nothing, until the server ends the connections.
fn unread(address: &str) -> Attack {
    let address = address.to_owned();
    Box::new(move |_| {
        let open = |_| connections::request_unread(&address, "/openapi.json", 64, 0);
        let held: Vec<_> = (0..32).map(open).collect::<io::Result<_>>()?;
        for connection in held {
            connections::read_until_closed(connection)?;
        }
        Ok("all closed".to_owned())
    })
}

/// Takes a reply byte by byte, for as long as the server goes on with it.
fn trickle(address: &str) -> Attack {
    let address = address.to_owned();
    Box::new(move |stop| {
        let stream = connections::stream_id(0);
        let mut held = connections::request_unread(&address, "/openapi.json", 1, 1)?;
        while !stop.load(Ordering::Relaxed) && held.write_all(&connections::open_window(stream, 1)).is_ok() {
            std::thread::sleep(PAUSE);
        }
        let frames = connections::read_until_end(&mut held, stream)?;
        let reset = frames.last().is_some_and(|frame| frame.kind == connections::RST_STREAM);
        let bytes: usize = frames.iter().map(|frame| frame.data().len()).sum();
        Ok(if reset {
            "reset"
        } else if bytes > 0 {
            "served"
        } else {
            "ended"
        }
        .to_owned())
    })
}

/// Holds so many connections for a while.
fn crowd(address: &str, size: usize, join: impl Fn(&str) -> io::Result<TcpStream> + Send + 'static) -> Attack {
    let address = address.to_owned();
    Box::new(move |stop| {
        let held: Vec<_> = (0..size).map_while(|_| join(&address).ok()).collect();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
        }
        Ok(if held.len() == size {
            "all held"
        } else {
            "not all let in"
        }
        .to_owned())
    })
}
