//! One line of a self-check.

use serde::{Deserialize, Serialize};

/// One line of a self-check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// What should have come out.
    pub expected: String,
    /// What came out.
    pub measured: String,
    /// Whether that is within the check's tolerance.
    pub passed: bool,
}
