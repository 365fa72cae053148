//! One line of a self-check.

use serde::{Deserialize, Serialize};

/// One line of a self-check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the check.
    pub name: String,
    /// Expected result.
    pub expected: String,
    /// Measured result.
    pub measured: String,
    /// True if the measured result is within the check's tolerance.
    pub passed: bool,
}
