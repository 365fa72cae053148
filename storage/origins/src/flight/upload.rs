//! Uploads. In: a client's messages. Out: the object, once all of it has arrived. Messages become pieces for a blocking
//! writer; an upload that ends early, or is damaged, leaves nothing behind. Knows nothing of files.

use super::folder::Folder;
use arrow_array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use std::io::{self, Read};
use tierlab_storage::error::ErrorKind;
use tierlab_storage::path::ObjectPath;
use tierlab_storage::tier::Object;
use tierlab_storage::tiers::flight::payload;
use tierlab_storage::tiers::flight::status::{refusal, to_status};
use tierlab_storage::tiers::flight::ticket::PutCommand;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

/// Pieces on their way to the writer.
const PIECES: usize = 4;

/// Takes an upload.
pub(super) async fn take(folder: &Folder, mut messages: Streaming<FlightData>) -> Result<Object, Status> {
    let first = messages.message().await?;
    let first = first.ok_or_else(|| refusal(ErrorKind::Invalid, "an upload begins with its descriptor"))?;
    let command = first
        .flight_descriptor
        .as_ref()
        .map_or(&[][..], |descriptor| &descriptor.cmd);
    let command: PutCommand = serde_json::from_slice(command).map_err(|e| {
        let what = format!("no command of an upload: {e}; it is {{\"object\":PATH,\"size\":BYTES}}");
        refusal(ErrorKind::Invalid, what)
    })?;
    let path = ObjectPath::new(&command.object).map_err(|e| to_status(&e))?;
    let (pieces, taken) = mpsc::channel(PIECES);
    let reader = Pieces {
        taken,
        current: Bytes::new(),
        missing: command.size,
    };
    let messages = stream::iter([Ok(first)]).chain(messages);
    let (sent, stored) = tokio::join!(send(messages.boxed(), pieces), folder.put(&path, reader));
    // The error that broke the upload says more than its end.
    sent?;
    stored.map_err(|e| to_status(&e))
}

/// Passes on the values of all batches. If it fails, the writer's pieces end early.
async fn send(
    messages: stream::BoxStream<'static, Result<FlightData, Status>>,
    pieces: mpsc::Sender<Bytes>,
) -> Result<(), Status> {
    let checked = messages.map(|message| {
        let message = message?;
        payload::check(&message).map_err(|what| refusal(ErrorKind::Unavailable, what))?;
        Ok::<_, FlightError>(message)
    });
    let mut decoder = FlightDataDecoder::new(checked);
    while let Some(decoded) = decoder.next().await {
        match decoded?.payload {
            DecodedPayload::None => {}
            DecodedPayload::Schema(schema) => {
                payload::check_schema(&schema).map_err(|what| refusal(ErrorKind::Invalid, what))?;
            }
            DecodedPayload::RecordBatch(batch) => {
                if pieces.send(piece(&batch)?).await.is_err() {
                    // The writer has stopped; its result has the error.
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

fn piece(batch: &RecordBatch) -> Result<Bytes, Status> {
    let values = payload::values(batch).map_err(|what| refusal(ErrorKind::Invalid, what))?;
    Ok(Bytes::copy_from_slice(values))
}

/// Pieces for the writer: exactly as many bytes as announced, or an error.
struct Pieces {
    taken: mpsc::Receiver<Bytes>,
    current: Bytes,
    missing: u64,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let broken = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        while self.current.is_empty() {
            match self.taken.blocking_recv() {
                Some(piece) => self.current = piece,
                None if self.missing == 0 => return Ok(0),
                None => return broken(format!("the upload ended {} bytes early", self.missing)),
            }
        }
        let len = self.current.len().min(buffer.len());
        if len as u64 > self.missing {
            return broken("the upload is longer than it was said to be".into());
        }
        buffer[..len].copy_from_slice(&self.current.split_to(len));
        self.missing -= len as u64;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(size: u64, pieces: &[&'static [u8]]) -> io::Result<Vec<u8>> {
        let (sender, taken) = mpsc::channel(9);
        for piece in pieces {
            sender.try_send(Bytes::from_static(piece)).unwrap();
        }
        drop(sender);
        let mut reader = Pieces {
            taken,
            current: Bytes::new(),
            missing: size,
        };
        let mut all = Vec::new();
        reader.read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn an_upload_is_whole_or_an_error() {
        assert_eq!(read(5, &[b"ab", b"", b"cde"]).unwrap(), b"abcde");
        assert_eq!(read(0, &[]).unwrap(), b"");
        assert!(read(6, &[b"ab", b"cde"]).is_err());
        assert!(read(4, &[b"ab", b"cde"]).is_err());
    }
}
