//! Ctrl-C. In: the signal. Out: a flag that everything which goes on looks at.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody asked to stop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes Ctrl-C and SIGTERM for the rest of the process. The second one ends it at once.
    pub(crate) fn on_signal() -> Result<Self> {
        let stop = Self::default();
        let flag = stop.0.clone();
        ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::Relaxed) {
                eprintln!("interrupted twice: what was written to measure stays behind");
                std::process::exit(1);
            }
        })
        .context("cannot take Ctrl-C")?;
        Ok(stop)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
