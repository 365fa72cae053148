//! What every part of a plan is checked by.

use std::path::{Component, Path, PathBuf};

/// The most requests of one step: their due times, keys and bodies are all made before it starts.
pub(super) const MAX_REQUESTS_PER_STEP: f64 = 2e6;
/// The highest rate that a plan may ask for, in requests per second.
pub(super) const MAX_RATE: f64 = 100_000.0;

/// A plan's path relative to the plan's folder, without the detours of `..` where they lead back through a plain name.
pub(super) fn below(base: &Path, path: &Path) -> PathBuf {
    let mut short = PathBuf::new();
    for part in base.join(path).components() {
        match part {
            Component::ParentDir if matches!(short.components().next_back(), Some(Component::Normal(_))) => {
                short.pop();
            }
            Component::CurDir => {}
            part => short.push(part),
        }
    }
    short
}

/// Refuses NaN, infinities and whatever lies outside.
pub(super) fn within(key: &str, value: f64, least: f64, most: f64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("`{key}` = {value} is not within {least} and {most}"))
    }
}
