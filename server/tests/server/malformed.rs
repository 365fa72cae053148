//! Ten thousand malformed requests: valid ones, changed at random from a fixed seed, over raw sockets.

use crate::harness::{Data, PATIENCE, Server, entity_ids, json_request, mlp_input, on_tier};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use tierlab_models::generators::ModelKind;
use tierlab_protocol::infer::{HEADER_LENGTH, InferRequest};

const REQUESTS: u64 = 10_000;
/// The client's threads.
const CLIENTS: u64 = 4;

/// SplitMix64 (Steele, Lea and Flood, 2014): small, seeded, and good enough to choose what to break.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// A request before it is broken.
struct Valid {
    path: &'static str,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

fn valid() -> Vec<Valid> {
    let binary = |path, inputs| {
        let request = InferRequest {
            inputs,
            binary_output: true,
            ..InferRequest::default()
        };
        let (body, json_len) = request.encode_binary();
        Valid {
            path,
            headers: vec![(HEADER_LENGTH.to_owned(), json_len.to_string())],
            body: body.to_vec(),
        }
    };
    let json = |path, inputs| Valid {
        path,
        headers: vec![("content-type".into(), "application/json".into())],
        body: json_request(inputs, Some(1_000_000), None),
    };
    vec![
        json("/v2/models/mlp/infer", mlp_input(2)),
        binary("/v2/models/mlp/infer", mlp_input(2)),
        json("/v2/models/ctr/infer", entity_ids(&[1, 2, 3])),
        binary("/v2/models/ctr/versions/1/infer", entity_ids(&[4])),
    ]
}

/// Pieces that decoders stumble over.
const PIECES: [&[u8]; 14] = [
    b"\"shape\":[-1]",
    b"9223372036854775808",
    b"-0",
    b"1e999",
    b"null",
    b"\"\\ud800\"",
    b"{",
    b"]",
    b"\"parameters\":{\"binary_data_size\":18446744073709551615}",
    b"\"entity_id\"",
    b"\xff\xfe",
    b"\0",
    b"[[[[[[[[",
    b"\r\n",
];

/// Breaks a request in one to four places, and gives it as bytes on the wire.
fn broken(valid: &Valid, draw: &mut Draw) -> Vec<u8> {
    let mut body = valid.body.clone();
    let mut path = valid.path.to_owned();
    let mut headers = valid.headers.clone();
    let mut length = None;
    for _ in 0..=draw.below(4) {
        let at = draw.below(body.len());
        match draw.below(10) {
            0 if !body.is_empty() => body[at] ^= 1 << draw.below(8),
            1 => body.truncate(at),
            2 => body
                .splice(at..at, PIECES[draw.below(PIECES.len())].iter().copied())
                .for_each(drop),
            3 => {
                let to = (at + draw.below(40)).min(body.len());
                body.drain(at..to);
            }
            4 => {
                let to = (at + draw.below(200)).min(body.len());
                let again = body[at..to].to_vec();
                body.extend(again);
            }
            5 => {
                let value = ["0", "-1", "7", "99999999999999999999", "", "x", "70", "120"][draw.below(8)];
                headers.retain(|(name, _)| name != HEADER_LENGTH);
                headers.push((HEADER_LENGTH.into(), value.into()));
            }
            6 => headers.push((
                "content-encoding".into(),
                ["gzip", "deflate", "br", "\u{fc}"][draw.below(4)].into(),
            )),
            7 => {
                path = path.replace(
                    ["mlp", "ctr", "v2", "infer"][draw.below(4)],
                    ["..%2f", "%00", "x", "\u{e9}"][draw.below(4)],
                );
            }
            8 => length = Some(draw.below(2 * body.len() + 2)),
            _ => headers.push((
                "x-request-timeout-ms".into(),
                ["1", "-1", "18446744073709551616"][draw.below(3)].into(),
            )),
        }
    }
    let mut wire = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n");
    for (name, value) in headers {
        wire += &format!("{name}: {value}\r\n");
    }
    wire += &format!("content-length: {}\r\n\r\n", length.unwrap_or(body.len()));
    let mut wire = wire.into_bytes();
    wire.extend(body);
    if draw.below(50) == 0 {
        let at = draw.below(wire.len());
        wire[at] = draw.next() as u8;
    }
    wire
}

/// Time in which a reply to a whole request begins.
const REPLY_BEGINS: Duration = Duration::from_millis(250);

/// Sends bytes, and ends the connection where no reply begins soon; the status of the reply, 0 where there was none.
fn status(address: &str, wire: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    // The server may have refused and closed before all was sent.
    let _ = stream.write_all(wire);
    // The server waits for the rest of a request whose length is wrong.
    stream.set_read_timeout(Some(REPLY_BEGINS)).unwrap();
    let _ = stream.peek(&mut [0]);
    let _ = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reply = Vec::new();
    let read = stream.read_to_end(&mut reply);
    assert!(
        !read.is_err_and(|e| matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)),
        "no answer and no end to {:?}",
        String::from_utf8_lossy(wire)
    );
    let digits = reply.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn ten_thousand_malformed_requests_do_no_harm() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr], 100);
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let address = server.address.clone();
            std::thread::spawn(move || {
                let valid = valid();
                let mut seen = std::collections::BTreeMap::<u16, u64>::new();
                for index in (client..REQUESTS).step_by(CLIENTS as usize) {
                    let mut draw = Draw(index);
                    let wire = broken(&valid[draw.below(valid.len())], &mut draw);
                    let status = status(&address, &wire);
                    // Some allow a millisecond for the answer, which may be refused as too late.
                    let hurried = wire.windows(20).any(|part| part == b"x-request-timeout-ms");
                    let honest = matches!(status, 0 | 200 | 400..=499) || hurried && matches!(status, 503 | 504);
                    assert!(
                        honest,
                        "request {index} got {status}: {:?}",
                        String::from_utf8_lossy(&wire)
                    );
                    *seen.entry(status).or_default() += 1;
                }
                seen
            })
        })
        .collect();
    let mut seen = std::collections::BTreeMap::<u16, u64>::new();
    for client in clients {
        for (status, count) in client.join().unwrap() {
            *seen.entry(status).or_default() += count;
        }
    }
    assert_eq!(seen.values().sum::<u64>(), REQUESTS);
    assert!(seen[&400] > REQUESTS / 3, "{seen:?}");
    assert!(!server.log().contains("panicked"), "{}", server.log());
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
    assert_eq!(server.infer("ctr", entity_ids(&[99])).await.status, 200);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.metric("tierlab_in_flight_requests").await, 0.0);
}
