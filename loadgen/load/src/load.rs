//! Load of one point: mode, batch size and rate.

use serde::{Deserialize, Serialize};
use tierlab_analysis::record::Mode;

/// Mode, batch size and rate of a load.
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
    /// Returns the same load at another rate.
    #[must_use]
    pub fn at(self, rate: f64) -> Self {
        Self { rate, ..self }
    }
}
