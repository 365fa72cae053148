//! Recovery from agents lost in the middle of a step. In: the loss. Out: all agents reconnected, or the end of the run
//! with its finished steps.

use super::send::Senders;
use crate::error::RunError;
use std::path::Path;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::workers::WorkerError;

/// Maximum restarts of one step after an agent was lost.
const BEGUN_ANEW: usize = 3;

impl Senders {
    /// Returns the result of a step; `None` if an agent was lost during it and is back, so that the step must be
    /// restarted.
    ///
    /// # Errors
    /// The step's own, an interrupt, and the loss of an agent that does not come back or is lost repeatedly.
    pub(super) async fn kept<T>(
        &mut self,
        sent: Result<Option<T>, RunError>,
        lost_before: &mut Vec<String>,
        interrupt: &Interrupt,
        folder: &Path,
    ) -> Result<Option<T>, RunError> {
        match sent {
            Ok(Some(measured)) => Ok(Some(measured)),
            Ok(None) => Err(RunError::Interrupted(folder.to_owned())),
            Err(RunError::Workers(WorkerError::Lost(what))) => {
                self.regain(what, lost_before, interrupt, folder).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reconnects to all agents after one was lost, and records the loss.
    ///
    /// # Errors
    /// An agent that does not come back, or is lost repeatedly.
    async fn regain(
        &mut self,
        lost: String,
        lost_before: &mut Vec<String>,
        interrupt: &Interrupt,
        folder: &Path,
    ) -> Result<(), RunError> {
        let end = |why: String| {
            RunError::AgentLost(format!(
                "{why}\nThat step is dropped, what was finished before is in {}; start the agent again and resume with --resume {0}",
                folder.display()
            ))
        };
        let Some(workers) = &mut self.workers else {
            return Err(end(lost));
        };
        lost_before.push(lost.clone());
        if lost_before.len() > BEGUN_ANEW {
            return Err(end(format!("{lost}, for the {}th time in one step", lost_before.len())));
        }
        eprintln!("{lost}; the step under way is dropped, and begun anew when the agent is back");
        tokio::select! {
            back = workers.reconnect() => back.map_err(|error| end(format!("{lost}, and did not come back: {error}"))),
            () = interrupt.raised() => Err(RunError::Interrupted(folder.to_owned())),
        }
    }
}
