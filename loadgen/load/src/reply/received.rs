//! Received bodies, read to their end or to their limit. In: a body. Out: its bytes, in bounded memory, regardless of
//! announced lengths and of the number of frames.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame};
use hyper::header::HeaderMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum size of a model's metadata, or of a reply about loading it.
pub const METADATA_BYTES: usize = 4 << 20;
/// Maximum size of one reading of `/metrics`.
pub const METRICS_BYTES: usize = 16 << 20;
/// Maximum size of a reply if neither plan nor model limits it.
const REPLY_BYTES: usize = 64 << 20;
/// Bytes of a reply besides its elements.
const REPLY_HEAD_BYTES: u64 = 64 << 10;
/// Maximum bytes of an element: in JSON, with white space around it.
const ELEMENT_BYTES: u64 = 64;
/// Minimum of the limit on all replies being read together.
const SHARED_BYTES: usize = 512 << 20;
/// Limit on all replies being read together, in replies of the plan's limit.
const SHARED_REPLIES: usize = 8;
/// Maximum length of a reply that is not counted among those being read together.
const SMALL_BYTES: usize = 64 << 10;
/// Maximum capacity reserved at once for an announced length.
const RESERVED_BYTES: usize = 1 << 20;

/// Advice on the limit of infer replies.
pub(super) const ADVICE: &str = "raise `reply_limit_bytes` in the plan";

/// Limit on received bytes.
#[derive(Debug, Clone)]
pub struct Limit {
    /// Maximum bytes of one body.
    pub(super) bytes: usize,
    /// Key of the plan, or another source of the limit.
    source: &'static str,
    shared: Arc<SharedLimit>,
}

#[derive(Debug)]
struct SharedLimit {
    reserved: AtomicUsize,
    max: usize,
}

/// Received data that exceeds a limit, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TooLarge(String);

/// Reason for an incomplete body.
#[derive(Debug)]
pub enum BodyError<E> {
    /// The body exceeds its limit.
    TooLarge(TooLarge),
    /// Broken connection.
    Lost(E),
}

impl TooLarge {
    /// Creates the error for a reply's head of more than `bytes`.
    pub fn head(bytes: usize) -> Self {
        Self(format!("headers of more than {bytes} bytes (a fixed limit)"))
    }

    /// Creates the error for a stream that arrives in more pieces than `max`.
    pub fn pieces(max: usize) -> Self {
        Self(format!("a stream of more than {max} pieces (a fixed limit)"))
    }
}

impl Limit {
    /// Limit of a body that is not an infer reply.
    pub fn of(bytes: usize) -> Self {
        Self::new(bytes, "a fixed limit", SHARED_BYTES)
    }

    /// Limit of infer replies: the plan's, else the maximum size of the declared outputs' elements, else 64 MiB.
    pub fn of_replies(planned: Option<usize>, elements: Option<u64>) -> Self {
        if let Some(bytes) = planned {
            return Self::new(bytes, ADVICE, SHARED_BYTES.max(bytes.saturating_mul(SHARED_REPLIES)));
        }
        let declared = elements.map(|elements| elements.saturating_mul(ELEMENT_BYTES));
        let bytes = declared.map_or(u64::MAX, |bytes| bytes.saturating_add(REPLY_HEAD_BYTES));
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(REPLY_BYTES);
        Self::new(bytes, ADVICE, SHARED_BYTES)
    }

    pub(super) fn new(bytes: usize, source: &'static str, shared: usize) -> Self {
        Self {
            bytes,
            source,
            shared: Arc::new(SharedLimit {
                reserved: AtomicUsize::new(0),
                max: shared,
            }),
        }
    }

    fn refuse(&self, what: impl Display) -> TooLarge {
        TooLarge(format!("{what} ({})", self.source))
    }
}

/// Complete body.
#[derive(Debug, Default)]
pub struct Received {
    /// Bytes of the body.
    pub bytes: Bytes,
    /// Trailers after the body.
    pub trailers: Option<HeaderMap>,
    /// Share of the common limit, released on drop.
    _reserved: Reserved,
}

/// Share of one body in the bytes of all bodies; `None` while it is small.
#[derive(Debug, Default)]
struct Reserved(Option<(Arc<SharedLimit>, usize)>);

impl Reserved {
    fn grow(&mut self, shared: &Arc<SharedLimit>, bytes: usize) -> bool {
        let (shared, reserved) = self.0.get_or_insert_with(|| (Arc::clone(shared), 0));
        *reserved += bytes;
        shared.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes <= shared.max
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some((shared, reserved)) = &self.0 {
            shared.reserved.fetch_sub(*reserved, Ordering::Relaxed);
        }
    }
}

/// Reads a body, and the trailers after it.
///
/// # Errors
/// See [`BodyError`].
pub async fn read<B: Body<Data = Bytes> + Unpin>(body: B, limit: &Limit) -> Result<Received, BodyError<B::Error>> {
    read_pieces(body, limit, |_| Ok(())).await
}

/// Reads a body, and calls `on_piece` with its length so far as soon as a piece arrives.
///
/// # Errors
/// See [`BodyError`]; also those of `on_piece`.
pub async fn read_pieces<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    limit: &Limit,
    mut on_piece: impl FnMut(usize) -> Result<(), TooLarge>,
) -> Result<Received, BodyError<B::Error>> {
    let too_long = || BodyError::TooLarge(limit.refuse(format_args!("a body of more than {} bytes", limit.bytes)));
    let announced = body.size_hint().lower();
    if announced > limit.bytes as u64 {
        return Err(too_long());
    }
    let (mut first, mut more, mut trailers) = (Bytes::new(), Vec::new(), None);
    let mut reserved = Reserved::default();
    while let Some(frame) = body.frame().await {
        let data = match frame.map_err(BodyError::Lost)?.into_data() {
            Ok(data) => data,
            Err(frame) => {
                trailers = Frame::into_trailers(frame).ok();
                continue;
            }
        };
        let len = first.len() + more.len() + data.len();
        on_piece(len).map_err(BodyError::TooLarge)?;
        if len > limit.bytes {
            return Err(too_long());
        }
        if len > SMALL_BYTES && !reserved.grow(&limit.shared, data.len()) {
            let max = limit.shared.max;
            return Err(BodyError::TooLarge(
                limit.refuse(format_args!("replies of more than {max} bytes at a time")),
            ));
        }
        if more.is_empty() && first.is_empty() {
            first = data;
        } else {
            // A single buffer, because a list of frames would take more memory than their bytes.
            if more.is_empty() {
                more.reserve_exact((announced as usize).clamp(len, len.max(RESERVED_BYTES)));
                more.extend_from_slice(&std::mem::take(&mut first));
            }
            more.extend_from_slice(&data);
        }
    }
    Ok(Received {
        bytes: if more.is_empty() { first } else { more.into() },
        trailers,
        _reserved: reserved,
    })
}
