//! The table of coverage. In: rows. Out: CSV, and Markdown with a summary by method. Knows nothing of how they were
//! simulated.

use super::comparing::CompareRow;
use super::drifting::DriftRow;
use super::highest_rate::SearchRow;
use super::laws::Law;
use super::rows::{Row, Setting, WANTED};
use std::fmt::Write as _;

const FIGURES: [&str; 6] = ["p50", "p90", "p95", "p99", "p99.9", "B/A p50, paired"];

pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "law,spread,drift,repeats,samples_per_repeat,what,trials,printed,printed_coverage,solid,solid_coverage,solid_width,\
         rough,rough_lower_bound_holds,median_off\n",
    );
    for row in rows {
        let Setting {
            law,
            spread,
            drift,
            repeats,
            samples,
        } = row.setting;
        let _ = writeln!(
            text,
            "{},{spread},{drift},{repeats},{samples},\"{}\",{},{},{:.4},{},{:.4},{:.4},{},{},{:.4}",
            law.name(),
            row.what,
            row.trials,
            row.printed.count,
            row.printed.coverage(),
            row.solid.count,
            row.solid.coverage(),
            row.solid.width(),
            row.rough.0,
            row.rough.1,
            row.median_off()
        );
    }
    text
}

pub(super) fn markdown(rows: &[Row], command: &str) -> String {
    let mut text = format!(
        "# What the 95 % intervals cover\n\nMade by `{command}`. Every percentile is printed that has 10 requests beyond it. Each \
         figure: the share of the trials with a solid percentile whose interval contains the true value; after it the median \
         difference between the value and the truth. `~`: rough, with the share of the trials whose lower bound holds; in \
         brackets the share of trials that are solid, where they are not all. Spread: how much repeats differ as wholes (standard \
         deviation of the logarithm); drift: growth of the latency from the first repeat to the last. Coverages outside of {:.0} to \
         {:.0} % (two standard deviations of the simulation allowed) are in bold. Queues start empty and go through a plan's \
         schedule with a warm-up of a tenth of the window: the truth is that of such windows. Their grades are decided by the mean \
         latency beside that at a quarter of the rate, simulated with the same repeats.\n",
        100.0 * WANTED.0,
        100.0 * WANTED.1
    );
    text += &summary(rows);
    for law in Law::ALL {
        let of_law: Vec<&Row> = rows.iter().filter(|row| row.setting.law == law).collect();
        if of_law.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\n## {}\n\n| repeats × samples | spread | drift | {} |\n|---|---|---|{}\n",
            law.name(),
            FIGURES.join(" | "),
            "---|".repeat(FIGURES.len())
        );
        for group in of_law.chunk_by(|a, b| a.setting == b.setting) {
            let setting = group[0].setting;
            let _ = write!(
                text,
                "| {} × {} | {:.0} % | {:.0} % |",
                setting.repeats,
                setting.samples,
                100.0 * setting.spread,
                100.0 * setting.drift
            );
            for what in FIGURES {
                let row = group.iter().find(|row| row.what == what);
                let _ = write!(text, " {} |", row.map_or_else(|| "n/a".to_owned(), |row| figure(row)));
            }
            text.push('\n');
        }
    }
    text
}

/// Rows of each percentile together: coverage of what is solid, and the share that is.
fn summary(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## In short\n\n| figure | rows with solid intervals | within 92 to 98 % | mean coverage | lowest | highest | printed | solid | \
         rough, lower bound holds |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for what in FIGURES {
        let of_figure: Vec<&Row> = rows.iter().filter(|row| row.what == what).collect();
        let judged: Vec<&&Row> = of_figure.iter().filter(|row| row.solid.count > 0).collect();
        let sum = |of: &dyn Fn(&Row) -> usize| of_figure.iter().map(|row| of(row)).sum::<usize>();
        let share = |part: usize, of: usize| match of {
            0 => "n/a".to_owned(),
            _ => format!("{:.1} %", 100.0 * part as f64 / of as f64),
        };
        let trials = sum(&|row| row.trials);
        let enough: Vec<f64> = judged
            .iter()
            .filter(|row| row.solid.count * 2 >= row.trials)
            .map(|row| 100.0 * row.solid.coverage())
            .collect();
        let end = |of: fn(f64, f64) -> f64| {
            let end = enough.iter().copied().reduce(of);
            end.map_or_else(|| "n/a".to_owned(), |share| format!("{share:.1} %"))
        };
        let _ = writeln!(
            text,
            "| {what} | {} | {} | {} | {} | {} | {} | {} | {} |",
            judged.len(),
            judged.iter().filter(|row| row.holds()).count(),
            share(sum(&|row| row.solid.covered), sum(&|row| row.solid.count)),
            end(f64::min),
            end(f64::max),
            share(sum(&|row| row.printed.count), trials),
            share(sum(&|row| row.solid.count), trials),
            share(sum(&|row| row.rough.1), sum(&|row| row.rough.0)),
        );
    }
    text + "\nLowest and highest are of rows of which at least half of the trials are solid.\n"
}

fn figure(row: &Row) -> String {
    let off = format!("{:+.0} %", 100.0 * row.median_off());
    if row.solid.count == 0 {
        let holds = 100.0 * row.rough.1 as f64 / row.rough.0.max(1) as f64;
        return format!("~{holds:.0} %, {off}");
    }
    let mut text = format!("{:.1} %", 100.0 * row.solid.coverage());
    if !row.holds() {
        text = format!("**{text}**");
    }
    if row.rough.0 > 0 {
        let _ = write!(text, " ({:.0} %)", 100.0 * row.solid.count as f64 / row.trials as f64);
    }
    format!("{text}, {off}")
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

const SEARCHES: &str = "# The highest rate under an objective

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

const DRIFTS: &str = "# Drift

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

const COMPARED: &str = "# Comparisons

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
