//! The table of simulated labs. In: rows. Out: CSV and Markdown. Knows nothing of how they were simulated.

use super::families::{BUDGET, STEP_S};
use super::row::Row;
use std::fmt::Write as _;

pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "family,held_out,labs,right,wrong,none_wrong,undecided,contradicted,median_steps,eliminated_wrong,eliminated_steps,named_steps,named_wrong\n",
    );
    for row in rows {
        let fixed = |fixed: Option<(u32, usize)>| {
            fixed.map_or_else(|| ",".to_owned(), |(steps, labs)| format!("{steps},{labs}"))
        };
        let _ = writeln!(
            text,
            "\"{}\",{},{},{},{},{},{},{},{},{:.4},{},{}",
            row.family.name(),
            row.family.held_out,
            row.labs,
            row.right,
            row.wrong,
            row.none_wrong,
            row.undecided,
            row.contradicted,
            row.median_steps(),
            row.elimination_error_share(),
            row.elimination_steps(),
            fixed(row.named),
        );
    }
    text
}

pub(super) fn markdown(rows: &[Row], command: &str) -> String {
    let mut text = format!(
        "# How often a lab's answer is right\n\nMade by `{command}`. Right: of the labs that decided, those that named the best \
         variant or one within the tie (5 %) of it, or rightly none; asked for are 95 %. Undecided: the budget of {BUDGET} steps \
         ({:.0} s at {STEP_S} s each) ended, or fresh steps contradicted the choice. None, wrongly: said that no variant meets the \
         objective, where one does. Median steps: of all labs, the undecided ones among them. Where repeats differ, the truth is \
         that of the long run. Errors: of all labs, those without the right answer, the undecided ones among them. \
         *Elimination* bisects the score with one step of each variant that is left; it states no confidence and confirms nothing. \
         No constant of the rule was chosen by how labs of held-out families were decided, but for the length of bursts, which rests on queues with constant service too.\n\n\
         One design is fixed beforehand: every variant at the same ladder of rates, with the same repeats, judged by the same chances. It \
         names the likeliest, states no confidence, and counts from the smallest size at which it errs in at most 5 % of all labs of \
         the family. Not reached: by no size of up to 60 steps of each variant. The ratio is the rule's median over the design's steps: \
         below 1 the rule is quicker. The size is chosen here in hindsight, which nobody with a lab of their own can do.\n\n",
        f64::from(BUDGET) * STEP_S,
    );
    for (what, held_out) in [("Held out", Some(true)), ("Others", Some(false)), ("All", None)] {
        let of = || {
            rows.iter()
                .filter(|row| held_out.is_none_or(|held_out| row.family.held_out == held_out))
        };
        let sum = |count: fn(&Row) -> usize| of().map(count).sum::<usize>();
        let (labs, decided, right) = (sum(|row| row.labs), sum(Row::decided), sum(|row| row.right));
        let _ = writeln!(
            text,
            "- {what}: of {labs} labs in {} families {decided} decided ({:.1} %), {right} of these rightly ({:.1} %).",
            of().count(),
            100.0 * decided as f64 / labs.max(1) as f64,
            100.0 * right as f64 / decided.max(1) as f64,
        );
    }
    text += "\n| family | held out | labs | right, of decided | undecided | none, wrongly | errors | median steps | elimination, errors | steps | names, steps | ratio |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        let percent = |count: usize| 100.0 * count as f64 / row.labs.max(1) as f64;
        let right = match row.decided() {
            0 => "n/a".to_owned(),
            _ if row.right_share() < 0.95 => format!("**{:.1} %**", 100.0 * row.right_share()),
            _ => format!("{:.1} %", 100.0 * row.right_share()),
        };
        let steps = |fixed: Option<(u32, usize)>| {
            fixed.map_or_else(|| "not reached".to_owned(), |(steps, _)| steps.to_string())
        };
        let ratio = |fixed| {
            row.ratio(fixed)
                .map_or_else(|| "n/a".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {right} | {:.1} % | {:.1} % | {:.1} % | {} | {:.1} % | {} | {} | {} |",
            row.family.name(),
            if row.family.held_out { "yes" } else { "no" },
            row.labs,
            percent(row.undecided),
            percent(row.none_wrong),
            100.0 * row.error_share(),
            row.median_steps(),
            100.0 * row.elimination_error_share(),
            row.elimination_steps(),
            steps(row.named),
            ratio(row.named),
        );
    }
    text
}
