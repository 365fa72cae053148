//! gzip and deflate, for requests and replies.
//!
//! In: headers and a body in pieces. Out: the body inflated within the limits, or a reply deflated if the client
//! accepts it and it is worth it. Memory for either is counted before it is used.

use crate::request::{Account, Reason, Refusal};
use bytes::Buf;
use flate2::Compression;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::io::{self, BufRead, Read, Write};
use tierlab_protocol::infer::{Data, MemoryBudget, Piece};

/// Compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Deflate,
}

impl Coding {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let Some(value) = unique_header(headers, &CONTENT_ENCODING)? else {
            return Ok(Self::Identity);
        };
        match value.to_str().map(|text| text.trim().to_ascii_lowercase()).as_deref() {
            Ok("identity" | "") => Ok(Self::Identity),
            Ok("gzip" | "x-gzip") => Ok(Self::Gzip),
            Ok("deflate") => Ok(Self::Deflate),
            _ => Err(Refusal::bad(format!(
                "unsupported Content-Encoding {value:?}: use gzip, deflate or identity"
            ))),
        }
    }

    /// Compression of the reply: the first supported coding of the client's list that it does not exclude.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT_ENCODING).into_iter();
        let values = values.filter_map(|value| value.to_str().ok());
        for entry in values.flat_map(|value| value.split(',')) {
            let (name, weight) = entry.split_once(';').unwrap_or((entry, ""));
            let weight = weight.trim().strip_prefix("q=");
            let refused = weight.is_some_and(|q| q.trim().parse() == Ok(0.0_f32));
            match name.trim().to_ascii_lowercase().as_str() {
                _ if refused => {}
                "gzip" | "x-gzip" => return Self::Gzip,
                "deflate" => return Self::Deflate,
                "identity" => return Self::Identity,
                _ => {}
            }
        }
        Self::Identity
    }
}

/// Header that must be unique: if it is duplicate, a proxy before the server might have read the other value.
pub(super) fn unique_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Refusal::bad(format!("header {name} given more than once"))),
        (value, None) => Ok(value),
    }
}

/// Size of a piece of inflated data.
const PIECE_BYTES: usize = 256 << 10;
/// Ratio of the first piece to the received size, so that a small body costs little.
const EXPECTED_RATIO: usize = 4;
/// Inflated size allowed for every body; above it, at most [`MAX_RATIO`] times its received size. Text and numbers stay
/// far below that ratio; more is mostly zeros, or an attack. Apache's `DeflateInflateRatioLimit` is the same.
const FREE_BYTES: usize = 8 << 20;
const MAX_RATIO: usize = 200;
/// Maximum members of a gzip body: each restarts its reader.
const MAX_MEMBERS: usize = 4096;

pub(super) fn too_large(limit: usize) -> Refusal {
    let message = format!("body exceeds {limit} bytes, the limit of `admission.max_body_bytes`");
    Refusal::new(Reason::TooLarge, message)
}

/// Inflates a body.
pub(crate) fn inflate(coding: Coding, body: &Data, limit: usize, account: &mut Account) -> Result<Data, Refusal> {
    let compressed = body.reader().reader();
    let mut reader: Box<dyn Read + '_> = match coding {
        Coding::Identity => Box::new(compressed),
        Coding::Gzip => Box::new(GzipMembers {
            member: Some(GzDecoder::new(compressed)),
            read: 0,
        }),
        Coding::Deflate => Box::new(SingleStream(ZlibDecoder::new(compressed))),
    };
    let max_inflated = body.len().saturating_mul(MAX_RATIO).max(FREE_BYTES);
    let expected = body.len().saturating_mul(EXPECTED_RATIO);
    let mut size = expected.clamp(64, PIECE_BYTES).min(limit + 1);
    let mut out = Data::default();
    let mut len = 0;
    loop {
        account.add(size)?;
        let mut piece = Vec::with_capacity(size);
        let read = (&mut reader).take(size as u64).read_to_end(&mut piece);
        read.map_err(|e| Refusal::bad(format!("body is not valid {coding:?} data: {e}")))?;
        let ended = piece.len() < size;
        len += piece.len();
        if len > limit {
            return Err(too_large(limit));
        }
        if len > max_inflated {
            let bytes = body.len();
            let message =
                format!("body of {bytes} bytes inflates to more than {MAX_RATIO} times its size: send it uncompressed");
            return Err(Refusal::new(Reason::TooLarge, message));
        }
        out.push(piece.into());
        if ended {
            return Ok(out);
        }
        // One byte above the limit suffices to detect an excess.
        size = (2 * size).min(PIECE_BYTES).min(limit - len + 1);
    }
}

/// Reads all members of a gzip body in order (RFC 1952, 2.2). Data after the last is an error.
struct GzipMembers<R> {
    member: Option<GzDecoder<R>>,
    read: usize,
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            self.read += 1;
            let Some(mut compressed) = self.member.take().map(GzDecoder::into_inner) else {
                break;
            };
            if compressed.fill_buf()?.is_empty() {
                break;
            }
            if self.read == MAX_MEMBERS {
                return Err(io::Error::other(format!("more than {MAX_MEMBERS} members")));
            }
            self.member = Some(GzDecoder::new(compressed));
        }
        Ok(0)
    }
}

/// zlib stream that must not be followed by other data (RFC 1950 has no members).
struct SingleStream<R>(ZlibDecoder<R>);

impl<R: BufRead> Read for SingleStream<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(out)?;
        if read == 0 && !out.is_empty() && !self.0.get_mut().fill_buf()?.is_empty() {
            return Err(io::Error::other("trailing bytes after its end"));
        }
        Ok(read)
    }
}

/// Minimum size of a reply to compress: smaller ones fit into a packet either way.
const MIN_DEFLATED_BYTES: usize = 1024;
/// Bytes compressed between two checks of the memory.
const STEP_BYTES: usize = 256 << 10;

/// Compresses a reply's body in an accepted coding if it is worth it. Returns it with the value of `Content-Encoding`;
/// `None` if there was no room for it.
pub(super) fn deflate(
    coding: Coding,
    body: Vec<Piece>,
    budget: &dyn MemoryBudget,
) -> Option<(Vec<Piece>, Option<HeaderValue>)> {
    let len: usize = body.iter().map(|piece| piece.bytes().len()).sum();
    if coding == Coding::Identity || len < MIN_DEFLATED_BYTES {
        return Some((body, None));
    }
    let mut compressed = CompressedPieces {
        finished: Vec::new(),
        current: Vec::new(),
        budget,
    };
    compressed.begin_piece((len / 2).min(STEP_BYTES)).ok()?;
    let name = match coding {
        Coding::Identity => return Some((body, None)),
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(&mut compressed, Compression::fast());
            pack(&body, &mut encoder).and_then(|()| encoder.finish()).ok()?;
            "gzip"
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(&mut compressed, Compression::fast());
            pack(&body, &mut encoder).and_then(|()| encoder.finish()).ok()?;
            "deflate"
        }
    };
    compressed.finished.push(Piece::Own(compressed.current.into()));
    Some((compressed.finished, Some(HeaderValue::from_static(name))))
}

fn pack(body: &[Piece], encoder: &mut impl Write) -> io::Result<()> {
    let steps = body.iter().flat_map(|piece| piece.bytes().chunks(STEP_BYTES));
    steps.into_iter().try_for_each(|step| encoder.write_all(step))
}

/// Receiver of compressed bytes, in pieces of the requested size.
struct CompressedPieces<'a> {
    finished: Vec<Piece>,
    current: Vec<u8>,
    budget: &'a dyn MemoryBudget,
}

impl CompressedPieces<'_> {
    fn begin_piece(&mut self, bytes: usize) -> io::Result<()> {
        if !self.budget.take(bytes) {
            return Err(io::Error::other("no room"));
        }
        self.current = Vec::with_capacity(bytes);
        Ok(())
    }
}

impl Write for CompressedPieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.current.len() == self.current.capacity() {
            let full = std::mem::take(&mut self.current);
            self.finished.push(Piece::Own(full.into()));
            self.begin_piece(STEP_BYTES)?;
        }
        let written = bytes.len().min(self.current.capacity() - self.current.len());
        self.current.extend_from_slice(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Admission, Limits, Reason};
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::time::Duration;
    use tierlab_protocol::infer::Unlimited;

    fn accepting(accept: &'static str) -> Coding {
        Coding::accepted(&HeaderMap::from_iter([(
            ACCEPT_ENCODING,
            HeaderValue::from_static(accept),
        )]))
    }

    fn admission(max_buffered_bytes: usize) -> Arc<Admission> {
        let limits = Limits {
            max_in_flight: 1,
            max_body_bytes: 64 << 20,
            max_buffered_bytes,
            timeout: Duration::from_secs(60),
        };
        Admission::new(limits, prometheus::IntGauge::new("a", "a").unwrap())
    }

    fn compressed(coding: Coding, body: Vec<Piece>) -> Vec<u8> {
        let (compressed, _) = deflate(coding, body, &Unlimited).unwrap();
        compressed.iter().flat_map(|piece| piece.bytes().to_vec()).collect()
    }

    fn inflated(coding: Coding, body: impl Into<Data>, budget: usize) -> Result<Data, Refusal> {
        inflate(coding, &body.into(), 64 << 20, &mut admission(budget).open_account())
    }

    #[test]
    fn replies_are_compressed_as_the_client_asks() {
        let body = || vec![Piece::Own(Bytes::from(vec![7; 5000]))];
        for (accept, coding) in [
            ("gzip", Some("gzip")),
            ("br, deflate", Some("deflate")),
            ("gzip;q=0, deflate;q=0.5", Some("deflate")),
            ("identity, gzip", None),
            ("", None),
        ] {
            let (compressed, found) = deflate(accepting(accept), body(), &Unlimited).unwrap();
            assert_eq!(found.as_ref().map(|value| value.to_str().unwrap()), coding, "{accept}");
            assert_eq!(compressed[0].bytes().len() < 5000, coding.is_some());
        }
        let back = inflated(Coding::Gzip, compressed(Coding::Gzip, body()), 1 << 20).unwrap();
        assert_eq!(back, [7; 5000][..]);
        let small = vec![Piece::Own(Bytes::from_static(&[7; 100]))];
        assert!(
            deflate(accepting("gzip"), small, &Unlimited).unwrap().1.is_none(),
            "small ones stay"
        );
    }

    proptest! {
        #[test]
        fn bodies_come_back_however_they_are_cut(
            seed in any::<u64>(), len in 1500_usize..600_000, cuts in prop::collection::vec(any::<usize>(), 0..6), zlib in any::<bool>(),
        ) {
            let coding = if zlib { Coding::Deflate } else { Coding::Gzip };
            let mut state = seed | 1;
            let body: Vec<u8> = (0..len).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 60) as u8
            }).collect();
            let mut rest = Bytes::from(compressed(coding, vec![Piece::Own(body.clone().into())]));
            let mut pieces = Data::default();
            for cut in cuts {
                pieces.push(rest.split_to(cut % (rest.len() + 1)));
            }
            pieces.push(rest);
            prop_assert!(inflated(coding, pieces, 4 << 20).unwrap() == body[..]);
        }
    }

    #[test]
    fn what_it_becomes_is_counted_before_it_is_there_and_bounded_by_what_came() {
        let zeros = |len: usize| compressed(Coding::Gzip, vec![Piece::Own(vec![0; len].into())]);
        let reason = |len: usize, budget: usize| inflated(Coding::Gzip, zeros(len), budget).unwrap_err().reason;
        assert_eq!(inflated(Coding::Gzip, zeros(4 << 20), 5 << 20).unwrap().len(), 4 << 20);
        assert_eq!(reason(4 << 20, 3 << 20), Reason::TooLarge);
        // A thousand to one, above what is free.
        assert_eq!(reason(9 << 20, 64 << 20), Reason::TooLarge);
        let text: Vec<u8> = (0_u32..4 << 20)
            .flat_map(|i| [b'0' + (i.wrapping_mul(2_654_435_761) >> 28) as u8 % 10, b',', b' '])
            .collect();
        let text = compressed(Coding::Gzip, vec![Piece::Own(text.into())]);
        assert_eq!(inflated(Coding::Gzip, text, 64 << 20).unwrap().len(), 12 << 20);
    }
}
