//! Bodies of infer requests and replies. Requests are received within bounds of size, time and memory, and decompressed
//! within the same size limit; replies are written in pieces.
//!
//! In: headers and a stream of chunks, or outputs. Out: the body in the pieces in which it arrived, with the length of
//! its JSON part, or a refusal; the reply's body.

use super::coding::{Coding, deflate, inflate, too_large, unique_header};
use crate::front::{MAX_DISCARDED_BYTES, discard};
use crate::pipeline::Exchange;
use crate::request::{Account, AccountBudget, Limits, Reason, Refusal, offload_large};
use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, EXPECT};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use std::convert::Infallible;
use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec::IntoIter;
use tierlab_protocol::infer::{Data, Encoded, HEADER_LENGTH, InferReply, InferRequest, Piece};

/// Header with the client's time limit for its request, in milliseconds.
pub(super) const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout-ms");

/// Receives the body of an infer request; its bytes go to the account.
pub(super) async fn receive(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
    account: &mut Account,
) -> Result<Incoming, Refusal> {
    let json_len = number(headers, &HeaderName::from_static(HEADER_LENGTH), "a length")?;
    let timeout = number(headers, &REQUEST_TIMEOUT, "a number of milliseconds")?;
    let timeout = timeout.filter(|&ms| ms > 0).map(|ms| Duration::from_millis(ms as u64));
    let coding = Coding::of(headers)?;
    let limit = timeout.map_or(limits.timeout, |timeout| timeout.min(limits.timeout));
    let collected = tokio::time::timeout(limit, collect(headers, body, limits.max_body_bytes, account));
    let timed_out = |_| {
        let message = format!("body did not arrive within {} ms", limit.as_millis());
        let own = limit < limits.timeout;
        Refusal::new(if own { Reason::Deadline } else { Reason::SlowBody }, message)
    };
    Ok(Incoming {
        body: collected.await.map_err(timed_out)??,
        coding,
        max_bytes: limits.max_body_bytes,
        json_len,
        timeout,
        accepted: Coding::accepted(headers),
    })
}

/// Reads a small unwanted body to its end. Returns true if the connection can be used again.
pub(super) async fn discard_small(headers: &HeaderMap, body: Body) -> bool {
    let content_length = content_length(headers).unwrap_or(0);
    // A client that waits for `100 Continue` has not sent its body, and need not.
    if content_length > MAX_DISCARDED_BYTES as u64 || headers.contains_key(EXPECT) {
        return false;
    }
    discard(body).await
}

/// Collects the chunks as they arrive.
pub(super) async fn collect(
    headers: &HeaderMap,
    mut body: Body,
    limit: usize,
    account: &mut Account,
) -> Result<Data, Refusal> {
    if content_length(headers).is_some_and(|content_length| content_length > limit as u64) {
        return Err(too_large(limit));
    }
    let mut pieces = BodyPieces::default();
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| incomplete_body(&e))?;
        let Ok(chunk) = frame.into_data() else { continue };
        len += chunk.len();
        if len > limit {
            return Err(too_large(limit));
        }
        account.add(chunk.len())?;
        pieces.push(chunk);
    }
    Ok(pieces.take())
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn number(headers: &HeaderMap, name: &HeaderName, expected: &str) -> Result<Option<usize>, Refusal> {
    let Some(value) = unique_header(headers, name)? else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number
        .map(Some)
        .ok_or_else(|| Refusal::bad(format!("invalid header `{name}`: {value:?}; use {expected}")))
}

/// Refusal for an incomplete body: its client is gone, or the body is invalid.
pub(crate) fn incomplete_body(error: &axum::Error) -> Refusal {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref().map(std::io::Error::kind);
        if matches!(kind, Some(UnexpectedEof | ConnectionReset | BrokenPipe)) {
            return Refusal::new(Reason::Cancelled, "the client went away");
        }
        cause = error.source();
    }
    Refusal::bad(format!("body ended early: {error}"))
}

/// Received request.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) body: Data,
    /// Compression of the body.
    coding: Coding,
    /// Maximum bytes of the decompressed body.
    max_bytes: usize,
    /// Length of the body's JSON part, if binary tensors follow.
    pub(super) json_len: Option<usize>,
    /// Time limit from the client's header.
    pub(super) timeout: Option<Duration>,
    /// Compression that the client accepts for the reply.
    pub(super) accepted: Coding,
}

impl Incoming {
    /// Decompresses the body.
    fn unpack(&mut self, account: &mut Account) -> Result<(), Refusal> {
        if self.coding != Coding::Identity {
            self.body = inflate(self.coding, &self.body, self.max_bytes, account)?;
        }
        Ok(())
    }
}

/// Cost per tensor byte of writing JSON, relative to a copy.
const JSON_WORK: usize = 8;
/// Cost per byte of compressing, relative to a copy.
const COMPRESSION_WORK: usize = 16;

impl Exchange for Incoming {
    /// Body, and the value of `Content-Encoding`.
    type Reply = (Encoded, Option<HeaderValue>);
    type ReplyFormat = Coding;

    fn bytes(&self) -> usize {
        match self.coding {
            Coding::Identity => self.body.len(),
            _ => self.max_bytes,
        }
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn reply_format(&self) -> Coding {
        self.accepted
    }

    fn decode(mut self, account: &mut Account) -> Result<InferRequest, Refusal> {
        self.unpack(account)?;
        let budget = account.budget(None);
        let decoded = InferRequest::decode_within(&self.body, self.json_len, &budget);
        if let Some(refusal) = budget.into_refusal() {
            return Err(refusal);
        }
        let request = decoded?;
        if self.json_len.is_none() {
            // The tensors hold no memory of the compressed body.
            account.set(request.inputs.iter().map(|input| input.data.len()).sum());
        }
        Ok(request)
    }

    fn encode(reply: InferReply, binary: &[bool], accepted: Coding, budget: &AccountBudget<'_>) -> Option<Self::Reply> {
        let work = reply.outputs.iter().zip(binary).map(|(output, &binary)| {
            let weight = if binary { 1 } else { JSON_WORK };
            output.data.len().saturating_mul(weight)
        });
        let weight = match accepted {
            Coding::Identity => 1,
            _ => COMPRESSION_WORK,
        };
        let work = work.sum::<usize>().saturating_mul(weight);
        offload_large(work, || {
            let Encoded { pieces, json_len } = reply.encode_within(binary, budget)?;
            let (pieces, encoding) = deflate(accepted, pieces, budget)?;
            Some((Encoded { pieces, json_len }, encoding))
        })
    }
}

/// Body of a reply in several pieces, with a total length known in advance. The connection counts the pieces handed
/// out; the account counts the pieces still here.
pub(super) struct Pieces {
    rest: IntoIter<Piece>,
    /// Remaining bytes.
    left: u64,
    account: Account,
}

impl Pieces {
    pub(super) fn new(pieces: Vec<Piece>, account: Account) -> Self {
        let left = pieces.iter().map(|piece| piece.bytes().len() as u64).sum();
        Self {
            rest: pieces.into_iter(),
            left,
            account,
        }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(piece) = self.rest.next() else {
            return Poll::Ready(None);
        };
        let len = piece.bytes().len();
        self.left -= len as u64;
        if matches!(piece, Piece::Own(_)) {
            self.account.release(len);
        }
        Poll::Ready(Some(Ok(Frame::data(piece.into_bytes()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Size below which chunks are joined, because each would keep the whole buffer into which it was read.
pub(crate) const SHARED_PIECE_BYTES: usize = 4 << 10;

/// Received parts of a body. Bytes copied here are copied again into a tensor, so only small chunks are.
#[derive(Debug, Default)]
pub(crate) struct BodyPieces {
    data: Data,
    small: BytesMut,
}

impl BodyPieces {
    /// Adds a chunk.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if self.data.is_empty() || chunk.len() >= SHARED_PIECE_BYTES {
            self.data.push(self.small.split().freeze());
            self.data.push(chunk);
        } else {
            self.small.extend_from_slice(&chunk);
        }
    }

    /// Takes everything received so far.
    pub(crate) fn take(&mut self) -> Data {
        self.data.push(self.small.split().freeze());
        std::mem::take(&mut self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Admission, Limits};
    use bytes::Bytes;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use http::HeaderValue;
    use prometheus::IntGauge;
    use std::io::Write;
    use std::sync::Arc;

    fn admission() -> Arc<Admission> {
        let limits = Limits {
            max_in_flight: 1,
            max_body_bytes: 1000,
            max_buffered_bytes: 3000,
            timeout: Duration::from_millis(50),
        };
        Admission::new(limits, IntGauge::new("a", "a").unwrap())
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    async fn received(headers: &[(&'static str, &str)], body: Body) -> Result<Incoming, Refusal> {
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect();
        let admission = admission();
        let mut account = admission.open_account();
        let mut incoming = receive(&map, body, &admission.limits, &mut account).await?;
        incoming.unpack(&mut account).map(|()| incoming)
    }

    /// To inflate a body is a stage of its request.
    #[tokio::test]
    async fn a_body_is_received_as_it_was_sent() {
        let packed = gzip(&[7; 500]);
        let headers = HeaderMap::from_iter([(http::header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        let admission = admission();
        let mut account = admission.open_account();
        let received = receive(&headers, Body::from(packed.clone()), &admission.limits, &mut account).await;
        assert_eq!(received.unwrap().body, packed[..]);
    }

    fn chunks(chunks: &[&'static [u8]]) -> Body {
        let chunks: Vec<Result<Bytes, std::io::Error>> = chunks.iter().map(|c| Ok(Bytes::from_static(c))).collect();
        Body::from_stream(futures::stream::iter(chunks))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn chunks_and_compressed_bodies_arrive_whole() {
        let plain = received(
            &[("inference-header-content-length", "3")],
            chunks(&[b"ab", b"cd", b"e"]),
        )
        .await
        .unwrap();
        assert_eq!((&plain.body.whole()[..], plain.json_len), (&b"abcde"[..], Some(3)));
        let data = b"hello hello hello".repeat(20);
        let body = Body::from(gzip(&data));
        assert_eq!(
            received(&[("content-encoding", "GZIP")], body).await.unwrap().body,
            data[..]
        );
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&data).unwrap();
        let body = Body::from(encoder.finish().unwrap());
        assert_eq!(
            received(&[("content-encoding", "deflate")], body).await.unwrap().body,
            data[..]
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_header_that_says_how_to_read_the_body_stands_once() {
        for (name, values) in [
            (HEADER_LENGTH, ["3", "2"]),
            ("x-request-timeout-ms", ["40", "40"]),
            ("content-encoding", ["identity", "gzip"]),
        ] {
            let mut headers = HeaderMap::new();
            let name = HeaderName::from_static(name);
            let admission = admission();
            for (value, refused) in values.into_iter().zip([false, true]) {
                headers.append(&name, HeaderValue::from_static(value));
                let mut account = admission.open_account();
                let received = receive(&headers, Body::from("{}  "), &admission.limits, &mut account).await;
                let message = received
                    .map(|_| String::new())
                    .unwrap_or_else(|refusal| refusal.message);
                assert_eq!(message.contains("more than once"), refused, "{name}: {message}");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn bounds_hold_for_every_way_to_send_too_much() {
        let reason = async |headers: &[(&'static str, &str)], body: Body| {
            received(headers, body).await.map(|_| ()).unwrap_err().reason
        };
        assert_eq!(
            reason(&[("content-length", "1001")], Body::empty()).await,
            Reason::TooLarge
        );
        assert_eq!(reason(&[], chunks(&[&[0; 600], &[0; 600]])).await, Reason::TooLarge);
        let bomb = Body::from(gzip(&vec![0; 1_000_000]));
        assert_eq!(reason(&[("content-encoding", "gzip")], bomb).await, Reason::TooLarge);
        assert_eq!(
            reason(&[("content-encoding", "gzip")], Body::from("no gzip")).await,
            Reason::BadRequest
        );
        let cut = gzip(b"hello hello")[..12].to_vec();
        assert_eq!(
            reason(&[("content-encoding", "gzip")], Body::from(cut)).await,
            Reason::BadRequest
        );
        assert_eq!(
            reason(&[("content-encoding", "br")], Body::empty()).await,
            Reason::BadRequest
        );
        assert_eq!(
            reason(&[("inference-header-content-length", "-1")], Body::empty()).await,
            Reason::BadRequest
        );
        let never = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(reason(&[], never).await, Reason::SlowBody);
    }
}
