//! Files of a plan, sent to agents. In: paths of this host. Out: their bytes, in pieces.

use super::message::{FileHead, Job, ToWorker};
use std::io::Read as _;
use std::path::Path;
use tierlab_agents::worker::{Worker, WorkerError};

/// Bytes of a file per message.
const PIECE: usize = 1 << 20;

/// Returns the header of a file to send.
///
/// # Errors
/// A file that does not exist.
pub(super) fn head_of(path: &Path) -> Result<FileHead, WorkerError> {
    let about = std::fs::metadata(path).map_err(WorkerError::io(path))?;
    Ok(FileHead {
        path: path.to_owned(),
        bytes: about.len(),
    })
}

/// Sends a file's bytes: as many as its header says, even if the file has changed since.
///
/// # Errors
/// A file that cannot be read or is shorter, or those of the link.
pub(super) async fn send_file(worker: &mut Worker, head: &FileHead) -> Result<(), WorkerError> {
    let at = || WorkerError::io(&head.path);
    let mut file = std::fs::File::open(&head.path).map_err(at())?;
    let mut left = head.bytes;
    let mut piece = vec![0; PIECE];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let read = file.read(&mut piece[..most]).map_err(at())?;
        if read == 0 {
            return Err(at()(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let said = worker.link.say(&ToWorker::Job(Job::File(piece[..read].to_vec()))).await;
        worker.check(said).await?;
        left -= read as u64;
    }
    Ok(())
}
