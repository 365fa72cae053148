//! Values of configuration files that are more than a number.

use serde::{Deserialize, Deserializer};
use std::time::Duration;

/// Reads a duration from a whole number of milliseconds.
pub(crate) fn millis<'de, D: Deserializer<'de>>(value: D) -> Result<Duration, D::Error> {
    u64::deserialize(value).map(Duration::from_millis)
}
