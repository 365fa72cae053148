//! Everything that is wrong with a text, found in one reading: whoever mends it sees all of it at once.

use super::tree::PbtxtError;

/// Refusals that are told at most; the rest is counted.
const MAX_TOLD: usize = 100;

/// Errors found so far.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<PbtxtError>);

impl Refusals {
    /// Notes what is wrong, if anything, and hands on what is right.
    pub(super) fn note<T>(&mut self, result: Result<T, PbtxtError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.push(error);
                None
            }
        }
    }

    /// True if there is an error at a field of the outermost message, or below it.
    pub(super) fn concern(&self, field: &str) -> bool {
        let outermost = |error: &PbtxtError| error.key.split('.').next().unwrap_or_default().to_owned();
        self.0.iter().any(|error| outermost(error) == field)
    }

    /// All of it, a line for each in the order of the text; none where nothing is wrong.
    pub(super) fn told(mut self) -> Option<String> {
        self.0.sort_by_key(|a| a.at);
        match self.0.as_slice() {
            [] => None,
            [one] => Some(one.to_string()),
            all => {
                let mut told = format!("{} things in it cannot be served as they are:", all.len());
                for error in all.iter().take(MAX_TOLD) {
                    told.push_str(&format!("\n  {error}"));
                }
                if all.len() > MAX_TOLD {
                    told.push_str(&format!("\n  and {} more", all.len() - MAX_TOLD));
                }
                Some(told)
            }
        }
    }
}
