//! Ending a run of ONNX Runtime early.
//!
//! In: the options with which a session's runs are made, the same ones for all of them. Out: an [`Interrupt`] over their
//! flag. ONNX Runtime looks at it between two operators, inside the bodies of loops too.

use crate::batch::active::{ActiveRun, Interrupt};
use ort::session::RunOptions;
use std::fmt;
use std::sync::Arc;

/// One session's.
#[derive(Clone)]
pub(crate) struct RunControl {
    pub(super) options: Arc<RunOptions>,
    pub(super) active: Arc<ActiveRun>,
}

impl RunControl {
    /// For the session of this number among those of its model.
    ///
    /// # Errors
    /// ONNX Runtime's.
    pub(crate) fn new(session: u32) -> Result<Self, String> {
        let options = RunOptions::new().map_err(|e| e.to_string())?;
        let options = Arc::new(options);
        let interrupt = TerminateFlag(Arc::clone(&options));
        Ok(Self {
            options,
            active: Arc::new(ActiveRun::new(session, Box::new(interrupt))),
        })
    }
}

impl fmt::Debug for RunControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

struct TerminateFlag(Arc<RunOptions>);

impl Interrupt for TerminateFlag {
    fn interrupt(&self) {
        if let Err(error) = self.0.terminate() {
            tracing::error!(%error, "a run cannot be ended");
        }
    }

    fn rearm(&self) {
        if let Err(error) = self.0.unterminate() {
            tracing::error!(%error, "a session cannot be used again");
        }
    }
}
