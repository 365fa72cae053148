//! Link to the other side of the protocol: a process's pipes, or a connection. In: messages. Out: messages, each within
//! a time limit. Knows nothing of their meaning.

use super::frame::{self, FrameError, Kind};
use super::message::{self, Failed, Message, Refused};
use std::fmt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;

/// Time limit for writing a message; beyond it the other side does not read.
pub const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of unread messages.
const WAITING: usize = 16;
/// Messages that a run sends once it is admitted.
const OF_RUNS: [Kind; 5] = [Kind::Setup, Kind::File, Kind::Order, Kind::Ping, Kind::Start];

/// Received bytes.
pub type Reader = BufReader<Box<dyn AsyncRead + Send + Unpin>>;

/// Error of the other side.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Unexpected bytes, or none.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// No message within the time.
    #[error("no answer for {} s", .0.as_secs())]
    Silent(Duration),
    /// The peer reports an error.
    #[error("{0}")]
    Says(String),
}

impl LinkError {
    /// Creates the error from the peer's own words, made printable.
    fn says(words: &str) -> Self {
        Self::Says(message::printable(words))
    }

    /// True if the peer has gone, rather than sent something wrong.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        match self {
            Self::Frame(error) => error.is_gone(),
            Self::Silent(_) => true,
            Self::Says(_) => false,
        }
    }
}

/// The sending half.
pub struct Mouth(Box<dyn AsyncWrite + Send + Unpin>);

impl Mouth {
    /// Sends a message.
    ///
    /// # Errors
    /// The other side does not read it.
    pub async fn say<M: Message>(&mut self, message: &M) -> Result<(), LinkError> {
        self.say_bytes(M::KIND, &message::body(message)?).await
    }

    /// Sends an encoded message.
    ///
    /// # Errors
    /// The other side does not read it.
    pub async fn say_bytes(&mut self, kind: Kind, body: &[u8]) -> Result<(), LinkError> {
        let frame = frame::encode(kind, body)?;
        let write = async {
            self.0.write_all(&frame).await?;
            self.0.flush().await
        };
        match timeout(WRITE_LIMIT, write).await {
            Ok(written) => written.map_err(|error| FrameError::Io(error).into()),
            Err(_) => Err(LinkError::Silent(WRITE_LIMIT)),
        }
    }
}

/// Both halves.
pub struct Link {
    /// Name of the peer in messages.
    pub name: String,
    /// True if nobody else can read the connection.
    pub is_private: bool,
    reader: Reader,
    mouth: Mouth,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Link {
    /// Link over two streams.
    #[must_use]
    pub fn new(
        name: String,
        is_private: bool,
        reader: Box<dyn AsyncRead + Send + Unpin>,
        writer: Box<dyn AsyncWrite + Send + Unpin>,
    ) -> Self {
        Self {
            name,
            is_private,
            reader: BufReader::new(reader),
            mouth: Mouth(writer),
        }
    }

    /// Sends a message: see [`Mouth::say`].
    ///
    /// # Errors
    /// The other side does not read it.
    pub async fn say<M: Message>(&mut self, message: &M) -> Result<(), LinkError> {
        self.mouth.say(message).await
    }

    /// Sends an encoded message: see [`Mouth::say_bytes`].
    ///
    /// # Errors
    /// The other side does not read it.
    pub async fn say_bytes(&mut self, kind: Kind, body: &[u8]) -> Result<(), LinkError> {
        self.mouth.say_bytes(kind, body).await
    }

    /// Waits for one message.
    ///
    /// # Errors
    /// Another message, none in time, or the other side's reason for not sending it.
    pub async fn hear<M: Message>(&mut self, limit: Duration) -> Result<M, LinkError> {
        Ok(message::parse(&self.hear_bytes(M::KIND, limit).await?)?)
    }

    /// Waits for one message, and returns its bytes.
    ///
    /// # Errors
    /// See [`Link::hear`].
    pub async fn hear_bytes(&mut self, kind: Kind, limit: Duration) -> Result<Vec<u8>, LinkError> {
        let taken = [kind, Kind::Failed, Kind::Refused];
        let read = timeout(limit, frame::read(&mut self.reader, &taken)).await;
        let (found, body) = read.map_err(|_| LinkError::Silent(limit))??;
        match found {
            Kind::Failed if kind != Kind::Failed => Err(LinkError::says(&message::parse::<Failed>(&body)?.what)),
            Kind::Refused if kind != Kind::Refused => Err(LinkError::says(&message::parse::<Refused>(&body)?.why)),
            _ => Ok(body),
        }
    }

    /// Splits the link, to detect its end during other work.
    #[must_use]
    pub fn halves(self) -> (Reader, Mouth) {
        (self.reader, self.mouth)
    }
}

/// Messages of a run, read concurrently with the work, so that the end of the link is noticed in the middle of a step.
#[derive(Debug)]
pub struct Orders(Receiver<(Kind, Vec<u8>)>);

/// Source of orders: see [`pump`].
#[derive(Debug)]
pub struct OrdersIn(Sender<(Kind, Vec<u8>)>);

/// Creates a bounded queue of messages.
#[must_use]
pub fn orders() -> (OrdersIn, Orders) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (OrdersIn(sender), Orders(receiver))
}

/// Reads messages until the link ends, and returns its error.
pub async fn pump(mut reader: Reader, orders: OrdersIn) -> FrameError {
    loop {
        match frame::read(&mut reader, &OF_RUNS).await {
            Ok(message) => {
                if orders.0.send(message).await.is_err() {
                    return FrameError::Ended;
                }
            }
            Err(error) => return error,
        }
    }
}

impl Orders {
    /// Returns the next message.
    ///
    /// # Errors
    /// The link has ended.
    pub async fn hear(&mut self) -> Result<(Kind, Vec<u8>), LinkError> {
        self.0.recv().await.ok_or(LinkError::Frame(FrameError::Ended))
    }

    /// Next message, which must have the given kind.
    ///
    /// # Errors
    /// A message of another kind, or none.
    pub async fn expect(&mut self, kind: Kind) -> Result<Vec<u8>, LinkError> {
        match self.hear().await? {
            (found, body) if found == kind => Ok(body),
            (other, _) => Err(FrameError::Unexpected(other).into()),
        }
    }
}
