//! A small open-loop client for `scripts/bench/overload` and `scripts/bench/server`: it keeps answers and refusals apart,
//! which a sweep of the load generator does not.
//!
//! `open_loop ADDRESS MODEL ASKED CONNECTIONS RATE:SECONDS...` sends JSON requests, one phase after the other, on a constant
//! schedule. ASKED is `ENTITIES,ROWS`, for ROWS entities below ENTITIES, or `@FILE`, for the same body each time. Latency
//! runs from the scheduled time to the last byte of the reply. One thread polls the clock and the sockets and keeps its core
//! busy, so that no sleep and no wake-up of the client is in a latency.
//! Prints one line of JSON for each phase; `first_s` is its first second. Exit code 1 when the server cannot be reached.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time without a reply after which the server has failed.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Replies that are taken at once.
const EVENTS: usize = 64;

/// Outcome of one request.
#[derive(Clone, Copy)]
struct Sample {
    /// Scheduled, since the start of its phase.
    due: Duration,
    latency: Duration,
    /// 0 where the connection failed.
    status: u16,
}

/// Server and request to send to it.
#[derive(Clone)]
struct Target {
    address: String,
    model: String,
    body_source: RequestBody,
}

/// The body of a request.
#[derive(Clone)]
enum RequestBody {
    /// So many rows of entities below a number.
    Entities { below: u64, rows: u64 },
    /// The same for every request.
    Body(Arc<str>),
}

impl RequestBody {
    fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix('@') {
            return std::fs::read_to_string(path).ok().map(|body| Self::Body(body.into()));
        }
        let (below, rows) = text.split_once(',')?;
        Some(Self::Entities {
            below: below.parse().ok().filter(|&below| below > 0)?,
            rows: rows.parse().ok()?,
        })
    }

    fn body(&self, number: u64) -> Arc<str> {
        let (below, rows) = match self {
            Self::Body(body) => return Arc::clone(body),
            &Self::Entities { below, rows } => (below, rows),
        };
        // A multiplier without common factors spreads the entities over the table.
        let id = |row| (number.wrapping_mul(rows).wrapping_add(row)).wrapping_mul(2_654_435_761) % below;
        let ids: Vec<String> = (0..rows).map(|row| id(row).to_string()).collect();
        format!(
            r#"{{"inputs":[{{"name":"entity_id","datatype":"INT64","shape":[{rows}],"data":[{}]}}]}}"#,
            ids.join(",")
        )
        .into()
    }
}

impl Target {
    fn request(&self, number: u64) -> Vec<u8> {
        let body = self.body_source.body(number);
        let length = body.len();
        format!(
            "POST /v2/models/{}/infer HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}",
            self.model, self.address
        )
        .into_bytes()
    }

    fn connect(&self) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            reply: Vec::new(),
        })
    }
}

/// Head of a complete reply.
struct Reply {
    status: u16,
    /// True if the connection stays open.
    keep_alive: bool,
}

impl Reply {
    /// Reads a reply to its last byte; none where bytes are missing.
    fn parse(bytes: &[u8]) -> std::io::Result<Option<Self>> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let bad = |what: &str| std::io::Error::new(ErrorKind::InvalidData, what.to_owned());
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| bad("no head"))?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let header = |name: &str| {
            let fields = lines.clone().filter_map(|line| line.split_once(": "));
            let mut named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
            named.next().map(|(_, value)| value)
        };
        let length = header("content-length").map_or(Ok(0), str::parse::<usize>);
        let length = length.map_err(|_| bad("no length"))?;
        Ok((bytes.len() >= end + 4 + length).then_some(Self {
            status: status.ok_or_else(|| bad("no status"))?,
            keep_alive: header("connection") != Some("close"),
        }))
    }
}

/// One connection.
struct Connection {
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Connection {
    /// Sends a whole request. The buffer of an idle connection takes it at once, as a rule.
    fn send(&mut self, mut request: &[u8]) -> std::io::Result<()> {
        self.reply.clear();
        while !request.is_empty() {
            match self.stream.write(request) {
                Ok(sent) => request = &request[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes what has come; the reply, once it is whole.
    fn receive(&mut self) -> std::io::Result<Option<Reply>> {
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.reply.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Some(reply) = Reply::parse(&self.reply)? {
                return Ok(Some(reply));
            }
        }
    }
}

/// A place for a connection, and the request on it, since it was due.
#[derive(Default)]
struct Slot {
    connection: Option<Connection>,
    due: Option<Instant>,
}

/// All connections, looked after by one thread that never sleeps: what it adds to a latency is the same for every server.
struct Client {
    target: Target,
    epoll: Epoll,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

impl Client {
    fn new(target: Target, connections: usize) -> std::io::Result<Self> {
        Ok(Self {
            target,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            slots: std::iter::repeat_with(Slot::default).take(connections).collect(),
            free: (0..connections).rev().collect(),
        })
    }

    /// Sends `rate` requests per second for a time, and waits for the last reply. A request that finds no connection free
    /// waits for one. Connections outlive the phase.
    fn phase(&mut self, rate: f64, time: Duration) -> Vec<Sample> {
        let began = Instant::now();
        let count = (rate * time.as_secs_f64()) as u64;
        let due_at = |number: u64| began + Duration::from_secs_f64(number as f64 / rate);
        let mut waiting: VecDeque<(Instant, u64)> = VecDeque::new();
        let (mut next, mut samples) = (0, Vec::new());
        let mut last_reply = began;
        while samples.len() < count as usize {
            let now = Instant::now();
            while next < count && due_at(next) <= now {
                waiting.push_back((due_at(next), next));
                next += 1;
            }
            while let Some(slot) = self.free.pop_if(|_| !waiting.is_empty()) {
                let Some((due, number)) = waiting.pop_front() else {
                    break;
                };
                self.slots[slot].due = Some(due);
                if self.send(slot, number).is_err() {
                    samples.extend(self.end(slot, began, None));
                }
            }
            let before = samples.len();
            self.receive(began, &mut samples);
            if samples.len() > before {
                last_reply = now;
            } else if now.duration_since(last_reply) > REPLY_TIMEOUT {
                for slot in 0..self.slots.len() {
                    samples.extend(self.end(slot, began, None));
                }
                last_reply = now;
            }
        }
        samples
    }

    fn send(&mut self, slot: usize, number: u64) -> std::io::Result<()> {
        let request = self.target.request(number);
        let connection = &mut self.slots[slot].connection;
        if connection.is_none() {
            let new = self.target.connect()?;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, slot as u64);
            self.epoll.add(&new.stream, event)?;
            *connection = Some(new);
        }
        connection.as_mut().map_or(Ok(()), |open| open.send(&request))
    }

    fn receive(&mut self, began: Instant, samples: &mut Vec<Sample>) {
        let mut events = [EpollEvent::empty(); EVENTS];
        let ready = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..ready] {
            let slot = event.data() as usize;
            let Some(connection) = &mut self.slots[slot].connection else {
                continue;
            };
            match connection.receive() {
                Ok(None) => {}
                Ok(Some(reply)) => samples.extend(self.end(slot, began, Some(&reply))),
                Err(_) => samples.extend(self.end(slot, began, None)),
            }
        }
    }

    /// Frees a slot and returns the outcome of its request, if it had one.
    fn end(&mut self, slot: usize, began: Instant, reply: Option<&Reply>) -> Option<Sample> {
        let index = slot;
        let slot = &mut self.slots[index];
        // A connection that is closed leaves the epoll by itself.
        if !reply.is_some_and(|reply| reply.keep_alive) {
            slot.connection = None;
        }
        let due = slot.due.take()?;
        self.free.push(index);
        Some(Sample {
            due: due.saturating_duration_since(began),
            latency: due.elapsed(),
            status: reply.map_or(0, |reply| reply.status),
        })
    }
}

/// p50 and p99 in milliseconds, with the number of samples; `null` without any.
fn summary(samples: &[Sample], wanted: impl Fn(&Sample) -> bool) -> String {
    let mut us: Vec<u128> = samples
        .iter()
        .filter(|sample| wanted(sample))
        .map(|s| s.latency.as_micros())
        .collect();
    us.sort_unstable();
    let at = |share: f64| us.get(((us.len() as f64 * share).ceil() as usize).saturating_sub(1));
    let ms = |us: Option<&u128>| us.map_or("null".to_owned(), |&us| format!("{:.3}", us as f64 / 1000.0));
    format!(
        r#"{{"count":{},"p50_ms":{},"p99_ms":{}}}"#,
        us.len(),
        ms(at(0.50)),
        ms(at(0.99))
    )
}

/// Settings from the command line.
struct Plan {
    target: Target,
    connections: usize,
    /// Requests per second, and seconds.
    phases: Vec<(f64, f64)>,
}

fn parse(arguments: &[String]) -> Option<Plan> {
    let [address, model, body_source, connections, phases @ ..] = arguments else {
        return None;
    };
    let phase = |phase: &String| {
        let (rate, seconds) = phase.split_once(':')?;
        let (rate, seconds): (f64, f64) = (rate.parse().ok()?, seconds.parse().ok()?);
        (rate > 0.0 && seconds >= 0.0).then_some((rate, seconds))
    };
    Some(Plan {
        target: Target {
            address: address.clone(),
            model: model.clone(),
            body_source: RequestBody::parse(body_source)?,
        },
        connections: connections.parse().ok()?,
        phases: phases.iter().map(phase).collect::<Option<Vec<_>>>()?,
    })
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(plan) = parse(&arguments) else {
        eprintln!("usage: open_loop ADDRESS MODEL ENTITIES,ROWS|@FILE CONNECTIONS RATE:SECONDS...");
        return std::process::ExitCode::from(2);
    };
    let Plan {
        target,
        connections,
        phases,
    } = plan;
    let client = target.connect().and_then(|_| Client::new(target.clone(), connections));
    let mut client = match client {
        Ok(client) => client,
        Err(error) => {
            eprintln!("open_loop: {}: {error}", target.address);
            return std::process::ExitCode::FAILURE;
        }
    };
    for (rate, seconds) in phases {
        let began = Instant::now();
        let samples = client.phase(rate, Duration::from_secs_f64(seconds));
        let took = began.elapsed().as_secs_f64();
        let first = |sample: &Sample| sample.due < Duration::from_secs(1);
        println!(
            r#"{{"rate":{rate},"seconds":{seconds},"took_s":{took:.3},"answered":{},"refused":{},"failed":{},"first_s":{}}}"#,
            summary(&samples, |sample| sample.status == 200),
            summary(&samples, |sample| sample.status == 503),
            summary(&samples, |sample| !matches!(sample.status, 200 | 503)),
            summary(&samples, |sample| sample.status == 200 && first(sample)),
        );
    }
    std::process::ExitCode::SUCCESS
}
