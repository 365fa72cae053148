//! A small open-loop client for `scripts/bench/overload` and `scripts/bench/server`: it keeps answers and refusals apart,
//! which a sweep of the load generator does not.
//!
//! `open_loop ADDRESS MODEL ASKED CONNECTIONS RATE:SECONDS...` sends JSON requests, one phase after the other, on a constant
//! schedule. ASKED is `ENTITIES,ROWS`, for ROWS entities below ENTITIES, or `@FILE`, for the same body each time. Latency
//! runs from the scheduled time to the last byte of the reply.
//! Prints one line of JSON for each phase; `first_s` is its first second. Exit code 1 when the server cannot be reached.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A connection that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of one request.
#[derive(Clone, Copy)]
struct Sample {
    /// Scheduled, since the start of its phase.
    due: Duration,
    latency: Duration,
    status: u16,
}

/// Requests that are due and not yet sent.
#[derive(Default)]
struct Tickets {
    due: Mutex<(VecDeque<(Instant, u64)>, bool)>,
    wake: Condvar,
}

impl Tickets {
    fn give(&self, due: Instant, number: u64) {
        self.due
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .push_back((due, number));
        self.wake.notify_one();
    }

    fn close(&self) {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.wake.notify_all();
    }

    fn take(&self) -> Option<(Instant, u64)> {
        let mut state = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(ticket) = state.0.pop_front() {
                return Some(ticket);
            }
            if state.1 {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What is asked of the server.
#[derive(Clone)]
struct Target {
    address: String,
    model: String,
    asked: Asked,
}

/// The body of a request.
#[derive(Clone)]
enum Asked {
    /// So many rows of entities below a number.
    Entities { below: u64, rows: u64 },
    /// The same for every request.
    Body(Arc<str>),
}

impl Asked {
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
        let body = self.asked.body(number);
        let length = body.len();
        format!(
            "POST /v2/models/{}/infer HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\n\r\n{body}",
            self.model, self.address
        )
        .into_bytes()
    }

    fn connect(&self) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(BufReader::new(stream))
    }
}

/// Sends a request and reads its reply; the status, and whether the connection stays open.
fn exchange(stream: &mut BufReader<TcpStream>, request: &[u8]) -> std::io::Result<(u16, bool)> {
    stream.get_mut().write_all(request)?;
    let bad = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
    let (mut status, mut length, mut keep) = (None, 0, true);
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(bad("the connection ended"));
        }
        let text = line.trim_end().to_ascii_lowercase();
        if text.is_empty() {
            break;
        }
        if status.is_none() {
            status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
        } else if let Some(value) = text.strip_prefix("content-length: ") {
            length = value.parse().map_err(|_| bad("no length"))?;
        } else if text == "connection: close" {
            keep = false;
        }
    }
    std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink())?;
    Ok((status.ok_or_else(|| bad("no status"))?, keep))
}

fn send(target: &Target, tickets: &Tickets, began: Instant) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut stream = None;
    while let Some((due, number)) = tickets.take() {
        let request = target.request(number);
        let open = stream.take().map_or_else(|| target.connect(), Ok);
        let status = open.and_then(|mut open| {
            let (status, keep) = exchange(&mut open, &request)?;
            stream = keep.then_some(open);
            Ok(status)
        });
        samples.push(Sample {
            due: due.saturating_duration_since(began),
            latency: due.elapsed(),
            // 0 for a connection that failed.
            status: status.unwrap_or(0),
        });
    }
    samples
}

/// Sends `rate` requests per second for a time, and waits for the last reply.
fn phase(target: &Target, connections: usize, rate: f64, time: Duration) -> Vec<Sample> {
    let tickets = Arc::new(Tickets::default());
    let began = Instant::now();
    let clients: Vec<_> = (0..connections)
        .map(|_| {
            let (target, tickets) = (target.clone(), Arc::clone(&tickets));
            std::thread::spawn(move || send(&target, &tickets, began))
        })
        .collect();
    let count = (rate * time.as_secs_f64()) as u64;
    for number in 0..count {
        let due = began + Duration::from_secs_f64(number as f64 / rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        tickets.give(due, number);
    }
    tickets.close();
    let samples = clients.into_iter().map(std::thread::JoinHandle::join);
    samples.flatten().flatten().collect()
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

/// What the command line asks for.
struct Plan {
    target: Target,
    connections: usize,
    /// Requests per second, and seconds.
    phases: Vec<(f64, f64)>,
}

fn parse(arguments: &[String]) -> Option<Plan> {
    let [address, model, asked, connections, phases @ ..] = arguments else {
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
            asked: Asked::parse(asked)?,
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
    if let Err(error) = target.connect() {
        eprintln!("open_loop: {}: {error}", target.address);
        return std::process::ExitCode::FAILURE;
    }
    for (rate, seconds) in phases {
        let began = Instant::now();
        let samples = phase(&target, connections, rate, Duration::from_secs_f64(seconds));
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
