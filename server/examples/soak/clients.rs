//! Clients that mean well: each asks the same over and over and knows the answer.
//!
//! In: a server's address. Out: how many answers came, how many were not the one known, and how long they took.

use crate::served::MODEL;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tierlab_protocol::infer::{HEADER_LENGTH, InferRequest, Tensor};
use tierlab_protocol::tensor::DataType;

/// Between two requests of one client: honest clients do not fill the server by themselves.
const PAUSE: Duration = Duration::from_millis(5);
/// An answer that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(20);
/// Rows of the clients' requests.
const ROWS: [i64; 4] = [1, 1, 8, 32];

/// Figures of one client.
#[derive(Debug, Default, Clone)]
pub(crate) struct Figures {
    pub(crate) answered: u64,
    pub(crate) wrong: u64,
    /// Refused with 503 and `Retry-After`.
    pub(crate) refused: u64,
    /// No answer at all, or another status.
    pub(crate) failed: u64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    latencies_ms: Vec<f64>,
    /// Reply or error of the first failed request.
    first_failure: Option<String>,
}

impl Figures {
    pub(crate) fn heading() -> String {
        format!(
            "{:14} {:>9} {:>6} {:>8} {:>7} {:>8} {:>8}",
            "honest clients", "answered", "wrong", "refused", "failed", "p50 ms", "p99 ms"
        )
    }

    pub(crate) fn row(&self, name: &str) -> String {
        let mut row = format!(
            "{name:14} {:9} {:6} {:8} {:7} {:8.2} {:8.2}",
            self.answered, self.wrong, self.refused, self.failed, self.p50_ms, self.p99_ms
        );
        if let Some(failure) = &self.first_failure {
            let _ = write!(row, "\n  first failure: {failure}");
        }
        row
    }

    pub(crate) fn refused_share(&self) -> f64 {
        self.refused as f64 / (self.answered + self.refused + self.failed).max(1) as f64
    }

    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.wrong += other.wrong;
        self.refused += other.refused;
        self.failed += other.failed;
        self.latencies_ms.extend(other.latencies_ms);
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }

    fn settle(mut self) -> Self {
        self.latencies_ms.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (self.latencies_ms.len() as f64 * share) as usize;
            self.latencies_ms.get(index).copied().unwrap_or(f64::NAN)
        };
        (self.p50_ms, self.p99_ms) = (at(0.5), at(0.99));
        self
    }
}

/// One request and its answer.
#[derive(Clone)]
struct Exchange {
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// Several clients, each with a question of its own.
pub(crate) struct Clients {
    address: String,
    exchanges: Vec<Exchange>,
}

impl Clients {
    /// Asks each question once, of a server that is left in peace.
    pub(crate) fn record_answers(address: &str) -> anyhow::Result<Self> {
        let mut exchanges = Vec::new();
        for (client, rows) in ROWS.into_iter().enumerate() {
            for binary in [false, true] {
                let request = request(address, client, rows, binary);
                let (status, answer) = Connection::open(address)?.send(&request)?;
                anyhow::ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&answer));
                exchanges.push(Exchange { request, answer });
            }
        }
        let address = address.to_owned();
        Ok(Self { address, exchanges })
    }

    /// All clients ask for some time.
    pub(crate) fn measure(&self, time: Duration) -> anyhow::Result<Figures> {
        let until = Instant::now() + time;
        let threads: Vec<_> = self
            .exchanges
            .iter()
            .cloned()
            .map(|exchange| {
                let address = self.address.clone();
                std::thread::spawn(move || request_until(&address, &exchange, until))
            })
            .collect();
        let mut all = Figures::default();
        for thread in threads {
            all.add(
                thread
                    .join()
                    .map_err(|_| anyhow::anyhow!("an honest client panicked"))?,
            );
        }
        Ok(all.settle())
    }
}

fn request_until(address: &str, exchange: &Exchange, until: Instant) -> Figures {
    let mut sums = Figures::default();
    let mut connection = None;
    while Instant::now() < until {
        let began = Instant::now();
        match request_once(&mut connection, address, &exchange.request) {
            Ok((200, answer)) => {
                sums.answered += 1;
                sums.wrong += u64::from(answer != exchange.answer);
                sums.latencies_ms.push(began.elapsed().as_secs_f64() * 1e3);
            }
            Ok((503, _)) => sums.refused += 1,
            Ok((status, answer)) => {
                sums.failed += 1;
                let text = String::from_utf8_lossy(&answer).into_owned();
                sums.first_failure.get_or_insert(format!("{status}: {text}"));
            }
            Err(error) => {
                sums.failed += 1;
                let after = began.elapsed().as_secs_f64();
                sums.first_failure.get_or_insert(format!("{error}, after {after:.1} s"));
            }
        }
        std::thread::sleep(PAUSE);
    }
    sums
}

/// Asks on the open connection, and on a new one where the server has closed that in between, as every client does.
fn request_once(open: &mut Option<Connection>, address: &str, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    if let Some(connection) = open
        && let Ok(answer) = connection.send(request)
    {
        return Ok(answer);
    }
    let mut connection = Connection::open(address)?;
    let answer = connection.send(request)?;
    *open = Some(connection);
    Ok(answer)
}

/// A connection of HTTP/1.1 that is kept open.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn send(&mut self, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        self.0.get_mut().write_all(request)?;
        let (mut status, mut length) = (0, 0);
        for number in 0.. {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if number == 0 {
                status = line
                    .split(' ')
                    .nth(1)
                    .and_then(|status| status.parse().ok())
                    .unwrap_or(0);
            } else if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            } else if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok((status, body))
    }
}

fn request(address: &str, client: usize, rows: i64, binary: bool) -> Vec<u8> {
    let number = |i: i64| ((i + 31 * client as i64) % 17) as f32 / 17.0 - 0.5;
    let data: Vec<u8> = (0..rows * 64).flat_map(|i| number(i).to_le_bytes()).collect();
    let input = Tensor {
        name: "input".to_owned(),
        dtype: DataType::Fp32,
        shape: vec![rows, 64],
        data: data.into(),
    };
    let request = InferRequest {
        id: Some(format!("{client}")),
        inputs: vec![input],
        binary_output: binary,
        ..InferRequest::default()
    };
    let (body, more) = if binary {
        let (body, json_bytes) = request.encode_binary();
        (body.to_vec(), format!("{HEADER_LENGTH}: {json_bytes}\r\n"))
    } else {
        (request.encode_json(), String::new())
    };
    let head = format!(
        "POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: {address}\r\n{more}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}
