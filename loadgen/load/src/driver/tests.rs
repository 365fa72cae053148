//! Steps with servers of various behaviours, over real sockets.

use super::*;
use crate::arrivals::Arrivals;
use crate::endpoint::{Access, Endpoint};
use crate::live::Watch;
use crate::payload::{self, Body, Encoding};
use crate::reply::{Expected, Limit};
use crate::schedule::Schedule;
use nix::sys::socket::{self, MsgFlags};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tierlab_analysis::record::{Failure, Outcome, Sample};

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nserver-timing: infer;dur=1.5\r\n\
    content-length: 89\r\n\r\n\
    {\"model_name\":\"m\",\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[1,1],\"data\":[0.25]}]}";

/// Body of that reply.
fn document() -> &'static [u8] {
    let start = REPLY.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    &REPLY[start + 4..]
}

/// Received request.
struct Received {
    /// Number of the request on its connection, from 0.
    number: usize,
    body_bytes: usize,
}

/// Starts a server that calls `answer` after each request, and continues while it returns true. Its threads end with
/// the connections.
fn server(answer: fn(&mut TcpStream, Received) -> bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                let mut requests = (0..)
                    .map_while(|number| read_request(&mut reader).map(|body_bytes| Received { number, body_bytes }));
                while requests.next().is_some_and(|received| answer(&mut stream, received)) {}
            });
        }
    });
    address
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<usize> {
    let mut length = None;
    let mut line = String::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|&read| read > 0)?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length?];
    reader.read_exact(&mut body).ok()?;
    Some(body.len())
}

/// Returns the infer route of a server, without access settings.
pub(super) fn route(address: SocketAddr) -> HttpRoute {
    let endpoint = Endpoint::new(&format!("http://{address}"), &Access::default()).unwrap();
    HttpRoute::infer(Arc::new(endpoint), "/v2/models/m/infer").unwrap()
}

/// Step of 200 requests per second for 300 ms, constant.
fn step(address: SocketAddr, users: usize) -> Step {
    let window = Duration::from_millis(300);
    let schedule = Schedule::new(&Arrivals::constant(), 200.0, Duration::ZERO, window, 1);
    Step {
        routes: vec![Route::Http(route(address))],
        bodies: Arc::new(vec![payload::joined(&[1], Encoding::Json)]),
        users,
        sending: Sending::default(),
        timeout: Duration::from_secs(5),
        drain: Duration::from_secs(5),
        watch: Watch::default(),
        schedule: Arc::new(schedule),
        limit: Limit::of(1 << 20),
        expected: Arc::new(Expected::new("m", &[], None)),
    }
}

async fn samples(step: Step) -> Vec<Sample> {
    let requests = step.schedule.due_us.len();
    let finished = run(step, &Interrupt::never()).await.unwrap().unwrap();
    assert_eq!(finished.samples.len(), requests);
    let in_order = |sample: &Sample| sample.due_us <= sample.sent_us && sample.sent_us <= sample.done_us;
    let out_of_order: Vec<_> = finished.samples.iter().filter(|sample| !in_order(sample)).collect();
    assert!(out_of_order.is_empty(), "{out_of_order:?}");
    finished.samples
}

fn all(samples: &[Sample], outcome: Outcome) -> bool {
    samples.iter().all(|sample| sample.outcome == outcome)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reply_is_read_and_its_timings_with_it() {
    let samples = samples(step(server(|stream, _| stream.write_all(REPLY).is_ok()), 8)).await;
    assert!(all(&samples, Outcome::Ok), "{samples:?}");
    assert!(samples.iter().all(|sample| sample.timings.is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_has_a_connection_of_its_own_on_demand() {
    // The server leaves a connection open, and answers its first request only.
    let server = server(|stream, received| received.number == 0 && stream.write_all(REPLY).is_ok());
    let new_connections = Step {
        sending: Sending {
            connections: ConnectionUse::New,
            ..Sending::default()
        },
        ..step(server, 8)
    };
    let samples = samples(new_connections).await;
    assert!(all(&samples, Outcome::Ok), "{samples:?}");
}

/// Starts a server that counts its requests.
fn counting() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let counted = Arc::<AtomicUsize>::default();
    let count = counted.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let count = count.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while read_request(&mut reader).is_some() {
                    count.fetch_add(1, Ordering::Relaxed);
                    if stream.write_all(REPLY).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, counted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_of_a_fleet_take_turns() {
    let servers = [counting(), counting(), counting()];
    let fleet = Step {
        routes: servers
            .iter()
            .map(|(address, _)| Route::Http(route(*address)))
            .collect(),
        ..step(servers[0].0, 8)
    };
    let samples = samples(fleet).await;
    assert!(all(&samples, Outcome::Ok), "{samples:?}");
    for (number, (_, counted)) in servers.iter().enumerate() {
        let expected = samples.len().div_ceil(3) - usize::from(number >= samples.len() % 3 && samples.len() % 3 > 0);
        assert_eq!(
            counted.load(Ordering::Relaxed),
            expected,
            "server {number} of {}",
            samples.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_fleet_that_is_gone_fails_its_turns_alone() {
    let (address, counted) = counting();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let route = |address| Route::Http(route(address));
    let fleet = Step {
        routes: vec![route(address), route(gone)],
        ..step(address, 8)
    };
    let samples = samples(fleet).await;
    let failed = samples.iter().filter(|sample| !sample.is_ok()).count();
    assert_eq!(
        (failed, counted.load(Ordering::Relaxed)),
        (samples.len() / 2, samples.len().div_ceil(2))
    );
}

#[tokio::test]
async fn a_step_without_a_server_is_refused() {
    let nobody = Step {
        routes: Vec::new(),
        ..step(SocketAddr::from(([127, 0, 0, 1], 9)), 1)
    };
    let refused = run(nobody, &Interrupt::never()).await.unwrap_err();
    assert!(matches!(refused, DriverError::NoServer), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_server_closed_is_made_again() {
    // The connection ends with the last byte of the reply: a request written before the client could know of it would
    // fail rightly.
    let closing = server(|stream, _| {
        let _ = socket::send(
            stream.as_raw_fd(),
            REPLY,
            MsgFlags::from_bits_retain(nix::libc::MSG_MORE),
        );
        let _ = stream.shutdown(Shutdown::Write);
        false
    });
    let samples = samples(step(closing, 8)).await;
    assert!(all(&samples, Outcome::Ok), "{samples:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_ends_with_its_connection_leaves_none_to_the_next_request() {
    let ending = server(|stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let _ = stream.write_all(document());
        false
    });
    // One user: a ticket waits whenever a reply arrives.
    let samples = samples(step(ending, 1)).await;
    assert!(all(&samples, Outcome::Ok), "{samples:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_come_in_parts_and_in_chunks() {
    let chunked = server(|stream, _| {
        let (first, rest) = document().split_at(1);
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n";
        let length = format!("\r\n{:x}\r\n", rest.len());
        let parts = [
            head.as_bytes(),
            b"\r\n1\r\n",
            first,
            length.as_bytes(),
            rest,
            b"\r\n0\r\n\r\n",
        ];
        parts.into_iter().all(|part| {
            thread::sleep(Duration::from_millis(1));
            stream.write_all(part).is_ok()
        })
    });
    let samples = samples(step(chunked, 8)).await;
    assert!(all(&samples, Outcome::Ok), "{samples:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_arrive_whole() {
    const LARGE: usize = 300_000;
    let counting = server(|stream, received| received.body_bytes == LARGE && stream.write_all(REPLY).is_ok());
    let body = Body::new(vec![b' '; LARGE].into());
    let samples = samples(Step {
        bodies: Arc::new(vec![body]),
        ..step(counting, 8)
    })
    .await;
    assert!(all(&samples, Outcome::Ok), "{samples:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_fails_its_request_only() {
    // The second request on each connection is cut off in the middle of its reply.
    let breaking = server(|stream, received| {
        let reply = &REPLY[..REPLY.len() - received.number];
        stream.write_all(reply).is_ok() && received.number == 0
    });
    let finished = run(step(breaking, 1), &Interrupt::never()).await.unwrap().unwrap();
    let example = &finished.examples[&Failure::Broken];
    assert!(example.contains("the connection broke (end of file"), "{example}");
    let samples = finished.samples;
    let broken = samples
        .iter()
        .filter(|sample| sample.outcome == Outcome::Failed(Failure::Broken));
    assert_eq!(broken.count(), samples.len() / 2, "{samples:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_past_their_limit_are_given_up_with_their_age() {
    let slow = server(|stream, _| {
        thread::sleep(Duration::from_secs(2));
        stream.write_all(REPLY).is_ok()
    });
    let samples = samples(Step {
        timeout: Duration::from_millis(100),
        ..step(slow, 200)
    })
    .await;
    assert!(all(&samples, Outcome::Failed(Failure::Timeout)), "{samples:?}");
    // The limit counts from the begin of a request, which is before its first byte is sent.
    let ages = samples.iter().map(|sample| (sample.latency_us(), sample.service_us()));
    assert!(
        ages.clone()
            .all(|(latency_us, service_us)| latency_us >= 100_000 && service_us < 1_000_000),
        "{:?}",
        ages.collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_fails_every_ticket_and_the_step_ends() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let samples = samples(step(closed, 8)).await;
    assert!(all(&samples, Outcome::Failed(Failure::Connect)), "{samples:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_answers_is_a_drain_limit_with_its_age() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let step = Step {
        timeout: Duration::from_secs(60),
        drain: Duration::from_millis(200),
        ..step(silent.local_addr().unwrap(), 2)
    };
    let finished = run(step, &Interrupt::never()).await.unwrap().unwrap();
    // Two are in flight and the others were never sent; each appears once.
    assert_eq!(finished.samples.len(), 60);
    assert!(all(&finished.samples, Outcome::Failed(Failure::DrainLimit)));
    let aged = |sample: &Sample| sample.done_us >= 500_000 && sample.latency_us() >= 200_000;
    assert!(finished.samples.iter().all(aged), "{finished:?}");
    assert!(finished.observed.limit_hit);
}
