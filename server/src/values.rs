//! Types of configuration values.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serializer};
use std::time::Duration;

/// Duration as a whole number of milliseconds, for `serde(with = "Millis")`.
#[derive(JsonSchema)]
#[schemars(inline, with = "u64")]
pub(crate) struct Millis;

impl Millis {
    /// Reads a duration.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(value: D) -> Result<Duration, D::Error> {
        u64::deserialize(value).map(Duration::from_millis)
    }

    /// Writes a key's default into the schema.
    pub(crate) fn serialize<S: Serializer>(default: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(default.as_millis() as u64)
    }
}
