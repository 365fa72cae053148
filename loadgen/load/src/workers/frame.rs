//! Frames: encoding of messages in a stream of bytes. In: a kind and a body. Out: its length (four bytes, little
//! endian), its kind (one byte), the body; and back. A reader names the kinds that it accepts, and holds no body beyond
//! its kind's limit.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes of length and kind.
const HEAD: usize = 5;

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Challenge of an agent to a new connection.
    Challenge,
    /// Response to the challenge, with the run's identity.
    Hello,
    /// Acceptance of the response.
    Welcome,
    /// Reason of a refusal.
    Refused,
    /// Plan of the run.
    Setup,
    /// Piece of one of the plan's files.
    File,
    /// Step to prepare.
    Order,
    /// Readiness of the process.
    Ready,
    /// Request for the time.
    Ping,
    /// Time of the process.
    Pong,
    /// Start time of a step.
    Start,
    /// End of a step, with its counts.
    Done,
    /// Samples of a step.
    Samples,
    /// Reason for which a step cannot be run.
    Failed,
}

impl Kind {
    /// Kinds by their byte (the index, from 1), with the maximum length of their bodies.
    const ALL: [(Self, usize); 14] = [
        (Self::Challenge, 1 << 10),
        (Self::Hello, 1 << 10),
        (Self::Welcome, 1 << 10),
        (Self::Refused, 1 << 12),
        (Self::Setup, 4 << 20),
        (Self::File, 1 << 20),
        (Self::Order, 4 << 20),
        (Self::Ready, 64),
        (Self::Ping, 64),
        (Self::Pong, 64),
        (Self::Start, 64),
        (Self::Done, 1 << 18),
        (Self::Samples, 1 << 20),
        (Self::Failed, 1 << 16),
    ];

    fn of(byte: u8) -> Option<(Self, usize)> {
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// Maximum length of the body, in bytes.
    #[must_use]
    pub fn most_bytes(self) -> usize {
        Self::ALL[self as usize].1
    }
}

/// Invalid or unexpected bytes.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// End of the stream.
    #[error("the connection ended")]
    Ended,
    /// Broken stream.
    #[error("the connection broke: {0}")]
    Io(io::Error),
    /// Frame of an unknown kind.
    #[error("bytes that are no message of the load generator's (a message of kind {0})")]
    UnknownKind(u8),
    /// Frame of a kind that is not expected now.
    #[error("a message of kind {0:?} where another was expected")]
    Unexpected(Kind),
    /// Length above the kind's limit.
    #[error("a message of kind {kind:?} with {bytes} bytes, where {most} is the most")]
    TooLong {
        /// Kind of the frame.
        kind: Kind,
        /// Announced length.
        bytes: u64,
        /// Maximum length.
        most: usize,
    },
    /// Body with invalid content.
    #[error("a message of kind {kind:?} that cannot be read: {what}")]
    Bad {
        /// Kind of the frame.
        kind: Kind,
        /// Error message.
        what: String,
    },
}

impl FrameError {
    /// True if the peer has gone, rather than sent something wrong.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Ended | Self::Io(_))
    }
}

/// Encodes a frame.
///
/// # Errors
/// A body above its kind's limit.
pub fn encode(kind: Kind, body: &[u8]) -> Result<Vec<u8>, FrameError> {
    let most = kind.most_bytes();
    let (Ok(length), true) = (u32::try_from(body.len()), body.len() <= most) else {
        return Err(FrameError::TooLong {
            kind,
            bytes: body.len() as u64,
            most,
        });
    };
    let mut frame = Vec::with_capacity(HEAD + body.len());
    frame.extend(length.to_le_bytes());
    frame.push(kind as u8 + 1);
    frame.extend(body);
    Ok(frame)
}

/// Reads one frame of one of the kinds in `taken`.
///
/// # Errors
/// See [`FrameError`]; nothing of a refused body is read.
pub async fn read<R: AsyncRead + Unpin>(reader: &mut R, taken: &[Kind]) -> Result<(Kind, Vec<u8>), FrameError> {
    let mut head = [0; HEAD];
    reader.read_exact(&mut head).await.map_err(ended)?;
    let [a, b, c, d, byte] = head;
    let (kind, most) = Kind::of(byte).ok_or(FrameError::UnknownKind(byte))?;
    if !taken.contains(&kind) {
        return Err(FrameError::Unexpected(kind));
    }
    let length = u32::from_le_bytes([a, b, c, d]);
    if length as usize > most {
        return Err(FrameError::TooLong {
            kind,
            bytes: length.into(),
            most,
        });
    }
    let mut body = vec![0; length as usize];
    reader.read_exact(&mut body).await.map_err(ended)?;
    Ok((kind, body))
}

fn ended(error: io::Error) -> FrameError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        FrameError::Ended
    } else {
        FrameError::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_all(bytes: &[u8], taken: &[Kind]) -> Result<(Kind, Vec<u8>), FrameError> {
        let mut bytes = bytes;
        futures::executor::block_on(read(&mut bytes, taken))
    }

    #[test]
    fn every_kind_reads_back_from_its_own_place() {
        for (place, (kind, most)) in Kind::ALL.into_iter().enumerate() {
            assert_eq!((kind as usize, kind.most_bytes()), (place, most));
            let frame = encode(kind, b"body").unwrap();
            assert_eq!(read_all(&frame, &[kind]).unwrap(), (kind, b"body".to_vec()));
            assert!(matches!(read_all(&frame[..7], &[kind]), Err(FrameError::Ended)));
        }
    }

    #[test]
    fn a_length_is_refused_before_anything_is_held() {
        let mut huge = encode(Kind::Ready, b"").unwrap();
        huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let refused = read_all(&huge, &[Kind::Ready]).unwrap_err();
        assert!(refused.to_string().contains("4294967295 bytes, where 64"), "{refused}");
        assert!(encode(Kind::Ping, &[0; 65]).is_err());
        let other = read_all(b"GET / HTTP/1.1\r\n", &[Kind::Hello]).unwrap_err();
        assert!(matches!(other, FrameError::UnknownKind(b'/')), "{other}");
        let early = read_all(&encode(Kind::Start, b"{}").unwrap(), &[Kind::Hello]).unwrap_err();
        assert!(matches!(early, FrameError::Unexpected(Kind::Start)), "{early}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((kind, body)) = read_all(&bytes, &[Kind::Ready, Kind::Samples]) {
                prop_assert!(body.len() <= kind.most_bytes());
                prop_assert_eq!(encode(kind, &body).unwrap(), bytes[..HEAD + body.len()].to_vec());
            }
        }
    }
}
