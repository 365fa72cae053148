//! gzip and deflate, of requests and of replies.
//!
//! In: headers and a body in one piece. Out: the body inflated within the limits, or a reply deflated where the client
//! asked for it and it is worth it.

use super::body::too_large;
use crate::admission::Account;
use crate::refusal::Refusal;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue};
use std::io::{Read, Write};

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Deflate,
}

impl Coding {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let Some(value) = headers.get(CONTENT_ENCODING) else {
            return Ok(Self::Identity);
        };
        match value.to_str().map(|text| text.trim().to_ascii_lowercase()).as_deref() {
            Ok("identity" | "") => Ok(Self::Identity),
            Ok("gzip" | "x-gzip") => Ok(Self::Gzip),
            Ok("deflate") => Ok(Self::Deflate),
            _ => Err(Refusal::bad(format!(
                "Content-Encoding {value:?} is none of gzip, deflate, identity"
            ))),
        }
    }
}

/// Bytes inflated between two looks at the limits.
const STEP_BYTES: u64 = 256 << 10;

pub(crate) fn inflate(coding: Coding, body: &[u8], limit: usize, account: &mut Account) -> Result<Bytes, Refusal> {
    let mut reader: Box<dyn Read + '_> = match coding {
        Coding::Identity => Box::new(body),
        Coding::Gzip => Box::new(GzDecoder::new(body)),
        Coding::Deflate => Box::new(ZlibDecoder::new(body)),
    };
    let mut out = Vec::with_capacity(body.len().saturating_mul(3).min(limit));
    loop {
        let before = out.len();
        let read = (&mut reader).take(STEP_BYTES).read_to_end(&mut out);
        read.map_err(|e| Refusal::bad(format!("the body is no valid {coding:?} data: {e}")))?;
        if out.len() > limit {
            return Err(too_large(limit));
        }
        account.add(out.len() - before)?;
        if out.len() == before {
            return Ok(out.into());
        }
    }
}

/// Replies below this go as they are: a packet holds them either way.
const MIN_DEFLATED_BYTES: usize = 1024;
/// Replies of this many bytes are compressed off the async threads' path.
const HEAVY_BYTES: usize = 64 << 10;

impl Coding {
    /// What the client accepts of a reply; the first of its list that is spoken here and not ruled out.
    fn accepted(headers: &HeaderMap) -> Self {
        let listed = headers.get_all(ACCEPT_ENCODING).into_iter();
        let listed = listed
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        for entry in listed {
            let (name, weight) = entry.split_once(';').unwrap_or((entry, ""));
            let refused = weight
                .trim()
                .strip_prefix("q=")
                .is_some_and(|q| q.trim().parse() == Ok(0.0_f32));
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

/// Compresses a reply's body where the client accepts it and it is worth it; with the value of `Content-Encoding`.
pub(super) fn deflate(asked: &HeaderMap, body: Bytes) -> (Bytes, Option<HeaderValue>) {
    let coding = Coding::accepted(asked);
    if coding == Coding::Identity || body.len() < MIN_DEFLATED_BYTES {
        return (body, None);
    }
    let pack = || match coding {
        Coding::Identity => None,
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 2), Compression::fast());
            let packed = encoder.write_all(&body).and_then(|()| encoder.finish());
            packed.ok().map(|packed| (packed, "gzip"))
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::with_capacity(body.len() / 2), Compression::fast());
            let packed = encoder.write_all(&body).and_then(|()| encoder.finish());
            packed.ok().map(|packed| (packed, "deflate"))
        }
    };
    let packed = if body.len() < HEAVY_BYTES {
        pack()
    } else {
        tokio::task::block_in_place(pack)
    };
    match packed {
        Some((packed, name)) => (packed.into(), Some(HeaderValue::from_static(name))),
        None => (body, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(accept: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accept))])
    }

    #[test]
    fn replies_are_compressed_as_the_client_asks() {
        let body = Bytes::from(vec![7; 5000]);
        for (accept, coding) in [
            ("gzip", Some("gzip")),
            ("br, deflate", Some("deflate")),
            ("gzip;q=0, deflate;q=0.5", Some("deflate")),
            ("identity, gzip", None),
            ("", None),
        ] {
            let (packed, found) = deflate(&asking(accept), body.clone());
            assert_eq!(found.as_ref().map(|value| value.to_str().unwrap()), coding, "{accept}");
            assert_eq!(packed.len() < body.len(), coding.is_some());
        }
        let mut unpacked = Vec::new();
        let (packed, _) = deflate(&asking("gzip"), body.clone());
        GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, body);
        assert!(
            deflate(&asking("gzip"), body.slice(..100)).1.is_none(),
            "too small to gain"
        );
    }
}
