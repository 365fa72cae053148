//! The table of simulated labs. In: rows. Out: CSV and Markdown. Knows nothing of how they were simulated.

use super::families::{BUDGET, STEP_S};
use super::row::Row;
use std::fmt::Write as _;

pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = String::from("family,labs,right,wrong,none_wrong,undecided,median_steps,fixed_steps,fixed_wrong\n");
    for row in rows {
        let (fixed, wrong) = row.fixed.map_or_else(Default::default, |(steps, wrong)| {
            (steps.to_string(), wrong.to_string())
        });
        let _ = writeln!(
            text,
            "\"{}\",{},{},{},{},{},{},{fixed},{wrong}",
            row.family.name(),
            row.labs,
            row.right,
            row.wrong,
            row.none_wrong,
            row.undecided,
            row.median_steps(),
        );
    }
    text
}

pub(super) fn markdown(rows: &[Row], command: &str) -> String {
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>();
    let (decided, right) = (sum(Row::decided), sum(|row| row.right));
    let mut text = format!(
        "# How often a lab's answer is right\n\nMade by `{command}`. Right: of the labs that decided, those that named the best \
         variant or one within the tie (5 %) of it, or rightly none; asked for are 95 %. Undecided: the budget of {BUDGET} steps \
         ({:.0} s at {STEP_S} s each) ended, or fresh steps contradicted the choice. None, wrongly: said that no variant meets the \
         objective, where one does. Fixed design: every variant at the same ladder of rates, with the same repeats; the \
         smallest that is wrong no more often, and n/a where none of up to 60 steps of each variant is. It states no \
         confidence. Where repeats differ, the truth is that of the typical one.\n\n\
         Of {} labs {decided} decided, {right} of these rightly ({:.1} %).\n\n\
         | family | labs | right, of decided | undecided | none, wrongly | median steps | fixed design, steps | ratio |\n\
         |---|---|---|---|---|---|---|---|\n",
        f64::from(BUDGET) * STEP_S,
        sum(|row| row.labs),
        100.0 * right as f64 / decided.max(1) as f64,
    );
    for row in rows {
        let percent = |count: usize| 100.0 * count as f64 / row.labs.max(1) as f64;
        let right = match row.decided() {
            0 => "n/a".to_owned(),
            _ if row.right_share() < 0.95 => format!("**{:.1} %**", 100.0 * row.right_share()),
            _ => format!("{:.1} %", 100.0 * row.right_share()),
        };
        let (fixed, ratio) = row.fixed.map_or_else(
            || ("n/a".to_owned(), "n/a".to_owned()),
            |(steps, _)| {
                (
                    steps.to_string(),
                    format!("{:.2}", f64::from(row.median_steps()) / f64::from(steps)),
                )
            },
        );
        let _ = writeln!(
            text,
            "| {} | {} | {right} | {:.1} % | {:.1} % | {} | {fixed} | {ratio} |",
            row.family.name(),
            row.labs,
            percent(row.undecided),
            percent(row.none_wrong),
            row.median_steps(),
        );
    }
    text
}
