//! Closed loops and journeys in tables of their own: neither is a curve of single requests over a rate.
//!
//! In: a summarised run. Out: tables with their explanations. Knows nothing of markup.

use crate::content::best::{TAILS, percentile_of};
use crate::content::labels;
use crate::content::table::{Cell, Column, Table, cells, figures, text};
use crate::units::{latency, percent, rate, thousands};
use tierlab_analysis::record::{Driven, Factors, GooseFigures, Percentile, Point, Run, counted};
use tierlab_analysis::validity::laws;

/// Explanation of a closed loop, and its blind spot.
const CLOSED: &str = "goose drives a closed loop with its own users: each sends again after its reply and its think time. Latency runs from \
                      the actual send, and throughput is a result. A stalled server also stops the arrivals, so the requests that would \
                      have waited are missing from the percentiles (coordinated omission). The open loop below each closed loop was offered \
                      the same throughput, and counts that wait from the scheduled send. Choose rates and compare servers by the open loop";
/// Timing of a journey.
const JOURNEYS: &str = "Journeys start at due times (open loop). A journey counts from its due time to the end of its last step; its first \
                        step also counts from the due time, each later one from the end of the step before. So the steps' means sum to the \
                        mean of the whole; percentiles do not. A failed or wrong step ends its journey";
/// Parts of a journey that goose's own clock leaves out.
const JOURNEY_LEFT_OUT: &str =
    "the wait before a user was free, the time between two requests, and the replies' bodies";
/// Meaning of a closed loop's price.
const CLOSED_PRICE_NOTE: &str = "$/10k is the cost of 10,000 inferences at the throughput of these users, not the lowest possible: more users \
                           leave less of the server idle";
/// Meaning of a journey's price.
const JOURNEY_PRICE_NOTE: &str = "$/10k is the cost of 10,000 whole journeys with all their requests; a step has no price of its own, because \
                             steps share the server's hour and the storage requests";

/// Difference between the throughputs of a closed loop and of the open loop beside it from which it is mentioned.
const MIN_DIFFERENCE: f64 = 0.05;

/// Closed loops of a run, each with the open loop beside it; `None` without any.
pub(super) fn closed_loops(run: &Run) -> Option<Table> {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let columns = columns(run, "loop");
    for point in &run.points {
        let Some(Driven::ClosedLoop { users, think_time }) = &point.factors.driven else {
            continue;
        };
        let thinking = match think_time.as_str() {
            "0 ms" => String::new(),
            time => format!(", think time {time}"),
        };
        let noun = if *users == 1 { "user" } else { "users" };
        let name = format!("closed, {users} {noun}{thinking}");
        let (users, think_time) = (*users, think_time.clone());
        let beside = beside(run, point, Driven::BesideClosedLoop { users, think_time });
        rows.push(row(run, point, &name));
        rows.push(match beside {
            Some(open) => row(run, open, &format!("open at {}/s", rate(open.factors.offered_rps))),
            None => {
                let none = "open: not measured, as the run stopped or the closed loop had too few replies".to_owned();
                let mut row = cells([String::new(), String::new(), none]);
                row.resize(columns.len(), Cell::of(None));
                row
            }
        });
        let both = beside.and_then(|open| side_by_side(point, open));
        let new_notes = [law(point, users), goose(point, "the replies' bodies"), both].into_iter();
        notes.extend(new_notes.flatten().map(|note| format!("{name}: {note}")));
    }
    notes.extend(price_note(run, CLOSED_PRICE_NOTE));
    let title = "Closed loops, each beside an open loop at the same throughput";
    Table::section(title, CLOSED, columns, rows).map(|table| Table { notes, ..table })
}

/// The open loop beside a closed one.
fn beside<'a>(run: &'a Run, closed: &Point, driver: Driven) -> Option<&'a Point> {
    let driver = Some(driver);
    let mut driven = run.points.iter().filter(|point| point.factors.driven == driver);
    driven.find(|point| kind(&point.factors) == kind(&closed.factors))
}

/// Factors that a closed loop and the open loop beside it share.
fn kind(factors: &Factors) -> (&str, &str, &str, u32) {
    (factors.label(), &factors.cache, &factors.model, factors.batch_size)
}

/// p99 (or the highest percentile that both have) side by side.
fn side_by_side(closed: &Point, open: &Point) -> Option<String> {
    let both = |percentile| {
        Some((
            percentile,
            percentile_of(closed, percentile)?.value,
            percentile_of(open, percentile)?.value,
        ))
    };
    let (name, a, b) = TAILS.into_iter().find_map(both)?;
    let (closed, open) = (closed.summary.as_ref()?, open.summary.as_ref()?);
    let ratio = open.achieved_rps.value / closed.achieved_rps.value.max(1e-9);
    let difference = match (ratio - 1.0).abs() > MIN_DIFFERENCE {
        true => format!(
            "; the open loop had {} of the closed loop's mean throughput, because its first repeat differed from the mean",
            percent(ratio)
        ),
        false => String::new(),
    };
    let (times, [a, b]) = (b / a.max(1e-9), [a, b].map(latency));
    Some(format!(
        "{name} {a} in the closed loop, {b} in the open loop at its throughput ({times:.2} times){difference}"
    ))
}

/// The interactive response time law, with its terms.
fn law(point: &Point, users: u32) -> Option<String> {
    let repeats = counted(&point.repeats);
    let figures = laws::closed_loop_figures(&repeats)?;
    let fits = match laws::differing_users(users, &repeats) {
        None => String::new(),
        Some(_) => format!(
            " instead of {users}: requests were lost or users idle, so the throughput is not that of a closed loop"
        ),
    };
    Some(format!(
        "by the law users = rate × (response + pause), {}/s × ({} + {}) = {:.2}{fits}; of each pause {} was the load generator's own \
         work",
        rate(figures.ended_rps),
        latency(figures.mean_response_us),
        latency(figures.mean_pause_us),
        figures.users_by_law(),
        latency(figures.own_us())
    ))
}

/// Means over the repeats of goose's own times, which leave out a part of each request.
fn goose(point: &Point, left_out: &str) -> Option<String> {
    let times = point.repeats.iter().filter_map(|repeat| repeat.driver.goose());
    let times: Vec<GooseFigures> = times.collect();
    let mean = |of: fn(&GooseFigures) -> f64| latency(times.iter().map(of).sum::<f64>() / times.len() as f64);
    (!times.is_empty()).then(|| {
        let (p50, p95) = (mean(|times| times.p50_us), mean(|times| times.p95_us));
        let p99 = mean(|times| times.p99_us);
        format!("by goose's own clock, the same requests have p50 {p50}, p95 {p95}, p99 {p99}, without {left_out}")
    })
}

/// Journeys of a run; `None` without any.
pub(super) fn journeys(run: &Run) -> Option<Table> {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for point in &run.points {
        let Some(Driven::Journey { name, step }) = &point.factors.driven else {
            continue;
        };
        let at = format!("{}/s", rate(point.factors.offered_rps));
        let label = format!("{name} at {at}, {}", step.as_deref().unwrap_or("whole"));
        rows.push(row(run, point, &label));
        if step.is_none() {
            notes.extend(goose(point, JOURNEY_LEFT_OUT).map(|note| format!("{name} at {at}: {note}")));
        }
    }
    notes.extend(price_note(run, JOURNEY_PRICE_NOTE));
    let table = Table::section("Journeys", JOURNEYS, columns(run, "journey"), rows);
    table.map(|table| Table { notes, ..table })
}

/// Meaning of the prices, in a run with prices.
fn price_note(run: &Run, meaning: &str) -> Option<String> {
    run.pricing.is_some().then(|| meaning.to_owned())
}

fn columns(run: &Run, what: &'static str) -> Vec<Column> {
    let price = run.pricing.is_some().then(|| figures("$/10k"));
    let columns = ["tier", "cache", what].map(text).into_iter();
    let columns = columns.chain(["p50", "p95", "p99", "good/s", "errors"].map(figures));
    columns.chain([text("verdict")]).chain(price).collect()
}

fn row(run: &Run, point: &Point, what: &str) -> Vec<Cell> {
    let factors = &point.factors;
    let batch = match factors.batch_size {
        1 => String::new(),
        rows => format!(", ×{rows}"),
    };
    let what = format!("{what}{batch}");
    let head = [labels::tier(run, factors.label()), labels::cache(factors), what].map(Cell::from);
    let summary = point.summary.as_ref();
    let latencies =
        [Percentile::P50, Percentile::P95, Percentile::P99].map(|one| Cell::latency(percentile_of(point, one)));
    let counts = [
        summary.map(|summary| rate(summary.achieved_rps.value)),
        summary.map(|summary| thousands(summary.errors)),
        summary.map(|summary| labels::verdict(&summary.verdict).to_owned()),
    ];
    let usd = || Cell::dollars(summary.and_then(|summary| summary.usd_per_10k));
    let price = run.pricing.is_some().then(usd);
    let figures = latencies.into_iter().chain(counts.map(Cell::of));
    head.into_iter().chain(figures).chain(price).collect()
}
