//! The answer as JUnit XML, as build servers read it: a test case for each variant, and one for whether it was decided.
//!
//! In: a run with an answer. Out: the text. The shape is the one that Jenkins and GitLab read:
//! <https://github.com/testmoapp/junitxml>. Knows nothing of files.

use crate::content::answer::{AnswerText, RankRow};
use crate::content::figures::meets;
use crate::content::words;
use tierlab_analysis::record::{AnswerOutcome, MeetsObjective, Run};

/// What a test case came to.
enum Case {
    Passed,
    /// With its message.
    Failed(String),
    /// Neither: what is missing.
    Skipped(String),
}

/// JUnit XML; `None` where nothing was asked, or nothing is answered yet. A variant that meets the objective passes, one that
/// does not fails with the reason, one of which it is not known is skipped with what is missing. The case `decided` fails
/// where there is no answer.
#[must_use]
pub fn junit(run: &Run) -> Option<String> {
    let (answer, text) = (run.answer.as_ref()?, AnswerText::of(run)?);
    let mut cases: Vec<(String, Case)> = text
        .rows
        .iter()
        .map(|row| (row.tier.name.clone(), of_variant(run, row)))
        .collect();
    let decided = match answer.outcome {
        AnswerOutcome::Decided => Case::Passed,
        AnswerOutcome::Undecided | AnswerOutcome::None => Case::Failed(text.sentence.clone()),
    };
    cases.push(("decided".to_owned(), decided));
    let failures = cases.iter().filter(|(_, case)| matches!(case, Case::Failed(_))).count();
    let skipped = cases
        .iter()
        .filter(|(_, case)| matches!(case, Case::Skipped(_)))
        .count();
    let counts = format!(
        "tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"{:.1}\"",
        cases.len(),
        answer.spent_s
    );
    let name = escape(&run.name);
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"tierlab\" {counts}>\n  <testsuite name=\"{name}\" {counts} \
         timestamp=\"{}\">\n",
        escape(run.started_at.trim_end_matches('Z'))
    );
    for (case_name, case) in &cases {
        out += &format!("    <testcase classname=\"{name}\" name=\"{}\"", escape(case_name));
        out += &match case {
            Case::Passed => "/>\n".to_owned(),
            Case::Failed(why) => format!("><failure message=\"{}\"/></testcase>\n", escape(why)),
            Case::Skipped(why) => format!("><skipped message=\"{}\"/></testcase>\n", escape(why)),
        };
    }
    out += &format!(
        "    <system-out>{}</system-out>\n  </testsuite>\n</testsuites>\n",
        escape(&text.sentence)
    );
    Some(out)
}

fn of_variant(run: &Run, row: &RankRow) -> Case {
    match row.outcome {
        MeetsObjective::Met => Case::Passed,
        MeetsObjective::NotMet => Case::Failed(format!("{}: {}", meets(row.outcome), row.why)),
        MeetsObjective::Unknown => Case::Skipped(format!("{}: {}", meets(row.outcome), missing(run, row))),
    }
}

/// What is missing for a variant, where the lab left a question about it open; else why it is where it is.
fn missing(run: &Run, row: &RankRow) -> String {
    let open = run.answer.iter().flat_map(|answer| &answer.open);
    let about: Vec<String> = open
        .filter(|open| open.variants.contains(&row.tier.name))
        .map(words::open)
        .collect();
    if about.is_empty() {
        row.why.clone()
    } else {
        about.join("; ")
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
