//! Where a tier of a lab reads from.

use serde::Deserialize;
use std::fmt;

/// What stands behind a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A server that the lab starts on this machine.
    Embedded,
    /// The tier's own config says where; what answers there imitates the real thing.
    Emulated,
    /// The tier's own config says where.
    Real,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "embedded",
            Self::Emulated => "emulated",
            Self::Real => "real",
        })
    }
}
