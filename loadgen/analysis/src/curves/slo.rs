//! Points under a service-level objective, and the highest rate of a curve under it.
//!
//! In: an objective, and summarised points of a curve. Out: the answer of each point, and the boundary from all points
//! together. Knows nothing of the choice of rates; [`crate::curves::search`] does.

use crate::curve::Curve;
use crate::decision::curve::Grid;
use crate::decision::rate_points::{gather, usable};
use crate::decision::{from_run, lab};
use crate::latency::objective;
use crate::record::{
    Fault, Interval, Limits, MeetsObjective, Minimise, NotMet, Objective, Point, Question, Repeat, Slo, SloFinding,
    SloOutcome, StreamFigure, Summary, Verdict, counted,
};
use crate::statistics::percentile::BlockTable;
use crate::statistics::sections::mean_interval;
use hdrhistogram::Histogram;

/// Evidence of one measured rate about an objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateEvidence {
    /// Requests per second.
    pub rps: f64,
    /// Number of repeats; at least one.
    pub repeats: u32,
    /// Number of measurements, the last included; at least one.
    pub tries: u32,
    /// State of the objective. A late send and a disturbance only make the latency worse, so that an objective met despite them is
    /// met; it is unknown if the instrument or the machine failed.
    pub answer: MeetsObjective,
    /// True if the answer is certain: the whole 95 % interval lies on one side of the limit, or the server failed in
    /// another way than by its latency.
    pub certain: bool,
}

impl RateEvidence {
    /// True if the objective is met.
    pub fn is_met(&self) -> bool {
        self.answer == MeetsObjective::Met
    }
}

/// Returns the evidence of a point about an objective; `None` if it was not summarised.
pub fn evidence(point: &Point, slo: &Slo) -> Option<RateEvidence> {
    let summary = point.summary.as_ref()?;
    let estimate_us = limited_us(point, slo);
    let answer = answer(point, summary, estimate_us, slo);
    let limit_us = slo.objective.limit_us();
    let misses = misses(point, slo);
    let allowed = slo.objective.slow_share();
    let by_misses = summary.errors > 0 || matches!(slo.objective, Objective::Goodput { .. });
    let certain = match (answer, interval(summary, slo.objective)) {
        (MeetsObjective::Unknown, _) => false,
        (MeetsObjective::NotMet, _) if is_refused(summary, slo) => true,
        (MeetsObjective::Met, _) if by_misses => misses.is_some_and(|share| share.hi < allowed),
        (MeetsObjective::NotMet, _) if by_misses => misses.is_some_and(|share| share.lo > allowed),
        (MeetsObjective::Met, Some(interval)) => interval.hi < limit_us,
        (MeetsObjective::NotMet, Some(interval)) => interval.lo >= limit_us,
        (_, None) => false,
    };
    Some(RateEvidence {
        rps: point.factors.offered_rps,
        repeats: counted(&point.repeats).len() as u32,
        tries: 1 + point.repeats.iter().map(|repeat| repeat.attempt).max().unwrap_or(0),
        answer,
        certain,
    })
}

/// True if the server failed in another way than by its latency. A failure on a disturbed machine may not be the
/// server's.
fn is_refused(summary: &Summary, slo: &Slo) -> bool {
    let has = |fault: Fault| summary.faults.contains(&fault);
    let queue_grows = !has(Fault::Errors) || has(Fault::Backlog) || has(Fault::Replies);
    (summary.error_share > slo.error_share && !has(Fault::Disturbed))
        || (matches!(summary.verdict, Verdict::Saturated(_)) && queue_grows)
}

fn answer(point: &Point, summary: &Summary, estimate_us: Option<f64>, slo: &Slo) -> MeetsObjective {
    if is_refused(summary, slo) {
        return MeetsObjective::NotMet;
    }
    let Some(estimate_us) = estimate_us else {
        return MeetsObjective::Unknown;
    };
    let has = |fault: Fault| summary.faults.contains(&fault);
    let off_schedule = {
        use Fault::{Backlog, Device, Drift, Schedule, Skew};
        [Device, Skew, Schedule, Backlog, Drift]
    };
    let limit_us = slo.objective.limit_us();
    // Every user was busy: the server is too slow only if its own time shows that.
    let waited = || {
        let service_us = match slo.objective.stream() {
            None => self::estimate_us(point, slo, |repeat| &repeat.histograms.service),
            // A gap contains no wait for a user.
            Some(StreamFigure::Gap) => Some(estimate_us),
            Some(_) => None,
        };
        service_us.is_none_or(|us| us < limit_us)
    };
    let is_known = match estimate_us < limit_us {
        _ if summary.verdict == Verdict::Valid => true,
        // The measurement did not follow its schedule, so any result is unknown.
        _ if summary.faults.is_empty() || off_schedule.into_iter().any(has) => false,
        // Latency includes the wait for a user and a late send.
        true => !(has(Fault::Replies) || has(Fault::Disturbed) && has(Fault::Errors)),
        false if has(Fault::InFlight) => !has(Fault::Disturbed) && !waited(),
        false => !has(Fault::Disturbed) && !has(Fault::Late),
    };
    match (is_known, estimate_us < limit_us) {
        (false, _) => MeetsObjective::Unknown,
        (true, true) => MeetsObjective::Met,
        (true, false) => MeetsObjective::NotMet,
    }
}

/// Returns the limited figure of a point, in microseconds; `None` with too few samples.
fn limited_us(point: &Point, slo: &Slo) -> Option<f64> {
    estimate_us(point, slo, |repeat| objective::limited(slo.objective, repeat))
}

/// Returns the objective's figure of the given times of a point, in microseconds; `None` with too few samples. A
/// percentile counts all requests, with a failed request slower than any reply: infinite if failures alone miss the
/// objective.
fn estimate_us(point: &Point, slo: &Slo, of: impl Fn(&Repeat) -> &[Histogram<u64>]) -> Option<f64> {
    let repeats = counted(&point.repeats);
    let table = BlockTable::new(repeats.iter().map(of));
    let scheduled: u64 = repeats.iter().map(|repeat| repeat.scheduled).sum();
    if scheduled.max(table.samples()) < slo.objective.samples_needed() {
        return None;
    }
    let Some(quantile) = slo.objective.quantile() else {
        return objective::measured_us(slo.objective, &table);
    };
    match objective::among_good(&repeats, quantile) {
        Some(among) => table.pooled_quantile(among).map(|us| us as f64),
        None => Some(f64::INFINITY),
    }
}

/// Returns the interval of the share of requests that miss the objective, failed requests included, over the repeats.
fn misses(point: &Point, slo: &Slo) -> Option<Interval> {
    let share = |repeat: &Repeat| Some(objective::misses(repeat, slo.objective)? / repeat.scheduled.max(1) as f64);
    let shares: Option<Vec<f64>> = counted(&point.repeats).iter().map(share).collect();
    mean_interval(&shares?)
}

fn interval(summary: &Summary, objective: Objective) -> Option<Interval> {
    match objective {
        Objective::Stream { figure, percentile, .. } => {
            summary.streams.get(&figure)?.percentiles.get(&percentile).copied()
        }
        Objective::Percentile { percentile, .. } => summary.percentile(percentile),
        Objective::Mean { .. } => summary.mean_us,
        Objective::Goodput { .. } => None,
    }
}

/// Returns the number of lowest rates, all of which have an answer, on the side that meets the objective. The cut
/// contradicts the fewest repeats; of several cuts it is the lowest. One slow minute at a low rate does not undo many
/// repeats at higher rates, and one lucky repeat at a high rate shows nothing against many.
///
/// The rate below the cut always meets the objective, and the rate above misses it.
pub fn cut(evidence: &[RateEvidence]) -> usize {
    let met = evidence.iter().filter(|one| one.is_met());
    let above: u64 = met.map(|one| u64::from(one.repeats)).sum();
    let (mut best, mut fewest, mut contradicted) = (0, above, above);
    for (index, one) in evidence.iter().enumerate() {
        match one.is_met() {
            true => contradicted -= u64::from(one.repeats),
            false => contradicted += u64::from(one.repeats),
        }
        if contradicted < fewest {
            (best, fewest) = (index + 1, contradicted);
        }
    }
    best
}

/// Probability of the curve outside a search's interval, at either end. It is half of a 95 % interval's: a search goes
/// where its results point, and behind a queue 2.5 % covered 90 % of 1,000 true rates. Current coverage:
/// `results/coverage/highest_rate.md`.
const SIDE: f64 = 0.0125;
/// Confidence of the interval.
const CONFIDENCE: f64 = 0.95;

/// Returns the interval of a highest rate from the steps at all rates; 0 and the highest rate of the search are open
/// ends. A higher rate that certainly misses the objective bounds it.
fn highest(points: &[(&Point, RateEvidence)], best: RateEvidence, slo: &Slo, limits: &Limits) -> Interval {
    let first = points.first().map_or(best.rps, |(point, _)| point.factors.offered_rps);
    let question = question(slo, points.last().map_or(&best, |(_, last)| last).rps, points[0].0);
    let measured = points.iter().map(|(point, _)| *point);
    let repeats = measured.flat_map(|point| point.repeats.iter().map(move |repeat| (point, repeat)));
    let steps = repeats.map(|(point, repeat)| from_run::step(&question, limits, point, repeat));
    let steps: Vec<_> = steps.collect();
    let grid = Grid::covering(&[first, question.highest_rps]);
    let rate_points = gather(&question, &steps, &[], |_| true);
    let is_missed = usable(&rate_points).any(|point| !point.likely_met());
    let curves = lab::all_curves(&question, &grid, &[rate_points]);
    let ends = curves.first().map(|curve| curve.interval(&grid, SIDE));
    let (lo, hi) = ends.unwrap_or((0.0, f64::INFINITY));
    // A queue that grows in every repeat misses the objective in the long run, however few requests are slow within a
    // repeat.
    let missed = points.iter().map(|(_, evidence)| evidence);
    let missed = missed.filter(|one| one.answer == MeetsObjective::NotMet && one.certain && one.rps > best.rps);
    let ceiling = missed.map(|one| one.rps).fold(f64::INFINITY, f64::min);
    let open = slo.highest_rps.max(best.rps).min(ceiling);
    let hi = if is_missed { hi.clamp(best.rps, open) } else { open };
    Interval::new(best.rps, lo.min(best.rps), hi)
}

/// Converts the search's objective to a question about one instance.
fn question(slo: &Slo, highest_rps: f64, point: &Point) -> Question {
    Question {
        objectives: vec![slo.objective],
        error_share: slo.error_share,
        demand: None,
        minimise: Minimise::Instances,
        mode: point.factors.mode,
        batch_size: point.factors.batch_size,
        budget_s: 0.0,
        confidence: CONFIDENCE,
        tie: slo.resolution,
        utilisation: 1.0,
        least_instances: 1,
        highest_rps,
    }
}

/// Returns the highest rate of a curve under an objective; `None` if nothing was measured.
pub fn finding(curve: &Curve<'_>, slo: &Slo, limits: &Limits) -> Option<SloFinding> {
    let points = curve.points.iter();
    let measured = points.filter_map(|point| Some((*point, evidence(point, slo)?)));
    let (judged, unknown): (Vec<_>, Vec<_>) =
        measured.partition(|(_, evidence)| evidence.answer != MeetsObjective::Unknown);
    let all: Vec<RateEvidence> = judged.iter().map(|(_, evidence)| *evidence).collect();
    if all.is_empty() && unknown.is_empty() {
        return None;
    }
    let cut = cut(&all);
    let (below, above) = all.split_at(cut);
    let highest_rps = below.last().map(|best| highest(&judged, *best, slo, limits));
    let not_met = |(point, _): &(&Point, RateEvidence)| NotMet {
        rps: point.factors.offered_rps,
        why: why_not(point, slo),
    };
    let unknown: Vec<NotMet> = unknown.iter().map(not_met).collect();
    let missed_below = below.iter().filter(|one| !one.is_met());
    let contradicting = missed_below.chain(above.iter().filter(|one| one.is_met()));
    Some(SloFinding {
        outcome: outcome(below, above, &unknown, slo),
        highest_rps,
        not_met: judged.get(cut).map(not_met),
        contradicting_rps: contradicting.map(|one| one.rps).collect(),
        unknown,
    })
}

fn outcome(below: &[RateEvidence], above: &[RateEvidence], unknown: &[NotMet], slo: &Slo) -> SloOutcome {
    match (below.last(), above.first()) {
        (None, next) if unknown.iter().any(|one| next.is_none_or(|next| one.rps < next.rps)) => SloOutcome::Unknown,
        (None, _) => SloOutcome::NeverMet,
        (Some(best), None) if best.rps >= slo.highest_rps => SloOutcome::MetAtHighest,
        (Some(_), None) => SloOutcome::MetAsFarAsMeasured,
        // Rates are rounded to three digits, which moves each by at most half a percent.
        (Some(best), Some(next)) if next.rps / best.rps <= 1.011 * (1.0 + slo.resolution) => SloOutcome::Found,
        (Some(_), Some(_)) => SloOutcome::Coarse,
    }
}

/// Returns the reason for which a point misses the objective, or for which that is unknown, in words.
pub fn why_not(point: &Point, slo: &Slo) -> String {
    let Some(summary) = &point.summary else {
        return "not summarised".into();
    };
    if summary.verdict != Verdict::Valid {
        return summary.verdict.to_string();
    }
    let Some(us) = limited_us(point, slo) else {
        return format!("too few samples for a {}", slo.objective.figure());
    };
    if summary.error_share > slo.error_share || us.is_infinite() {
        let limit = slo.error_share.min(slo.objective.slow_share());
        let [failed, limit] = [summary.error_share, limit].map(|share| 100.0 * share);
        return format!("{failed:.2} % of the requests failed (limit {limit:.2} %)");
    }
    let ms = us / 1e3;
    let decimals = match ms {
        ms if ms >= 100.0 => 0,
        ms if ms >= 1.0 => 1,
        _ => 3,
    };
    format!("{} {ms:.decimals$} ms", slo.objective.figure())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Factors, Histograms, Limits, Mode, Percentile};
    use crate::statistics::percentile::histogram;
    use crate::summarise;
    use proptest::prelude::*;

    fn said(rps: f64, repeats: u32, met: bool) -> RateEvidence {
        RateEvidence {
            rps,
            repeats,
            tries: 1,
            answer: if met {
                MeetsObjective::Met
            } else {
                MeetsObjective::NotMet
            },
            certain: true,
        }
    }

    /// Creates a point whose requests take 1 ms, one in fifty `slow_us`, each sent `lag_us` late.
    fn point(rps: f64, slow_us: u64, lag_us: u64, change: impl FnOnce(&mut Repeat)) -> Point {
        let service: Vec<u64> = (0..1_000).map(|i| if i % 50 == 0 { slow_us } else { 1_000 }).collect();
        let blocks = |values: &[u64]| values.chunks(100).map(histogram).collect::<Vec<_>>();
        let mut repeat = Repeat {
            window_s: 1_000.0 / rps,
            scheduled: 1_000,
            completed: 1_000,
            achieved_rps: rps,
            histograms: Histograms {
                block_s: 100.0 / rps,
                latency: blocks(&service.iter().map(|us| us + lag_us).collect::<Vec<_>>()),
                service: blocks(&service),
                lag: blocks(&[lag_us; 1_000]),
                ..Histograms::default()
            },
            ..Repeat::empty()
        };
        change(&mut repeat);
        let factors = Factors {
            variant: String::new(),
            tier: "t".into(),
            cache: "off".into(),
            cache_share: 0.0,
            model: "m".into(),
            mode: Mode::Realtime,
            batch_size: 1,
            offered_rps: rps,
            arrivals: "constant".into(),
            keys: "uniform".into(),
            mix: None,
            driven: None,
        };
        let mut points = [Point {
            factors,
            repeats: vec![repeat],
            summary: None,
        }];
        summarise(&mut points, &Limits::default(), None);
        let [point] = points;
        point
    }

    const SLO: Slo = Slo {
        objective: Objective::Percentile {
            percentile: Percentile::P99,
            limit_us: 46_000.0,
        },
        error_share: 0.001,
        lowest_rps: 10.0,
        highest_rps: 1_000.0,
        resolution: 0.05,
    };

    fn answered(point: &Point) -> MeetsObjective {
        evidence(point, &SLO).unwrap().answer
    }

    #[test]
    fn what_the_instrument_did_is_no_evidence_against_the_server() {
        let fine = |_: &mut Repeat| ();
        assert_eq!(answered(&point(100.0, 10_000, 0, fine)), MeetsObjective::Met);
        assert_eq!(answered(&point(100.0, 60_000, 0, fine)), MeetsObjective::NotMet);
        // Under the limit despite a late send, which is part of the latency.
        let late = point(100.0, 10_000, 20_000, fine);
        assert!(matches!(late.summary.as_ref().unwrap().verdict, Verdict::Invalid(_)));
        assert_eq!(answered(&late), MeetsObjective::Met);
        // Above the limit with a late send.
        assert_eq!(answered(&point(100.0, 10_000, 60_000, fine)), MeetsObjective::Unknown);
        assert_eq!(answered(&point(100.0, 60_000, 60_000, fine)), MeetsObjective::Unknown);
        // The schedule did not hold the requests asked for.
        let other = point(100.0, 10_000, 0, |repeat| repeat.window_s = 30.0);
        assert_eq!(answered(&other), MeetsObjective::Unknown);
        // Too few for a p95, and enough for a p50.
        let p50 = Slo {
            objective: Objective::Percentile {
                percentile: Percentile::P50,
                limit_us: 500.0,
            },
            ..SLO
        };
        let few = point(100.0, 1_000, 0, |repeat| {
            (repeat.scheduled, repeat.completed, repeat.window_s) = (50, 50, 0.5);
            for clock in [
                &mut repeat.histograms.latency,
                &mut repeat.histograms.service,
                &mut repeat.histograms.lag,
            ] {
                *clock = vec![histogram(&[1_000; 50])];
            }
        });
        assert!(matches!(few.summary.as_ref().unwrap().verdict, Verdict::Invalid(_)));
        assert_eq!(evidence(&few, &p50).unwrap().answer, MeetsObjective::NotMet);
    }

    #[test]
    fn a_disturbed_point_is_evidence_only_where_it_met_the_limit_all_the_same() {
        let disturbed = |repeat: &mut Repeat| repeat.disturbed = Some("a compiler ran".into());
        let met = point(100.0, 10_000, 0, disturbed);
        assert_eq!(met.summary.as_ref().unwrap().faults, [Fault::Disturbed]);
        assert_eq!(answered(&met), MeetsObjective::Met);
        assert_eq!(answered(&point(100.0, 60_000, 0, disturbed)), MeetsObjective::Unknown);
        let failed = point(100.0, 10_000, 0, |repeat| {
            disturbed(repeat);
            repeat.errors = [("timeout".to_owned(), 500)].into();
            (repeat.completed, repeat.achieved_rps) = (500, 50.0);
        });
        assert_eq!(answered(&failed), MeetsObjective::Unknown);
        let growing = point(100.0, 10_000, 0, |repeat| {
            disturbed(repeat);
            repeat.achieved_rps = 60.0;
            repeat.backlog_slope = Interval {
                value: 50_000.0,
                lo: 45_000.0,
                hi: 55_000.0,
            };
        });
        assert!(matches!(growing.summary.as_ref().unwrap().verdict, Verdict::Invalid(_)));
        assert_eq!(answered(&growing), MeetsObjective::Unknown);
    }

    #[test]
    fn every_user_busy_is_the_servers_doing_where_its_own_time_says_so() {
        let busy = |repeat: &mut Repeat| repeat.in_flight_limit_hit = true;
        assert_eq!(answered(&point(100.0, 60_000, 60_000, busy)), MeetsObjective::NotMet);
        assert_eq!(answered(&point(100.0, 10_000, 60_000, busy)), MeetsObjective::Unknown);
    }

    #[test]
    fn errors_above_their_share_are_the_servers_whatever_else_happened() {
        let failed = |repeat: &mut Repeat| {
            repeat.errors = [("wrong-reply".to_owned(), 1_000)].into();
            (repeat.completed, repeat.achieved_rps) = (0, 0.0);
        };
        for lag_us in [0, 60_000] {
            let found = evidence(&point(100.0, 500, lag_us, failed), &SLO).unwrap();
            assert_eq!((found.answer, found.certain), (MeetsObjective::NotMet, true));
        }
    }

    #[test]
    fn failed_requests_miss_the_objective_however_fast_they_failed() {
        let failing = |failed: usize| {
            point(100.0, 60_000, 0, |repeat| {
                let (out, good) = (1_000 - failed, 1_000 - failed as u64);
                let latencies: Vec<u64> = (0..out).map(|i| if i < 20 { 60_000 } else { 1_000 }).collect();
                repeat.histograms.latency = vec![histogram(&latencies)];
                repeat.histograms.failed = vec![histogram(&vec![400; failed])];
                repeat.errors = [("503".to_owned(), failed as u64)].into();
                (repeat.completed, repeat.achieved_rps) = (good, good as f64 / 10.0);
            })
        };
        let p95 = Slo {
            objective: Objective::Percentile {
                percentile: Percentile::P95,
                limit_us: 46_000.0,
            },
            error_share: 0.1,
            ..SLO
        };
        let answer = |failed| evidence(&failing(failed), &p95).unwrap().answer;
        // 20 of 1,000 are slow, and 50 may miss.
        assert_eq!(
            [29, 31, 60].map(answer),
            [MeetsObjective::Met, MeetsObjective::NotMet, MeetsObjective::NotMet]
        );
        let summary = failing(60).summary.unwrap();
        assert!(summary.p95_us.unwrap().value < 1_100.0, "of good replies");
        assert_eq!(summary.samples, 940);
        assert!(matches!(summary.verdict, Verdict::Saturated(_)), "{}", summary.verdict);
    }

    #[test]
    fn never_met_is_said_where_it_is_known() {
        let fine = |_: &mut Repeat| ();
        let unknown = point(50.0, 10_000, 60_000, fine);
        let (not_met, met) = (point(100.0, 60_000, 0, fine), point(20.0, 10_000, 0, fine));
        let found = |points: &[&Point]| {
            finding(
                &Curve {
                    points: points.to_vec(),
                },
                &SLO,
                &Limits::default(),
            )
            .unwrap()
        };
        assert_eq!(found(&[&not_met]).outcome, SloOutcome::NeverMet);
        let below = found(&[&unknown, &not_met]);
        assert_eq!(
            (below.outcome, below.unknown.len(), below.highest_rps),
            (SloOutcome::Unknown, 1, None)
        );
        assert!(below.unknown[0].why.contains("sent late"), "{below:?}");
        assert_eq!(found(&[&unknown]).outcome, SloOutcome::Unknown);
        let between = found(&[&met, &unknown, &not_met]);
        assert_eq!(between.outcome, SloOutcome::Coarse);
        assert_eq!(between.highest_rps.unwrap().value, 20.0);
        assert_eq!(between.not_met.unwrap().rps, 100.0);
    }

    #[test]
    fn a_missed_stream_objective_is_explained_by_the_time_that_it_limits() {
        let streaming = point(100.0, 10_000, 0, |repeat| {
            let ttft = vec![histogram(&[350_000; 1_000])];
            repeat.histograms.streams.insert(StreamFigure::Ttft, ttft);
        });
        let objective = Objective::Stream {
            figure: StreamFigure::Ttft,
            percentile: Percentile::P99,
            limit_us: 300_000.0,
        };
        assert_eq!(why_not(&streaming, &Slo { objective, ..SLO }), "ttft p99 350 ms");
        assert_eq!(why_not(&streaming, &SLO), "p99 10.0 ms");
        assert_eq!(why_not(&point(100.0, 5_600, 0, |_| ()), &SLO), "p99 5.6 ms");
    }

    #[test]
    fn the_cut_contradicts_the_fewest_repeats() {
        assert_eq!(cut(&[]), 0);
        assert_eq!(cut(&[said(1.0, 1, false)]), 0);
        assert_eq!(cut(&[said(1.0, 1, true), said(2.0, 1, false)]), 1);
        // A slow minute at the lowest rate against four rates of five repeats.
        let mut hiccup = vec![said(1.0, 5, false)];
        hiccup.extend((2..6).map(|rps| said(f64::from(rps), 5, true)));
        assert_eq!(cut(&hiccup), 5);
        // A lucky repeat above a rate that five repeats missed.
        assert_eq!(cut(&[said(1.0, 5, true), said(2.0, 5, false), said(3.0, 1, true)]), 1);
        // One against one: the lower cut.
        assert_eq!(cut(&[said(1.0, 1, false), said(2.0, 1, true)]), 0);
    }

    proptest! {
        #[test]
        fn what_lies_at_the_cut_says_so(told in prop::collection::vec((1_u32..6, any::<bool>()), 0..20)) {
            let evidence: Vec<RateEvidence> =
                told.iter().enumerate().map(|(i, &(repeats, met))| said(i as f64, repeats, met)).collect();
            let cut = cut(&evidence);
            prop_assert!(cut == 0 || evidence[cut - 1].is_met());
            prop_assert!(cut == evidence.len() || !evidence[cut].is_met());
            let against = |cut: usize| -> u32 {
                let wrong = |(index, one): (usize, &RateEvidence)| (one.is_met() != (index < cut)).then_some(one.repeats);
                evidence.iter().enumerate().filter_map(wrong).sum()
            };
            prop_assert!((0..=evidence.len()).all(|other| against(other) >= against(cut)));
        }

        /// If every rate up to a boundary meets the objective and none above does, the cut is the boundary.
        #[test]
        fn clean_evidence_is_cut_where_it_changes(met in 0_usize..10, not_met in 0_usize..10, repeats in 1_u32..6) {
            let evidence: Vec<RateEvidence> = (0..met + not_met).map(|i| said(i as f64, repeats, i < met)).collect();
            prop_assert_eq!(cut(&evidence), met);
        }
    }
}
