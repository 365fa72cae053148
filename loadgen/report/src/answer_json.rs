//! `answer.json`: the answer for programs. In: a run. Out: the record's own keys, as JSON to be read by people too.

use tierlab_analysis::record::Run;

/// `answer.json`; `None` where nothing was asked, or nothing is answered yet.
#[must_use]
pub fn answer_json(run: &Run) -> Option<String> {
    let text = serde_json::to_string_pretty(run.answer.as_ref()?).ok()?;
    Some(text + "\n")
}
