//! Link to the peer: a process's pipes, or a connection. In: messages. Out: messages, each within a time limit and a
//! length. Independent of their meaning.

pub use crate::message::LinkError;
use crate::message::{self, ToRun, ToWorker};
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{self, Receiver};
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

/// Time limit for writing a message, after which the peer counts as not reading.
pub const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// Maximum size of a message from a peer before admission.
const MAX_UNAUTHENTICATED_BYTES: usize = 4 << 10;
/// Maximum size of a sent reason, far below a message's limit.
const MAX_REASON_BYTES: usize = 4_000;
/// Maximum number of unread messages.
const MAX_UNREAD_ORDERS: usize = 16;

/// The receiving half.
pub struct Input(FramedRead<Box<dyn AsyncRead + Send + Unpin>, LengthDelimitedCodec>);

impl Input {
    async fn receive_message<M: DeserializeOwned>(&mut self) -> Result<M, LinkError> {
        match self.0.next().await {
            None => Err(LinkError::Ended),
            Some(Ok(bytes)) => message::decode(&bytes),
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Err(LinkError::TooLong(self.0.decoder().max_frame_length()))
            }
            Some(Err(error)) => Err(LinkError::Io(error)),
        }
    }

    /// Reads orders during work, so that the end of the link is noticed within a step. The returned future reads until the
    /// link ends, and returns its error.
    pub fn orders<J: DeserializeOwned>(mut self) -> (Orders<J>, impl Future<Output = LinkError>) {
        let (sender, receiver) = mpsc::channel(MAX_UNREAD_ORDERS);
        let reading = async move {
            loop {
                let order = match self.receive_message().await {
                    Ok(order) => order,
                    Err(error) => return error,
                };
                if sender.send(order).await.is_err() {
                    return LinkError::Ended;
                }
            }
        };
        (Orders(receiver), reading)
    }
}

/// The sending half.
pub struct Output(FramedWrite<Box<dyn AsyncWrite + Send + Unpin>, LengthDelimitedCodec>);

impl Output {
    /// Sends a message.
    ///
    /// # Errors
    /// The peer does not read it.
    pub async fn send(&mut self, message: &impl Serialize) -> Result<(), LinkError> {
        let bytes = message::encode(message)?;
        let max = self.0.encoder().max_frame_length();
        if bytes.len() > max {
            let bytes = bytes.len();
            return Err(LinkError::PlanTooLong { bytes, max });
        }
        match timeout(WRITE_LIMIT, self.0.send(Bytes::from(bytes))).await {
            Ok(sent) => sent.map_err(LinkError::Io),
            Err(_) => Err(LinkError::Silent(WRITE_LIMIT)),
        }
    }

    /// Reports the reason why a run is refused or a step cannot run.
    ///
    /// # Errors
    /// The peer does not read it.
    pub async fn fail(&mut self, mut reason: String) -> Result<(), LinkError> {
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        self.send(&ToRun::<()>::Failed(reason)).await
    }
}

/// Orders of a run, in their sequence.
#[derive(Debug)]
pub struct Orders<J>(Receiver<ToWorker<J>>);

impl<J> Orders<J> {
    /// Returns the next order.
    ///
    /// # Errors
    /// The link has ended.
    pub async fn next(&mut self) -> Result<ToWorker<J>, LinkError> {
        self.0.recv().await.ok_or(LinkError::Ended)
    }
}

/// Both halves.
pub struct Link {
    /// Peer's name, for messages.
    pub name: String,
    /// True if nobody else can read the connection.
    pub is_private: bool,
    input: Input,
    output: Output,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Link {
    /// Creates a link over a stream, to a peer before admission.
    pub fn new(name: String, is_private: bool, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let codec = |max| LengthDelimitedCodec::builder().max_frame_length(max).new_codec();
        Self {
            name,
            is_private,
            input: Input(FramedRead::new(Box::new(reader), codec(MAX_UNAUTHENTICATED_BYTES))),
            output: Output(FramedWrite::new(Box::new(writer), codec(message::MAX_TO_WORKER))),
        }
    }

    /// Accepts messages of up to `max` bytes from now on.
    #[must_use]
    pub fn admitted(mut self, max: usize) -> Self {
        self.input.0.decoder_mut().set_max_frame_length(max);
        self
    }

    /// Sends a message: see [`Output::send`].
    ///
    /// # Errors
    /// The peer does not read it.
    pub async fn send(&mut self, message: &impl Serialize) -> Result<(), LinkError> {
        self.output.send(message).await
    }

    /// Waits for a message of a run.
    ///
    /// # Errors
    /// Unexpected message, or no message in time.
    pub async fn order<J: DeserializeOwned>(&mut self, limit: Duration) -> Result<ToWorker<J>, LinkError> {
        let received = timeout(limit, self.input.receive_message()).await;
        received.map_err(|_| LinkError::Silent(limit))?
    }

    /// Waits for a message of a process.
    ///
    /// # Errors
    /// Unexpected message, no message in time, or the process's reason for not sending it, made printable.
    pub async fn answer<R: DeserializeOwned>(&mut self, limit: Duration) -> Result<ToRun<R>, LinkError> {
        let received = timeout(limit, self.input.receive_message()).await;
        match received.map_err(|_| LinkError::Silent(limit))?? {
            ToRun::Failed(what) => Err(LinkError::Reported(message::printable(&what))),
            answer => Ok(answer),
        }
    }

    /// Splits the link, to detect its end during other work.
    #[must_use]
    pub fn halves(self) -> (Input, Output) {
        (self.input, self.output)
    }
}
