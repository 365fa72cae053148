//! A folder as names, and what of it is read. Knows no disk and no store.

use super::lakes::columns::FileColumns;
use std::collections::HashMap;

/// A folder, on disk or in a store, as a list of what lies below it.
pub(super) struct Listing {
    /// As it is named in messages.
    pub(super) name: String,
    /// Names below it with slashes, sorted.
    pub(super) names: Vec<String>,
    /// The bytes of each.
    pub(super) bytes: Vec<u64>,
}

/// What of a folder is read.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Chosen {
    pub(super) names: Vec<String>,
    pub(super) left_out: Vec<String>,
    /// Columns of the files that do not define their own, by name.
    pub(super) columns: HashMap<String, FileColumns>,
}

/// A path whose odd characters are percent-encoded, as text.
pub(super) fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
