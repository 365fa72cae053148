//! One load: what is asked for, and how often.

use serde::{Deserialize, Serialize};
use tierlab_analysis::record::Mode;

/// One load: a mode, a batch size and a rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Real-time or batch.
    pub mode: Mode,
    /// Entities per request; 1 in real-time mode.
    pub batch_size: u32,
    /// Requests per second.
    pub rate: f64,
}

impl Load {
    /// The same load at another rate.
    #[must_use]
    pub fn at(self, rate: f64) -> Self {
        Self { rate, ..self }
    }
}
