//! Closed loops and journeys in tables of their own: neither is a curve of single requests over a rate.
//!
//! In: a summarised run. Out: tables with what to know of them in words. Knows nothing of markup.

use super::side_table::{self, Column, SideTable};
use crate::content::words;
use crate::units::{NONE, dollars_interval, latency, latency_interval, percent, rate, thousands};
use tierlab_analysis::record::{Driven, GooseFigures, Point, Repeat, Run, Summary};
use tierlab_analysis::validity::closed_loop;
use tierlab_analysis::validity::disturbance::counted;

/// What a closed loop is, and what it cannot see.
const CLOSED: &str = "A closed loop is driven by goose's own users in its own loop: each sends again when its reply has come and its think \
                      time has passed. Its latency runs from the actual send, and its throughput is a result. What it cannot see: a \
                      server that stalls stops the arrivals as well, so that the requests that would have come meanwhile, and would have \
                      waited, are missing from its percentiles (coordinated omission). The open loop below each was offered the same \
                      throughput whatever the server did, and counts that wait from the scheduled send. Choose rates and compare servers \
                      by the open loop";
/// How a journey is timed.
const JOURNEYS: &str = "Journeys begin at due times whatever the server does (open loop). A journey counts from its due time to the end of \
                        its last step; its first step from the due time too, each later one from the end of the step before, so that \
                        the steps' means sum to the whole's. Percentiles do not sum. A failed or wrong step ends its journey";
/// What a closed loop's price is of.
const CLOSED_PAID: &str = "$/10k is what 10,000 inferences cost at the throughput that these users had, and not the least that they can cost: \
                           more users leave less of the server idle";
/// What a journey's price is of.
const JOURNEYS_PAID: &str = "$/10k is what 10,000 whole journeys cost, all their requests paid; a step has no price of its own, since steps \
                             share the server's hour and what its storage is asked for";

/// By how much the throughputs of a closed loop and of the open loop beside it may differ without a word.
const APART: f64 = 0.05;

/// The closed loops of a run, where it has any.
pub(super) fn closed_loops(run: &Run) -> Option<SideTable> {
    let is_closed = |point: &&Point| point.factors.driven.as_ref().is_some_and(Driven::is_closed);
    let closed: Vec<&Point> = run.points.iter().filter(is_closed).collect();
    if closed.is_empty() {
        return None;
    }
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let columns = columns(run, "loop");
    for point in closed {
        let Some(Driven::ClosedLoop { users, think_time }) = &point.factors.driven else {
            continue;
        };
        let thinking = if think_time == "0 ms" {
            String::new()
        } else {
            format!(", think time {think_time}")
        };
        let name = format!(
            "closed, {users} {}{thinking}",
            if *users == 1 { "user" } else { "users" }
        );
        let beside = beside(run, point);
        rows.push(row(run, point, &name));
        rows.push(match beside {
            Some(open) => row(run, open, &format!("open at {}/s", rate(open.factors.offered_rps))),
            None => {
                let none = "open: not measured, for the closed loop had no throughput".to_owned();
                let mut cells = vec![String::new(), String::new(), none];
                cells.resize(columns.len(), NONE.to_owned());
                cells
            }
        });
        notes.extend(law(point, *users).map(|said| format!("{name}: {said}")));
        notes.extend(goose(&point.repeats).map(|said| format!("{name}: {said}")));
        notes.extend(
            beside
                .and_then(|open| side_by_side(point, open))
                .map(|said| format!("{name}: {said}")),
        );
    }
    notes.extend(paid(run, CLOSED_PAID));
    Some(SideTable {
        title: "Closed loops, each beside an open loop at the same throughput",
        intro: CLOSED.into(),
        columns,
        rows,
        notes,
    })
}

/// The open loop beside a closed one.
fn beside<'a>(run: &'a Run, closed: &Point) -> Option<&'a Point> {
    let Some(Driven::ClosedLoop { users, think_time }) = &closed.factors.driven else {
        return None;
    };
    let wanted = Driven::BesideClosedLoop {
        users: *users,
        think_time: think_time.clone(),
    };
    let of = |point: &Point| {
        let factors = &point.factors;
        (
            factors.label().to_owned(),
            factors.cache.clone(),
            factors.model.clone(),
            factors.batch_size,
        )
    };
    run.points
        .iter()
        .find(|point| point.factors.driven.as_ref() == Some(&wanted) && of(point) == of(closed))
}

/// A percentile by its name.
type Named = (&'static str, fn(&Summary) -> Option<f64>);

/// p99 (or the highest percentile that both have) side by side.
fn side_by_side(closed: &Point, open: &Point) -> Option<String> {
    let (closed, open) = (closed.summary.as_ref()?, open.summary.as_ref()?);
    let both: [Named; 3] = [
        ("p99", |summary| summary.p99_us.map(|us| us.value)),
        ("p95", |summary| summary.p95_us.map(|us| us.value)),
        ("p50", |summary| summary.p50_us.map(|us| us.value)),
    ];
    let (name, a, b) = both
        .into_iter()
        .find_map(|(name, of)| Some((name, of(closed)?, of(open)?)))?;
    let apart = open.achieved_rps.value / closed.achieved_rps.value.max(1e-9);
    let told = if (apart - 1.0).abs() > APART {
        format!(
            "; the open loop had {} of the closed loop's mean throughput, since that of its first repeat was another: repeats differ",
            percent(apart)
        )
    } else {
        String::new()
    };
    Some(format!(
        "{name} {} in the closed loop, {} in the open loop at its throughput ({:.2} times){told}",
        latency(a),
        latency(b),
        b / a.max(1e-9)
    ))
}

/// The interactive response time law, with its terms.
fn law(point: &Point, users: u32) -> Option<String> {
    let repeats = counted(&point.repeats);
    let figures = closed_loop::figures(&repeats)?;
    let fits = match closed_loop::broken(users, &repeats) {
        None => String::new(),
        Some(_) => format!(
            ", where there were {users}: requests were lost or users idle, so that the throughput is no closed loop's"
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

/// What goose's own clock said, beside ours.
fn goose(repeats: &[Repeat]) -> Option<String> {
    let mean = mean_goose(repeats)?;
    Some(format!(
        "goose's own clock, which stops at the reply's headers, says p50 {}, p95 {}, p99 {} of the same requests (means over the \
         repeats)",
        latency(mean.p50_us),
        latency(mean.p95_us),
        latency(mean.p99_us)
    ))
}

fn mean_goose(repeats: &[Repeat]) -> Option<GooseFigures> {
    let told: Vec<GooseFigures> = repeats.iter().filter_map(|repeat| repeat.goose).collect();
    let mean = |of: fn(&GooseFigures) -> f64| told.iter().map(of).sum::<f64>() / told.len() as f64;
    (!told.is_empty()).then(|| GooseFigures {
        counted: None,
        p50_us: mean(|figures| figures.p50_us),
        p95_us: mean(|figures| figures.p95_us),
        p99_us: mean(|figures| figures.p99_us),
    })
}

/// The journeys of a run, where it has any.
pub(super) fn journeys(run: &Run) -> Option<SideTable> {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for point in &run.points {
        let Some(Driven::Journey { name, step }) = &point.factors.driven else {
            continue;
        };
        let at = format!("{}/s", rate(point.factors.offered_rps));
        let who = match step {
            None => format!("{name} at {at}, whole"),
            Some(step) => format!("{name} at {at}, {step}"),
        };
        rows.push(row(run, point, &who));
        if step.is_none() {
            notes.extend(goose_of_journey(point).map(|said| format!("{name} at {at}: {said}")));
        }
    }
    notes.extend(paid(run, JOURNEYS_PAID));
    (!rows.is_empty()).then(|| SideTable {
        title: "Journeys",
        intro: JOURNEYS.into(),
        columns: columns(run, "journey"),
        rows,
        notes,
    })
}

/// How far off goose's own times are: they leave out the wait for a user, what lies between requests, and bodies.
fn goose_of_journey(point: &Point) -> Option<String> {
    let goose = mean_goose(&point.repeats)?;
    let summary = point.summary.as_ref()?;
    let short = |ours: Option<f64>, theirs: f64| {
        ours.filter(|us| *us > 0.0)
            .map(|ours| format!(" ({} less)", percent((1.0 - theirs / ours).max(0.0))))
            .unwrap_or_default()
    };
    Some(format!(
        "goose carries it, and its own times of the requests sum to p50 {}{}, p99 {}{}: they leave out the wait before a user was free, \
         what lies between two requests, and the replies' bodies",
        latency(goose.p50_us),
        short(summary.p50_us.map(|us| us.value), goose.p50_us),
        latency(goose.p99_us),
        short(summary.p99_us.map(|us| us.value), goose.p99_us),
    ))
}

/// The columns behind tier, cache and what it is.
const COLUMNS: [(&str, bool); 6] = [
    ("p50", true),
    ("p95", true),
    ("p99", true),
    ("good/s", true),
    ("errors", true),
    ("verdict", false),
];

/// What the prices are of, where the run has any.
fn paid(run: &Run, what: &str) -> Option<String> {
    run.pricing.is_some().then(|| what.to_owned())
}

fn columns(run: &Run, what: &'static str) -> Vec<Column> {
    let names = ["tier", "cache", what].map(side_table::words);
    let price = run.pricing.is_some().then(|| side_table::figures("$/10k"));
    names
        .into_iter()
        .chain(COLUMNS.map(|(name, is_figure)| (name.into(), is_figure)))
        .chain(price)
        .collect()
}

fn row(run: &Run, point: &Point, what: &str) -> Vec<String> {
    let factors = &point.factors;
    let batch = if factors.batch_size == 1 {
        String::new()
    } else {
        format!(", ×{}", factors.batch_size)
    };
    let who = vec![
        words::tier(run, factors.label()),
        words::cache(factors),
        format!("{what}{batch}"),
    ];
    let figures = match &point.summary {
        Some(summary) => summary_figures(summary),
        None => vec![NONE.to_owned(); COLUMNS.len()],
    };
    let usd = point.summary.as_ref().and_then(|summary| summary.usd_per_10k);
    let price = run.pricing.is_some().then(|| dollars_interval(usd.as_ref()));
    who.into_iter().chain(figures).chain(price).collect()
}

fn summary_figures(summary: &Summary) -> Vec<String> {
    vec![
        latency_interval(summary.p50_us.as_ref()),
        latency_interval(summary.p95_us.as_ref()),
        latency_interval(summary.p99_us.as_ref()),
        rate(summary.achieved_rps.value),
        thousands(summary.errors),
        words::verdict(&summary.verdict).to_owned(),
    ]
}
