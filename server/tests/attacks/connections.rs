//! Clients that take places and memory and give nothing for it: over raw sockets, frame by frame.
//!
//! In: an address of a listener. Out: connections that hold what they can until they are dropped, and what the server says
//! on them. Knows nothing of the tests that use it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Everything that is read or written on these connections fails after this time.
const LIMIT: Duration = Duration::from_secs(60);

const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// One frame of HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// Reads one from a connection.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; 9];
        from.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        from.read_exact(&mut payload)?;
        Ok(Self {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// True if it is the last one of its stream.
    pub(crate) fn ends_stream(&self) -> bool {
        self.kind == RST_STREAM || (self.kind <= HEADERS && self.flags & END_STREAM != 0)
    }

    /// Bytes of a body in it.
    pub(crate) fn data(&self) -> &[u8] {
        if self.kind == DATA { &self.payload } else { &[] }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// First bytes of a client of HTTP/2; replies may be `window` bytes long before it says more.
pub(crate) fn preface(window: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut setting = 4_u16.to_be_bytes().to_vec();
    setting.extend(window.to_be_bytes());
    bytes.extend(frame(SETTINGS, 0, 0, &setting));
    bytes
}

/// A request's head, its fields written out; `last` where no body follows.
pub(crate) fn head(stream: u32, fields: &[(&str, &str)], last: bool) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal that is not indexed, with a new name; lengths below 127 are one byte.
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "{text} is too long for an attack");
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    let flags = END_HEADERS | if last { END_STREAM } else { 0 };
    frame(HEADERS, flags, stream, &block)
}

/// A `GET`, whole.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
    ];
    head(stream, &fields, true)
}

/// A call of gRPC with one message.
pub(crate) fn call(stream: u32, path: &str, message: &[u8]) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend(message);
    let mut call = head(stream, &fields, false);
    call.extend(frame(DATA, END_STREAM, stream, &body));
    call
}

/// Lets a stream, or all of them together where `stream` is 0, send `bytes` more.
pub(crate) fn open_window(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// The number of the `n`th stream of a client.
pub(crate) fn stream_id(n: u32) -> u32 {
    2 * n + 1
}

/// A connection on which every wait has an end.
pub(crate) fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

/// Sends bytes and says no more.
pub(crate) fn send(address: impl ToSocketAddrs, bytes: &[u8]) -> io::Result<TcpStream> {
    let mut stream = connect(address)?;
    stream.write_all(bytes)?;
    Ok(stream)
}

/// Asks for `path` on `streams` streams, with room for `window` bytes of each reply, and reads nothing.
pub(crate) fn request_unread(
    address: impl ToSocketAddrs,
    path: &str,
    streams: u32,
    window: u32,
) -> io::Result<TcpStream> {
    let mut bytes = preface(window);
    (0..streams).for_each(|n| bytes.extend(get(stream_id(n), path)));
    send(address, &bytes)
}

/// Watches the health of a server by gRPC, on `streams` streams.
pub(crate) fn watch_health(address: impl ToSocketAddrs, streams: u32) -> io::Result<TcpStream> {
    let mut bytes = preface(1 << 16);
    (0..streams).for_each(|n| bytes.extend(call(stream_id(n), "/grpc.health.v1.Health/Watch", &[])));
    send(address, &bytes)
}

/// Frames until a connection ends; an end with a reset is one as well.
pub(crate) fn read_until_closed(mut stream: TcpStream) -> io::Result<Vec<Frame>> {
    let mut frames = Vec::new();
    loop {
        match Frame::read(&mut stream) {
            Ok(frame) => frames.push(frame),
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Ok(frames),
                    _ => Err(error),
                };
            }
        }
    }
}

/// Frames until one stream has ended, that frame last.
pub(crate) fn read_until_end(connection: &mut TcpStream, stream: u32) -> io::Result<Vec<Frame>> {
    let mut frames = Vec::new();
    loop {
        let frame = Frame::read(connection)?;
        let last = frame.stream == stream && frame.ends_stream();
        frames.push(frame);
        if last {
            return Ok(frames);
        }
    }
}
