//! The table of coverage. In: rows. Out: CSV, and Markdown with a summary by method. Knows nothing of how they were
//! simulated.

use super::comparing::CompareRow;
use super::drifting::DriftRow;
use super::highest_rate::SearchRow;
use super::laws::Law;
use super::rows::{Row, Setting, Tally, WANTED};
use std::fmt::Write as _;

/// A method's tally in a row that has it.
type Method = (&'static str, fn(&Row) -> Option<Tally>);

const METHODS: [Method; 3] = [
    ("sections over repeats (the reports' intervals)", |row| {
        Some(row.sections)
    }),
    ("two-level bootstrap", |row| row.bootstrap.map(|[plain, _]| plain)),
    ("two-level bootstrap, corrected for few repeats", |row| {
        row.bootstrap.map(|[_, corrected]| corrected)
    }),
];

pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "law,spread,repeats,samples_per_repeat,what,trials,printed,covered,coverage,width,\
         bootstrap_coverage,bootstrap_width,bootstrap_corrected_coverage,bootstrap_corrected_width\n",
    );
    for row in rows {
        let Setting {
            law,
            spread,
            repeats,
            samples,
        } = row.setting;
        let _ = write!(
            text,
            "{},{spread},{repeats},{samples},\"{}\",{},{},{},{:.4},{:.4}",
            law.name(),
            row.what,
            row.trials,
            row.printed,
            row.sections.covered,
            row.coverage(),
            row.sections.width()
        );
        match &row.bootstrap {
            Some(tallies) => {
                for tally in tallies {
                    let _ = write!(text, ",{:.4},{:.4}", tally.coverage(), tally.width());
                }
            }
            None => text += ",,,,",
        }
        text.push('\n');
    }
    text
}

pub(super) fn markdown(rows: &[Row], command: &str) -> String {
    let mut text = format!(
        "# What the 95 % intervals cover\n\nMade by `{command}`. Each figure: the share of all trials in which the interval \
         contained the true value, whether or not a report would print it; *n/a* behind it: never printed, since the \
         design (samples, and the dependence of a queue with as many in flight) is too small for it; in brackets the share \
         of trials that print it, where that is neither none nor all. Spread: how much repeats differ as wholes (standard \
         deviation of the logarithm). Printed figures below {:.0} % (two standard deviations of the simulation allowed) are \
         in bold. Queues start empty and go through a plan's schedule with a warm-up of a tenth of the window.\n",
        100.0 * WANTED
    );
    text += &summary(rows);
    for law in Law::ALL {
        let of_law: Vec<&Row> = rows.iter().filter(|row| row.setting.law == law).collect();
        if of_law.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\n## {}\n\n| repeats × samples | spread | p50 | p95 | p99 | B/A p50, paired | the bootstrap's p50 | p95 | p99 |\n\
             |---|---|---|---|---|---|---|---|---|\n",
            law.name()
        );
        for group in of_law.chunk_by(|a, b| a.setting == b.setting) {
            let setting = group[0].setting;
            let _ = write!(
                text,
                "| {} × {} | {:.0} % |",
                setting.repeats,
                setting.samples,
                100.0 * setting.spread
            );
            let cell = |what: &str, show: fn(&Row) -> String| {
                let row = group.iter().find(|row| row.what == what);
                row.map_or_else(|| "n/a".to_owned(), |row| show(row))
            };
            for what in ["p50", "p95", "p99", "B/A p50, paired"] {
                let _ = write!(text, " {} |", cell(what, figure));
            }
            for what in ["p50", "p95", "p99"] {
                let _ = write!(text, " {} |", cell(what, beside));
            }
            text.push('\n');
        }
    }
    text
}

/// The methods side by side, over all laws, by how many repeats there are and whether they differ.
fn summary(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## The methods side by side\n\nOver all laws and percentiles that are printed: mean coverage, the lowest coverage \
         of any row, and the mean width (upper end over lower). The bootstraps draw repeats and then time blocks, and see the \
         first 60 of the same points; the reports do not use them. In the tables below, the bootstrap's figures are the plain \
         one and, after the stroke, the corrected one.\n\n\
         | repeats | spread | method | mean coverage | lowest | rows of 92 % or more | mean width |\n|---|---|---|---|---|---|---|\n",
    );
    let mut kinds: Vec<(usize, f64)> = rows
        .iter()
        .map(|row| (row.setting.repeats, row.setting.spread))
        .collect();
    kinds.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    kinds.dedup();
    for (repeats, spread) in kinds {
        let of_kind: Vec<&Row> = rows
            .iter()
            .filter(|row| row.setting.repeats == repeats && row.setting.spread == spread)
            .filter(|row| row.bootstrap.is_some() && row.is_printed())
            .collect();
        if of_kind.is_empty() {
            continue;
        }
        for (name, of) in METHODS {
            let tallies: Vec<Tally> = of_kind.iter().filter_map(|row| of(row)).collect();
            let count = tallies.len() as f64;
            let mean = |value: fn(&Tally) -> f64| tallies.iter().map(value).sum::<f64>() / count;
            let lowest = tallies.iter().map(Tally::coverage).fold(1.0, f64::min);
            let within = tallies.iter().filter(|tally| tally.is_enough()).count();
            let _ = writeln!(
                text,
                "| {repeats} | {:.0} % | {name} | {:.1} % | {:.1} % | {within} of {} | {:.3} |",
                100.0 * spread,
                100.0 * mean(Tally::coverage),
                100.0 * lowest,
                tallies.len(),
                mean(Tally::width),
            );
        }
    }
    text
}

fn figure(row: &Row) -> String {
    if row.sections.count == 0 {
        return "n/a".to_owned();
    }
    let mut text = format!("{:.1} %", 100.0 * row.coverage());
    if !row.holds() {
        text = format!("**{text}**");
    }
    if row.printed == 0 {
        text += " *n/a*";
    } else if row.printed < row.trials {
        let _ = write!(text, " ({:.1} %)", 100.0 * row.printed as f64 / row.trials as f64);
    }
    text
}

/// The two bootstraps: plain / corrected.
fn beside(row: &Row) -> String {
    let Some(tallies) = row.bootstrap.filter(|[plain, _]| plain.count > 0) else {
        return "n/a".to_owned();
    };
    format!(
        "{} %",
        tallies
            .map(|tally| format!("{:.1}", 100.0 * tally.coverage()))
            .join(" / ")
    )
}

pub(super) fn searches_csv(rows: &[SearchRow]) -> String {
    let mut text = String::from(
        "server,spread,repeats,trials,found,coverage,above,below,closed,closed_coverage,closed_width,mean_off,mean_steps\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "\"{}\",{},{},{},{},{:.4},{},{},{},{:.4},{:.4},{:.4},{:.1}",
            row.setting.server.name(),
            row.setting.spread,
            row.setting.repeats,
            row.trials,
            row.found,
            row.coverage(),
            row.above,
            row.below,
            row.closed,
            row.closed_coverage(),
            row.width(),
            row.off / row.found.max(1) as f64,
            row.steps as f64 / row.trials.max(1) as f64
        );
    }
    text
}

pub(super) fn searches_markdown(rows: &[SearchRow]) -> String {
    let mut text = String::from(SEARCHES);
    for row in rows {
        let share = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
        let coverage = format!("{:.1} %", 100.0 * row.coverage());
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} % | {} | {:.1} % / {:.1} % | {:.0} % | {:.1} % | {:.2} | {:.1} % | {:.0} |",
            row.setting.server.name(),
            row.setting.repeats,
            100.0 * row.setting.spread,
            if row.holds() {
                coverage
            } else {
                format!("**{coverage}**")
            },
            share(row.above, row.found),
            share(row.below, row.found),
            share(row.closed, row.found),
            100.0 * row.closed_coverage(),
            row.width(),
            100.0 * row.off / row.found.max(1) as f64,
            row.steps as f64 / row.trials.max(1) as f64
        );
    }
    text
}

const SEARCHES: &str = "
## The highest rate under an objective

Searches for the highest rate with `p99 < limit`, as a plan's `[search]` makes them (windows of 4 s, behind the queue of 16 s; rates within 5 %), on \
servers whose p99 at any rate is known; the true highest rate is 250/s. Contained: the share of the searches whose \
interval contains it; then the share whose interval lies above it, and below. The interval reaches from the highest rate \
that certainly meets the objective to the lowest that certainly does not; where one of the two was not found it is open \
on that side, and contains the truth for that reason alone. Closed: the share with both ends, and how many of those \
contain the truth. Width: upper end over lower, of the closed. Off: mean distance of the rate itself from the true one.

| server | repeats | spread | contained | above / below | closed | contained | width | off | steps |
|---|---|---|---|---|---|---|---|---|---|
";

pub(super) fn drifts_csv(rows: &[DriftRow]) -> String {
    let mut text = String::from("shape,repeats,samples_per_repeat,trials,found,share\n");
    for row in rows {
        let _ = writeln!(
            text,
            "\"{}\",{},{},{},{},{:.4}",
            row.setting.shape.name(),
            row.setting.repeats,
            row.setting.samples,
            row.trials,
            row.found,
            row.share()
        );
    }
    text
}

pub(super) fn drifts_markdown(rows: &[DriftRow]) -> String {
    let mut text = String::from(DRIFTS);
    for (number, group) in rows.chunk_by(|a, b| a.setting.shape == b.setting.shape).enumerate() {
        if number == 0 {
            text += "| drift |";
            for row in group {
                let _ = write!(text, " {} × {} |", row.setting.repeats, row.setting.samples);
            }
            let _ = writeln!(text, "\n|---|{}", "---|".repeat(group.len()));
        }
        let _ = write!(text, "| {} |", group[0].setting.shape.name());
        for row in group {
            let share = format!("{:.1} %", 100.0 * row.share());
            let _ = write!(text, " {} |", if row.holds() { share } else { format!("**{share}**") });
        }
        text.push('\n');
    }
    text
}

const DRIFTS: &str = "
## Drift

In how many trials a point of so many repeats and requests is said to drift (`tierlab_analysis::validity::stationarity`), by the median or by \
the slowest 1 %, within repeats or from one to the next. In bold: more than 2 % where nothing drifts or the drift is \
bounded, less than 90 % of what drifts with ten repeats of 500 requests or more (two standard deviations of the simulation \
allowed). Repeats differ by 3 %. A queue whose repeats end before it has filled does drift, though its server stays the \
same, and is not judged.

";

pub(super) fn compared_csv(rows: &[CompareRow]) -> String {
    let mut text = String::from(
        "service,service_ms,rps,in_flight,spread,slower,trials,valid,worse,better,p50_equivalent,p50_smallest\n",
    );
    for row in rows {
        let setting = row.setting;
        let _ = writeln!(
            text,
            "{},{:.3},{},{:.2},{},{},{},{},{},{},{},{:.4}",
            setting.service(),
            setting.service_ms,
            setting.rps,
            row.in_flight / row.trials.max(1) as f64,
            setting.spread,
            setting.slower(),
            row.trials,
            row.valid,
            row.worse,
            row.better,
            row.equivalent,
            row.smallest / row.valid.max(1) as f64
        );
    }
    text
}

pub(super) fn compared_markdown(rows: &[CompareRow]) -> String {
    let mut text = String::from(COMPARED);
    for row in rows {
        let share = |count: usize| 100.0 * count as f64 / row.trials.max(1) as f64;
        let worse = format!("{:.1} %", share(row.worse));
        let _ = writeln!(
            text,
            "| {}, {:.1} ms at {}/s | {:.1} | {:.1} % | {} | {} | {:.1} % | {:.0} % | {:.1} % | {:.1} % |",
            row.setting.service(),
            row.setting.service_ms,
            row.setting.rps,
            row.in_flight / row.trials.max(1) as f64,
            100.0 * row.setting.spread,
            row.setting.slower(),
            if row.holds() { worse } else { format!("**{worse}**") },
            share(row.better),
            share(row.equivalent),
            100.0 * row.smallest / row.valid.max(1) as f64,
            share(row.valid)
        );
    }
    text
}

const COMPARED: &str = "
## Comparisons

Pairs of points of ten repeats of 2 s with the same seeds, made one after the other, by the server, the requests in flight, how \
much repeats differ, and how much slower B's services are: 2 % is a quiet machine; in the run kept in `results/quick-2core`, two \
shared cores, medians differ by 3.5 % at the steadiest points and by 7 % in the middle. With \"p99 ten times\" 2 % of B's requests \
take nearly ten times A's p99. Worse: pairs that end with exit code 1. Better: any figure is better and none worse. Equivalent: \
the p50 is (within 5 %). Could find: the mean of the smallest change of the p50 that the pairs could have found. Valid: pairs of \
which both points are; the others are undecided, or worse where B is saturated. In bold: more than 5 % called worse where nothing \
changed; on a quiet machine less than 80 % where services take 10 % longer, 95 % where they take 20 %, all with the heavier tail \
(two standard deviations of the simulation allowed).

| server | in flight | spread | slower | worse | better | p50 equivalent | could find | valid |
|---|---|---|---|---|---|---|---|---|
";
