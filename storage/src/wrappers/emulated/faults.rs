//! Injected errors of requests. In: TOML. Out: validated rules. Draws nothing.

use crate::{ErrorKind, StorageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Kinds of errors that can be injected.
const KINDS: [ErrorKind; 6] = [
    ErrorKind::Unavailable,
    ErrorKind::Timeout,
    ErrorKind::Denied,
    ErrorKind::NotFound,
    ErrorKind::Changed,
    ErrorKind::Corrupt,
];

/// Maximum time to an error, in milliseconds: ten minutes, as for latencies.
const LONGEST_MS: u64 = 600_000;

/// Injected error of a share of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InjectedError {
    /// `unavailable`, `timeout`, `denied`, `not-found`, `changed` or `corrupt`.
    pub kind: String,
    /// Share of requests, from 0 to 1.
    pub rate: f64,
    /// Milliseconds from the start of the request to its error (default: its latency).
    pub after_ms: Option<u64>,
}

/// Validated error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ErrorRule {
    pub(crate) kind: ErrorKind,
    pub(crate) rate: f64,
    pub(crate) after: Option<Duration>,
}

/// Checks a list of errors.
///
/// # Errors
/// [`ErrorKind::Invalid`]; names the key.
pub(super) fn faults(errors: &[InjectedError]) -> Result<Vec<ErrorRule>, StorageError> {
    let fault = |error: &InjectedError| {
        let Some(kind) = KINDS.into_iter().find(|kind| kind.as_str() == error.kind) else {
            let known = KINDS.map(ErrorKind::as_str).join(", ");
            let detail = format!("unknown kind `{}`: use {known}", error.kind);
            return Err(invalid("errors.kind", detail));
        };
        if !(0.0..=1.0).contains(&error.rate) {
            let detail = format!("must be from 0 to 1: {}", error.rate);
            return Err(invalid("errors.rate", detail));
        }
        if let Some(after) = error.after_ms.filter(|after| *after > LONGEST_MS) {
            let detail = format!("must be at most {LONGEST_MS}: {after}");
            return Err(invalid("errors.after_ms", detail));
        }
        Ok(ErrorRule {
            kind,
            rate: error.rate,
            after: error.after_ms.map(Duration::from_millis),
        })
    };
    let faults: Vec<ErrorRule> = errors.iter().map(fault).collect::<Result<_, _>>()?;
    let all: f64 = faults.iter().map(|fault| fault.rate).sum();
    if all > 1.0 {
        let detail = format!("sum of the rates exceeds 1: {all}");
        return Err(invalid("errors.rate", detail));
    }
    Ok(faults)
}

/// Error about a key of the table.
pub(super) fn invalid(key: &str, detail: impl Into<String>) -> StorageError {
    ErrorKind::Invalid.error(format!("emulated.{key}"), detail)
}
