//! Fleets side by side: latency, highest rate and cost over the number of servers that share a tier. In: a run. Out: a table, and
//! the size from which further servers add nothing.

use crate::content::best::{Best, TAILS, best, percentile_of};
use crate::content::labels;
use crate::content::table::{Cell, Table, cells, figures, text};
use crate::units::{NONE, latency_interval, rate, thousands};
use std::collections::BTreeMap;
use tierlab_analysis::curves::Curve;
use tierlab_analysis::record::{Percentile, Point, Run};

/// Meaning of the figures.
const INTRO: &str = "highest: highest rate of all servers together, as in the curve's own table. latency: p99 of all requests at the \
                     highest rate at which every number of servers has it, or else the p95 or p50. tier requests: per second, at the \
                     highest rate. All servers run on this machine and share its cores";

/// Ratio of rates up to which they count as equal.
const EQUAL_RATIO: f64 = 1.1;

/// Fleet of one size.
struct Fleet<'a> {
    servers: u32,
    curve: &'a Curve<'a>,
    best: Option<Best<'a>>,
}

/// Fleets of a run, a row per number of servers, variant and kind of load; `None` without any.
pub(super) fn table(run: &Run) -> Option<Table> {
    if run.variants.iter().all(|variant| variant.servers == 1) {
        return None;
    }
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let groups = labels::groups(run);
    let is_only = groups.len() == 1;
    for (group, curves) in groups {
        let mut fleets: BTreeMap<String, Vec<Fleet<'_>>> = BTreeMap::new();
        for curve in &curves {
            let Some(variant) = labels::variant(run, curve.factors().label()) else {
                continue;
            };
            fleets.entry(labels::without_servers(variant)).or_default().push(Fleet {
                servers: variant.servers,
                curve,
                best: best(run, curve),
            });
        }
        // A plan of cold starts asks little of its servers: no rate is known, and there is nothing to set side by side.
        fleets.retain(|_, sizes| sizes.iter().any(|size| size.best.is_some()));
        for (name, mut sizes) in fleets {
            sizes.sort_by_key(|size| size.servers);
            let name = if is_only { name } else { format!("{name}, {group}") };
            let common = common(&sizes);
            rows.extend(sizes.iter().map(|size| row(&name, size, &sizes[0], common)));
            notes.extend(knee(&name, &sizes));
        }
    }
    let rates = ["servers", "highest", "of the smallest"].map(figures);
    let others = ["latency", "tier requests", "$/10k"].map(figures);
    let columns = std::iter::once(text("variant")).chain(rates).chain(others);
    Table::section("Fleets", INTRO, columns, rows).map(|table| Table { notes, ..table })
}

fn row(name: &str, size: &Fleet<'_>, first: &Fleet<'_>, common: Option<(Percentile, f64)>) -> Vec<Cell> {
    let best = size.best.as_ref();
    // The ratio of a lower bound is unknown.
    let is_known = |(best, smallest): &(&Best<'_>, &Best<'_>)| !best.at_least && !smallest.at_least;
    let ratio = |(best, smallest): (&Best<'_>, &Best<'_>)| format!("{:.2} times", best.rps() / smallest.rps());
    let latency = common.and_then(|(percentile, rps)| {
        let measured = latency_interval(Some(&percentile_of(size.curve.valid_at(rps)?, percentile)?));
        Some(format!("{percentile} {measured} at {} rps", rate(rps)))
    });
    let per_s = best.and_then(|best| tier_requests_per_s(best.point));
    let figures = [
        best.map(Best::text),
        best.zip(first.best.as_ref()).filter(is_known).map(ratio),
        latency,
        per_s.map(|per_s| format!("{}/s", thousands(per_s.round() as u64))),
        best.and_then(Best::cost),
    ];
    let figures = figures.map(|figure| figure.unwrap_or_else(|| NONE.to_owned()));
    cells([name.to_owned(), size.servers.to_string()].into_iter().chain(figures))
}

/// Percentile that every number of servers has at a valid point of one rate, and the highest such rate.
fn common(sizes: &[Fleet<'_>]) -> Option<(Percentile, f64)> {
    TAILS.into_iter().find_map(|percentile| {
        let measured = |size: &Fleet<'_>, rps| percentile_of(size.curve.valid_at(rps)?, percentile);
        let is_measured = |size: &Fleet<'_>, rps| measured(size, rps).is_some();
        let rates = sizes[0].curve.points.iter().map(|point| point.factors.offered_rps);
        let rps = rates.filter(|&rps| sizes.iter().all(|size| is_measured(size, rps)));
        Some((percentile, rps.max_by(f64::total_cmp)?))
    })
}

/// Requests per second to the tier, of all servers together.
fn tier_requests_per_s(point: &Point) -> Option<f64> {
    let summary = point.summary.as_ref()?;
    Some(summary.tier_requests_per_inference? * summary.inferences_per_s.value)
}

/// Smallest number of servers from which further servers add nothing; `None` for a single number.
fn knee(name: &str, sizes: &[Fleet<'_>]) -> Option<String> {
    let known = sizes.iter().filter_map(|one| Some((one.servers, one.best.as_ref()?)));
    let known: Vec<(u32, &Best<'_>)> = known.collect();
    if known.len() < sizes.len() {
        return Some(format!(
            "{name}: the highest rate is unknown for some numbers of servers, so the number beyond which more add nothing is unknown too"
        ));
    }
    let (largest, highest) = known.last().filter(|_| sizes.len() > 1)?;
    if known.iter().any(|(_, best)| best.at_least) {
        return Some(format!(
            "{name}: the plan's rates end below the servers' limit, so the number beyond which more add nothing is unknown"
        ));
    }
    let is_enough = |(_, one): &&(u32, &Best<'_>)| known.iter().all(|(_, best)| best.rps() < EQUAL_RATIO * one.rps());
    let (servers, best) = known.iter().find(is_enough)?;
    let [rps, highest] = [best, highest].map(|best| rate(best.rps()));
    Some(match servers == largest {
        true => format!("{name}: no fewer than {largest} servers reach {highest} rps"),
        false => format!(
            "{name}: more servers than {servers} add nothing: {rps} rps with {servers}, {highest} rps with {largest}; the limit is what \
             they share, the tier or this machine's cores, as the tier requests show"
        ),
    })
}
