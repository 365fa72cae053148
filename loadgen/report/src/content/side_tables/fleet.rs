//! Fleets side by side: how latency, the highest rate and what an inference costs go with the number of servers that share a tier. In: a run.
//! Out: a table, and in sentences where more servers bring nothing any more.

use super::side_table::{self, SideTable};
use crate::content::best::{Best, best};
use crate::content::words;
use crate::units::{dollars_interval, latency_interval, rate, thousands};
use std::collections::BTreeMap;
use tierlab_analysis::curves::Curve;
use tierlab_analysis::record::{Interval, Point, Run, Summary, Verdict};

/// What the figures are.
const INTRO: &str = "highest: the highest rate of all servers together, as the curve's own table has it. latency: of all requests, \
                     at the same rate for every number of servers, the highest at which it is known for all of them; its p99, or where that is known \
                     at no rate its p95 or p50. asked of the tier: its requests per second at the highest rate. All servers run on this machine and share its cores";

/// Rates that differ by less are taken to be the same.
const NO_MORE: f64 = 1.1;

/// A percentile by its name.
type Percentile = (&'static str, fn(&Summary) -> Option<&Interval>);

/// What a fleet's latency is told by: the first that is known for every number of servers.
const PERCENTILES: [Percentile; 3] = [
    ("p99", |summary| summary.p99_us.as_ref()),
    ("p95", |summary| summary.p95_us.as_ref()),
    ("p50", |summary| summary.p50_us.as_ref()),
];

/// One number of servers.
struct Size<'a> {
    servers: u32,
    curve: &'a Curve<'a>,
    best: Option<Best<'a>>,
}

/// The fleets of a run, where it has any: a row for each number of servers of each variant, under each kind of load.
pub(super) fn table(run: &Run) -> Option<SideTable> {
    if run.variants.iter().all(|variant| variant.servers == 1) {
        return None;
    }
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let groups = words::groups(run);
    let is_only = groups.len() == 1;
    for (group, curves) in groups {
        let mut fleets: BTreeMap<String, Vec<Size<'_>>> = BTreeMap::new();
        for curve in &curves {
            let Some(variant) = words::variant(run, curve.factors().label()) else {
                continue;
            };
            fleets.entry(words::without_servers(variant)).or_default().push(Size {
                servers: variant.servers,
                curve,
                best: best(run, curve),
            });
        }
        for (name, mut sizes) in fleets {
            // A plan of cold starts asks little of its servers: no rate is known, and there is nothing to set side by side.
            if sizes.iter().all(|size| size.best.is_none()) {
                continue;
            }
            sizes.sort_by_key(|size| size.servers);
            let name = match is_only {
                true => name,
                false => format!("{name}, {group}"),
            };
            let common = common(&sizes);
            rows.extend(sizes.iter().map(|size| row(&name, size, &sizes[0], common)));
            notes.extend(knee(&name, &sizes));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let of = [
        "servers",
        "highest",
        "of one server",
        "latency",
        "asked of the tier",
        "$/10k",
    ];
    Some(SideTable {
        title: "Fleets",
        intro: INTRO.into(),
        columns: std::iter::once(side_table::words("variant"))
            .chain(of.map(side_table::figures))
            .collect(),
        rows,
        notes,
    })
}

fn row(name: &str, size: &Size<'_>, first: &Size<'_>, common: Option<(Percentile, f64)>) -> Vec<String> {
    let none = || "n/a".to_owned();
    let of_one = |(best, one): (&Best<'_>, &Best<'_>)| format!("{:.2} times", best.rps() / one.rps());
    let latency = common.and_then(|((percentile, of), rps)| {
        let known = of(summary(at(size.curve, rps)?)?)?;
        Some(format!(
            "{percentile} {} at {} rps",
            latency_interval(Some(known)),
            rate(rps)
        ))
    });
    vec![
        name.to_owned(),
        size.servers.to_string(),
        size.best.as_ref().map_or_else(none, Best::text),
        size.best.as_ref().zip(first.best.as_ref()).map_or_else(none, of_one),
        latency.unwrap_or_else(none),
        size.best
            .as_ref()
            .and_then(|best| asked_per_s(best.point))
            .map_or_else(none, |per_s| format!("{}/s", thousands(per_s.round() as u64))),
        size.best
            .as_ref()
            .and_then(|best| Some(dollars_interval(Some(&summary(best.point)?.usd_per_10k?))))
            .unwrap_or_else(none),
    ]
}

fn summary(point: &Point) -> Option<&Summary> {
    point.summary.as_ref()
}

fn at<'a>(curve: &Curve<'a>, rps: f64) -> Option<&'a Point> {
    let is_valid = |point: &&Point| summary(point).is_some_and(|summary| summary.verdict == Verdict::Valid);
    curve
        .points
        .iter()
        .copied()
        .filter(is_valid)
        .find(|point| point.factors.offered_rps == rps)
}

/// A percentile that is known for every number of servers at a valid point of one rate, and the highest such rate.
fn common(sizes: &[Size<'_>]) -> Option<(Percentile, f64)> {
    PERCENTILES.into_iter().find_map(|percentile| {
        let is_known = |size: &Size<'_>, rps| {
            let summary = at(size.curve, rps).and_then(summary);
            summary.and_then(percentile.1).is_some()
        };
        let rates = sizes[0].curve.points.iter().map(|point| point.factors.offered_rps);
        let rps = rates.filter(|&rps| sizes.iter().all(|size| is_known(size, rps)));
        Some((percentile, rps.max_by(f64::total_cmp)?))
    })
}

/// What reached the tier, of all servers together.
fn asked_per_s(point: &Point) -> Option<f64> {
    let per_inference = summary(point)?.tier_requests_per_inference?;
    Some(per_inference * summary(point)?.inferences_per_s.value)
}

/// The smallest number of servers from which more of them carry no more.
fn knee(name: &str, sizes: &[Size<'_>]) -> Option<String> {
    let known: Vec<(u32, f64, bool)> = sizes
        .iter()
        .filter_map(|size| {
            let best = size.best.as_ref()?;
            Some((size.servers, best.rps(), best.at_least))
        })
        .collect();
    if known.len() < sizes.len() || known.len() < 2 {
        return Some(format!(
            "{name}: the highest rate is not known for every number of servers, and so where more of them bring nothing is not either"
        ));
    }
    let (largest, highest, is_open) = *known.last()?;
    if known.iter().any(|(.., at_least)| *at_least) || is_open {
        return Some(format!(
            "{name}: the plan's rates end before the servers do, and so where more of them bring nothing is not known"
        ));
    }
    let enough = known
        .iter()
        .position(|(_, rps, _)| known.iter().all(|(_, other, _)| *other < NO_MORE * rps))?;
    let (servers, rps, _) = known[enough];
    Some(if servers == largest {
        format!(
            "{name}: up to {largest} servers each more carries more, {} rps in the end",
            rate(highest)
        )
    } else {
        format!(
            "{name}: more than {servers} bring nothing: {} rps with {servers}, {} rps with {largest}; what they share is the limit, the tier or this \
             machine's cores, and what is asked of the tier says which",
            rate(rps),
            rate(highest)
        )
    })
}
