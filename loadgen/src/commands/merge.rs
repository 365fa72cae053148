//! The `merge` command: runs of one plan, made against one server by several hosts at a time, as one run.
//!
//! In: the runs' folders, one of each host's share. Out: a run whose histograms are the sums of theirs, block by block, at the plan's own
//! rates. What cannot be added is refused: another plan, other points, a share twice or missing, steps that were not sent at one time.
//! Percentiles are made from the merged histograms by the same analysis as those of any run.

use crate::error::RunError;
use crate::runner::point_name;
use crate::store::folder;
use crate::store::histograms::hdr_file;
use crate::store::resume::first_difference;
use crate::store::time::parse_rfc3339;
use hdrhistogram::Histogram;
use std::path::{Path, PathBuf};
use tierlab_analysis::latency::bands;
use tierlab_analysis::record::{
    CarriedCertificate, Histograms, HostShare, Interval, MixShare, Point, Repeat, Run, ServerDelta,
};

/// Of a step's window, the share that all hosts must have measured at the same time.
const LEAST_OVERLAP: f64 = 0.98;

/// Merges runs into a new folder, and prints the table.
///
/// # Errors
/// Fewer than two runs, one that cannot be read or is unfinished, or runs that do not belong together; says which and why.
pub fn run(folders: &[PathBuf], out: &Path) -> Result<(), RunError> {
    if folders.len() < 2 {
        return Err(RunError::Usage("merge takes at least two runs".into()));
    }
    if std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(RunError::Usage(format!(
            "{} holds something already; choose another --out",
            out.display()
        )));
    }
    let mut runs = Vec::with_capacity(folders.len());
    for folder in folders {
        runs.push(Named {
            folder,
            run: folder::load(folder)?,
        });
    }
    let mut merged = merge(runs)?;
    tierlab_analysis::conclude(&mut merged);
    folder::write(&merged, out)?;
    print!("{}", tierlab_report::table(&merged));
    eprintln!("result: {}", out.display());
    Ok(())
}

/// A run, and what errors call it.
struct Named<'a> {
    folder: &'a Path,
    run: Run,
}

fn merge(runs: Vec<Named<'_>>) -> Result<Run, RunError> {
    for run in &runs {
        finished(run)?;
    }
    let hosts = shares(&runs)?;
    for pair in runs.windows(2) {
        alike(&pair[0], &pair[1])?;
    }
    let coincided = coincidence(&runs)?;
    let mut runs = runs.into_iter();
    let Some(first) = runs.next() else {
        return Err(RunError::Usage("merge takes at least two runs".into()));
    };
    let mut all = first.run.clone();
    all.host = None;
    for check in &mut all.selfcheck {
        check.name = format!("{}: {}", first.folder.display(), check.name);
    }
    all.certificates = certificates(&first);
    // Of one host only, and so of no use beside figures of several.
    all.noise_floor = None;
    note_host(&mut all, &first);
    for other in runs {
        for (point, more) in all.points.iter_mut().zip(&other.run.points) {
            add_point(point, more).map_err(|what| refuse(&first, &other, &what))?;
        }
        note_host(&mut all, &other);
        all.certificates.extend(certificates(&other));
        all.started_at = all.started_at.min(other.run.started_at);
        all.finished_at = all.finished_at.max(other.run.finished_at);
        all.selfcheck.extend(other.run.selfcheck.into_iter().map(|mut check| {
            check.name = format!("{}: {}", other.folder.display(), check.name);
            check
        }));
    }
    for point in &mut all.points {
        point.factors.offered_rps *= f64::from(hosts);
        for repeat in &mut point.repeats {
            repeat.hdr_file = hdr_file(&point.factors, repeat.index);
        }
    }
    all.environment.shared_cores.push(format!(
        "by the hosts' own clocks at least {:.1} % of every window was measured by all of them at one time",
        // Never rounded up to a whole that was not.
        (coincided * 1_000.0).floor() / 10.0
    ));
    Ok(all)
}

/// How many hosts sent one schedule, when these are the runs of all of them.
fn shares(runs: &[Named<'_>]) -> Result<u32, RunError> {
    let mut taken: Vec<(&Named<'_>, HostShare)> = Vec::new();
    for run in runs {
        let Some(share) = run.run.host else {
            return Err(RunError::Usage(format!(
                "{}: this run is no share of one schedule; make it with --host K/N on each of N hosts",
                run.folder.display()
            )));
        };
        if let Some((other, same)) = taken
            .iter()
            .find(|(_, other)| other.number == share.number || other.of != share.of)
        {
            let what = format!("they are host {same} and host {share}, and each of N hosts has a number of its own");
            return Err(refuse(other, run, &what));
        }
        taken.push((run, share));
    }
    let of = taken.first().map_or(0, |(_, share)| share.of);
    let missing: Vec<String> = (0..of)
        .filter(|number| !taken.iter().any(|(_, share)| share.number == *number))
        .map(|number| format!("{number}/{of}"))
        .collect();
    if missing.is_empty() {
        return Ok(of);
    }
    Err(RunError::Usage(format!(
        "the run of host {} is missing: it sent its share of the same steps; name its folder too",
        missing.join(", ")
    )))
}

/// The least share of a step's window that all hosts measured at the same time.
fn coincidence(runs: &[Named<'_>]) -> Result<f64, RunError> {
    let mut least: f64 = 1.0;
    let points = runs.iter().map(|run| run.run.points.len()).min().unwrap_or(0);
    for point in 0..points {
        let of_point = |run: &Named<'_>| run.run.points[point].repeats.len();
        for repeat in 0..runs.iter().map(of_point).min().unwrap_or(0) {
            let begins = |run: &Named<'_>| parse_rfc3339(&run.run.points[point].repeats[repeat].started_at);
            let earliest = runs.iter().min_by_key(|run| begins(run));
            let latest = runs.iter().max_by_key(|run| begins(run));
            let (Some(earliest), Some(latest)) = (earliest, latest) else {
                continue;
            };
            let apart = begins(earliest)
                .zip(begins(latest))
                .and_then(|(a, b)| b.duration_since(a).ok());
            let one = &latest.run.points[point].repeats[repeat];
            let overlap = apart.map_or(0.0, |apart| {
                1.0 - apart.as_secs_f64() / one.window_s.max(f64::MIN_POSITIVE)
            });
            if overlap < LEAST_OVERLAP {
                let what = format!(
                    "repeat {} at {}/s each was measured by one at {} and by the other at {}, for {} s: less than {} % of that is \
                     common to both; give all hosts the same --start-at, and set their clocks",
                    one.index + 1,
                    latest.run.points[point].factors.offered_rps,
                    earliest.run.points[point].repeats[repeat].started_at,
                    one.started_at,
                    one.window_s,
                    100.0 * LEAST_OVERLAP
                );
                return Err(refuse(earliest, latest, &what));
            }
            least = least.min(overlap);
        }
    }
    Ok(least)
}

/// The certificates of a host's run, each with its name.
fn certificates(host: &Named<'_>) -> Vec<CarriedCertificate> {
    let name = host.folder.display();
    let of_host = |carried: &CarriedCertificate| CarriedCertificate {
        part: Some(match &carried.part {
            Some(part) => format!("{name}, {part}"),
            None => name.to_string(),
        }),
        ..carried.clone()
    };
    if host.run.certificates.is_empty() {
        let none = CarriedCertificate {
            doubts: vec!["the run was made before certificates were kept".into()],
            ..CarriedCertificate::default()
        };
        return vec![of_host(&none)];
    }
    host.run.certificates.iter().map(of_host).collect()
}

fn note_host(all: &mut Run, host: &Named<'_>) {
    let environment = &host.run.environment;
    all.environment.shared_cores.push(format!(
        "merged from {}: {}, {} cores, Linux {}",
        host.folder.display(),
        environment.cpu,
        environment.cores,
        environment.kernel
    ));
}

fn refuse(a: &Named<'_>, b: &Named<'_>, what: &str) -> RunError {
    RunError::Usage(format!(
        "{} and {} cannot be merged: {what}",
        a.folder.display(),
        b.folder.display()
    ))
}

fn finished(run: &Named<'_>) -> Result<(), RunError> {
    if run.run.interrupted {
        return Err(RunError::Usage(format!(
            "{}: this run is not finished; finish it with --resume first",
            run.folder.display()
        )));
    }
    Ok(())
}

/// Whether two runs are of one plan, with the same points and repeats.
fn alike(a: &Named<'_>, b: &Named<'_>) -> Result<(), RunError> {
    if let Some(difference) = first_difference(&a.run.plan_toml, &b.run.plan_toml) {
        return Err(refuse(a, b, &format!("their plans differ: {difference}")));
    }
    if a.run.pricing != b.run.pricing {
        return Err(refuse(a, b, "they were priced differently"));
    }
    let differs = a
        .run
        .points
        .iter()
        .zip(&b.run.points)
        .find(|(a, b)| a.factors != b.factors || a.repeats.len() != b.repeats.len());
    if let Some((a_point, b_point)) = differs {
        return Err(refuse(
            a,
            b,
            &format!(
                "where one has {} repeats of `{}`, the other has {} of `{}`",
                a_point.repeats.len(),
                point_name(&a_point.factors),
                b_point.repeats.len(),
                point_name(&b_point.factors)
            ),
        ));
    }
    if a.run.points.len() != b.run.points.len() {
        let counts = format!(
            "one has {} points, the other {}",
            a.run.points.len(),
            b.run.points.len()
        );
        return Err(refuse(a, b, &counts));
    }
    Ok(())
}

fn add_point(point: &mut Point, more: &Point) -> Result<(), String> {
    for (repeat, other) in point.repeats.iter_mut().zip(&more.repeats) {
        let step = format!("repeat {} at {}/s each", repeat.index + 1, more.factors.offered_rps);
        if repeat.seed != other.seed {
            return Err(format!("{step} is not of one schedule"));
        }
        add_repeat(repeat, other).map_err(|what| format!("{step}: {what}"))?;
    }
    Ok(())
}

fn add_repeat(into: &mut Repeat, other: &Repeat) -> Result<(), String> {
    add_histograms(&mut into.histograms, &other.histograms)?;
    let (old, new) = (into.scheduled as f64, other.scheduled as f64);
    let weighted = |a: f64, b: f64| (a * old + b * new) / (old + new).max(1.0);
    // As if both slopes were off to the same side: the hosts saw one server.
    into.backlog_slope = Interval {
        value: weighted(into.backlog_slope.value, other.backlog_slope.value),
        lo: weighted(into.backlog_slope.lo, other.backlog_slope.lo),
        hi: weighted(into.backlog_slope.hi, other.backlog_slope.hi),
    };
    // Neighbours of one host are joined by as many of the other, which depend on them as much.
    into.autocorrelation_time += other.autocorrelation_time - 1.0;
    into.tail_autocorrelation_time = into
        .tail_autocorrelation_time
        .zip(other.tail_autocorrelation_time)
        .map(|(a, b)| a + b - 1.0);
    into.bands = bands::merge([into.bands.as_slice(), other.bands.as_slice()]);
    into.server = fuller(into.server.take(), other.server.clone());
    into.mix_share = into.mix_share.zip(other.mix_share).map(|(a, b)| MixShare {
        inferences: weighted(a.inferences, b.inferences),
        hour: weighted(a.hour, b.hour),
        tier: weighted(a.tier, b.tier),
        hour_by: a.hour_by.max(b.hour_by),
    });
    // The machine of one host is the machine of its share of the requests.
    if into.disturbed.is_none() && other.disturbed.is_some() {
        (into.disturbed, into.machine) = (other.disturbed.clone(), other.machine.clone());
    }
    into.scheduled += other.scheduled;
    into.completed += other.completed;
    for (reason, count) in &other.errors {
        *into.errors.entry(reason.clone()).or_insert(0) += count;
    }
    for (reason, says) in &other.examples {
        into.examples.entry(reason.clone()).or_insert_with(|| says.clone());
    }
    into.achieved_rps += other.achieved_rps;
    into.in_flight_limit_hit |= other.in_flight_limit_hit;
    into.mean_in_flight += other.mean_in_flight;
    into.in_flight_by_stays = into
        .in_flight_by_stays
        .zip(other.in_flight_by_stays)
        .map(|(a, b)| a + b);
    Ok(())
}

/// Both asked the one server, which counts everybody's requests: the counters that saw more of the step.
fn fuller(a: Option<ServerDelta>, b: Option<ServerDelta>) -> Option<ServerDelta> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.inferences > a.inferences { b } else { a }),
        (a, b) => a.or(b),
    }
}

fn add_histograms(into: &mut Histograms, other: &Histograms) -> Result<(), String> {
    let clocks = [
        (&mut into.latency, &other.latency),
        (&mut into.service, &other.service),
        (&mut into.lag, &other.lag),
        (&mut into.failed, &other.failed),
    ];
    for (blocks, more) in clocks {
        // Only hosts with failures have ages of them.
        if more.is_empty() {
            continue;
        }
        if blocks.is_empty() {
            blocks.clone_from(more);
            continue;
        }
        if blocks.len() != more.len() {
            return Err(format!(
                "its histograms have {} and {} blocks",
                blocks.len(),
                more.len()
            ));
        }
        for (block, more) in blocks.iter_mut().zip(more) {
            *block = sum(block, more)?;
        }
    }
    Ok(())
}

/// A histogram that holds the samples of two, as large as the larger.
fn sum(a: &Histogram<u64>, b: &Histogram<u64>) -> Result<Histogram<u64>, String> {
    let mut sum = Histogram::new_from(a);
    sum.auto(true);
    sum.add(a)
        .and_then(|()| sum.add(b))
        .map_err(|error| error.to_string())?;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierlab_analysis::statistics::histogram::histogram;

    proptest! {
        #[test]
        fn a_sum_has_the_samples_of_both(a in prop::collection::vec(0_u64..10_000_000, 0..50),
                                         b in prop::collection::vec(0_u64..100, 1..50)) {
            let (small, large) = (histogram(&b), histogram(&a));
            let both = [a.clone(), b.clone()].concat();
            for sum in [sum(&small, &large).unwrap(), sum(&large, &small).unwrap()] {
                prop_assert_eq!(sum.len(), both.len() as u64);
                let once = histogram(&both);
                for quantile in [0.0, 0.5, 0.95, 0.99, 1.0] {
                    let (found, expected) = (sum.value_at_quantile(quantile), once.value_at_quantile(quantile));
                    prop_assert!(found.abs_diff(expected) <= 1 + expected / 1_000, "{}: {} {}", quantile, found, expected);
                }
            }
        }
    }
}
