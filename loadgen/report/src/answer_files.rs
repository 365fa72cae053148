//! The answer for programs: `answer.json`, and JUnit XML for build servers.
//!
//! In: a run with an answer. Out: text. The XML has the form that Jenkins and GitLab read:
//! <https://github.com/testmoapp/junitxml>. Knows nothing of files.

use crate::content::answer::AnswerText;
use crate::content::answer_sentence::meets;
use crate::content::labels;
use tierlab_analysis::record::{Answer, AnswerOutcome, MeetsObjective, OpenQuestion, Ranked, Run};

/// Returns `answer.json`, the keys of the record; `None` without a question, or before its answer.
pub fn answer_json(run: &Run) -> Option<String> {
    let text = serde_json::to_string_pretty(run.answer.as_ref()?).ok()?;
    Some(text + "\n")
}

/// Test case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Name, such as a variant or a point.
    pub name: String,
    /// Result with its reason.
    pub result: CaseResult,
}

/// Result of a test case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaseResult {
    /// The case passed.
    Passed,
    /// Failed, with its message.
    Failed(String),
    /// Skipped, with the missing evidence.
    Skipped(String),
}

/// Returns the answer as JUnit XML; `None` without a question, or before its answer. A variant that meets the objective passes; one
/// that misses it fails with the reason; any other is skipped with the missing evidence. The case `decided` fails without a
/// decision.
pub fn answer_junit(run: &Run) -> Option<String> {
    let answer = run.answer.as_ref()?;
    let sentence = AnswerText::of(run)?.sentence;
    let result = match answer.outcome {
        AnswerOutcome::Decided => CaseResult::Passed,
        AnswerOutcome::Undecided | AnswerOutcome::None => CaseResult::Failed(sentence.clone()),
    };
    let name = "decided".to_owned();
    let variants = answer.ranking.iter().map(|ranked| Case {
        name: ranked.variant.clone(),
        result: case(answer, ranked),
    });
    let cases: Vec<Case> = variants.chain([Case { name, result }]).collect();
    let cases: Vec<&Case> = cases.iter().collect();
    Some(document(run, &cases, answer.spent_s, &sentence))
}

/// Returns cases of a run as JUnit XML, with the time of its measured windows.
pub fn junit(run: &Run, cases: &[&Case]) -> String {
    let windows = run.points.iter().flat_map(|point| &point.repeats);
    document(run, cases, windows.map(|repeat| repeat.window_s).sum(), "")
}

fn document(run: &Run, cases: &[&Case], seconds: f64, sentence: &str) -> String {
    let count = |of: fn(&CaseResult) -> bool| cases.iter().filter(|case| of(&case.result)).count();
    let failures = count(|result| matches!(result, CaseResult::Failed(_)));
    let skipped = count(|result| matches!(result, CaseResult::Skipped(_)));
    let tests = cases.len();
    let counts =
        format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"{seconds:.1}\"");
    let name = escape(&run.name);
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"tierlab\" {counts}>\n  <testsuite name=\"{name}\" {counts} \
         timestamp=\"{}\">\n",
        escape(run.started_at.trim_end_matches('Z'))
    );
    for case in cases {
        out += &format!("    <testcase classname=\"{name}\" name=\"{}\"", escape(&case.name));
        out += &match &case.result {
            CaseResult::Passed => "/>\n".to_owned(),
            CaseResult::Failed(why) => format!("><failure message=\"{}\"/></testcase>\n", escape(why)),
            CaseResult::Skipped(why) => format!("><skipped message=\"{}\"/></testcase>\n", escape(why)),
        };
    }
    let sentence = escape(sentence);
    out + &format!("    <system-out>{sentence}</system-out>\n  </testsuite>\n</testsuites>\n")
}

fn case(answer: &Answer, ranked: &Ranked) -> CaseResult {
    let message = |why: &str| format!("{}: {why}", meets(ranked.outcome));
    match ranked.outcome {
        MeetsObjective::Met => CaseResult::Passed,
        MeetsObjective::NotMet => CaseResult::Failed(message(&ranked.why)),
        MeetsObjective::Unknown => CaseResult::Skipped(message(&missing(answer, ranked))),
    }
}

/// Missing evidence about a variant, if a question about it is open; else the reason for its rank.
fn missing(answer: &Answer, ranked: &Ranked) -> String {
    let is_about = |open: &&OpenQuestion| open.variants.contains(&ranked.variant);
    let about: Vec<String> = answer.open.iter().filter(is_about).map(labels::open).collect();
    match about.is_empty() {
        true => ranked.why.clone(),
        false => about.join("; "),
    }
}

/// Text for an attribute in double quotes or an element. XML 1.0 has no way to write most control characters: they become
/// spaces.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' => out.push_str("&#10;"),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;
    use proptest::prelude::*;

    #[test]
    fn what_others_wrote_stays_text() {
        assert_eq!(
            escape("a<b> & \"c\" 'd'\u{1}\n"),
            "a&lt;b&gt; &amp; &quot;c&quot; &apos;d&apos; &#10;"
        );
    }

    proptest! {
        #[test]
        fn nothing_ends_an_attribute_or_begins_an_element(text in any::<String>()) {
            let out = escape(&text);
            prop_assert!(!out.contains(['<', '>', '"', '\'']) && !out.contains(|c: char| c.is_control()));
        }
    }
}
