//! Statements from repeats. In: the figures of each repeat. Out: rates with 95 % intervals over the repeats, the
//! breakdown of time, and advice with its limit. Pure.

use super::OfflineCase;
use super::measure::{OfflineRepeat, StreamFigures};
use super::plan::OfflinePrices;
use crate::rounds::{geometric_mean, mean, mean_share};
use serde::Serialize;
use std::collections::BTreeMap;
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{amount, count_of, latency, spread};

/// Ratio above which two rates count as equal.
const EQUAL_RATIO: f64 = 0.9;

/// Minimum share of the cores used by others that is reported.
const MIN_OTHERS_SHARE: f64 = 0.1;

/// Minimum slowdown of concurrent reads at which they queue at the tier.
const MIN_QUEUE_SLOWDOWN: f64 = 1.5;

/// CPU use of a loader, in cores, below which it is not limited by CPU.
const MAX_IDLE_CORES: f64 = 0.7;

/// Figures of one workload in one layout on one tier.
#[derive(Debug, Clone, Serialize)]
pub(super) struct OfflineStatement {
    #[serde(flatten)]
    pub(super) case: OfflineCase,
    pub(super) repeats: usize,
    /// Rows per second of the loader alone, of the model alone, of both, and of both with one read at a time.
    pub(super) loader_per_s: Interval,
    pub(super) inference_per_s: Interval,
    pub(super) both_per_s: Interval,
    pub(super) naive_per_s: Interval,
    /// Ratio of both to the slower of loader and model, over the repeats.
    pub(super) of_slower: Interval,
    /// Ratio of both to one read at a time, over the repeats.
    pub(super) of_naive: Interval,
    /// Ratio of the faster of loader and model to both, over the repeats: the most that a faster other part gains.
    pub(super) max_gain: Interval,
    /// Share of the sessions' time spent waiting for a batch, in both together: for reads, for decoding, for shuffling
    /// and batching.
    pub(super) idle_share: f64,
    pub(super) idle_reading_share: f64,
    pub(super) idle_decoding_share: f64,
    pub(super) idle_batching_share: f64,
    /// Share of the sessions' time spent waiting with one read at a time.
    pub(super) naive_idle_share: f64,
    /// Ratio of a concurrent read's time to a single read's, scaled if the single read is larger: more than 1 if the tier is at its
    /// limit.
    pub(super) read_slowdown: Interval,
    pub(super) requests_per_row: f64,
    pub(super) bytes_per_row: f64,
    /// CPU time of the whole process per row.
    pub(super) loader_cpu_us: f64,
    pub(super) inference_cpu_us: f64,
    pub(super) both_cpu_us: f64,
    /// Peak memory of the process, in both together.
    pub(super) peak_bytes: u64,
    pub(super) usd_per_million: Option<f64>,
    /// Highest share of all cores used by other processes and the hypervisor in any of the measurements, which affects
    /// every figure.
    pub(super) taken_share: f64,
    /// Share of all cores used by others in both together, as a mean over the repeats.
    pub(super) both_taken_share: f64,
    /// Figures for each number of accelerators that the loader fed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) accelerators: Vec<AcceleratorFigures>,
    /// Highest of these numbers whose utilisation is at least 90 %, interval included.
    pub(super) accelerators_at_90: Option<u32>,
    /// Diagnosis with advice.
    pub(super) diagnosis: Vec<String>,
}

/// Accelerators fed together.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AcceleratorFigures {
    pub(super) count: u32,
    /// Arrived rows as a share of the rows that accelerators would take without waiting.
    pub(super) utilisation: Interval,
    pub(super) rows_per_s: Interval,
}

/// Minimum utilisation of an accelerator in MLPerf Storage.
const MIN_UTILISATION: f64 = 0.9;

/// Figures of each number of accelerators, each of which takes `demand` rows per second.
fn accelerator_figures(own: &[OfflineRepeat], demand: f64) -> Vec<AcceleratorFigures> {
    let counts = own.first().into_iter().flat_map(|one| one.by_count.keys());
    let of = |&count: &u32| {
        let rates = || own.iter().filter_map(|one| Some(one.by_count.get(&count)?.rate()));
        AcceleratorFigures {
            count,
            utilisation: mean_share(rates().map(|rate| (rate / demand / f64::from(count)).min(1.0))),
            rows_per_s: mean(rates()),
        }
    };
    counts.map(of).collect()
}

/// Returns all measured figures, by name. `cores` is the number that the process may use.
pub(super) fn statements(
    repeats: &BTreeMap<OfflineCase, Vec<OfflineRepeat>>,
    demands: &BTreeMap<String, f64>,
    prices: Option<&OfflinePrices>,
    cores: usize,
) -> Vec<OfflineStatement> {
    let of_case = |(case, own): (&OfflineCase, &Vec<OfflineRepeat>)| {
        let mut statement = statement(case, own, prices, cores);
        if let Some(&demand) = demands.get(&case.placement.table) {
            statement.add_accelerators(accelerator_figures(own, demand), demand);
        }
        statement
    };
    repeats.iter().map(of_case).collect()
}

/// One of the four measurements of a repeat.
type FiguresOf = fn(&OfflineRepeat) -> &StreamFigures;

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Ratio of a concurrent read's time to a single read's, scaled if the single read is larger.
fn read_slowdown(one: &OfflineRepeat) -> f64 {
    // Time and bytes of a read, without decoding.
    let read = |StreamFigures { loaded, .. }: &StreamFigures| {
        let reads = (loaded.reads as f64).max(1.0);
        let time = (loaded.reading_s - loaded.decoding_s).max(0.0);
        (time / reads, loaded.wire_bytes as f64 / reads)
    };
    let (ahead, alone) = (read(&one.loader), read(&one.naive));
    let larger = share(ahead.1, alone.1).max(1.0);
    share(ahead.0, alone.0 * larger)
}

fn statement(
    case: &OfflineCase,
    own: &[OfflineRepeat],
    prices: Option<&OfflinePrices>,
    cores: usize,
) -> OfflineStatement {
    let rate = |of: FiguresOf| mean(own.iter().map(|one| of(one).rate()));
    let ratio = |of: fn(&OfflineRepeat) -> f64| geometric_mean(own.iter().map(of));
    let all = |of: &dyn Fn(&OfflineRepeat) -> f64| own.iter().map(of).sum::<f64>();
    let idle = |of: FiguresOf| {
        let waiting = all(&|one| of(one).waiting_s);
        share(waiting, waiting + all(&|one| of(one).running_s))
    };
    let cpu_us = |of: FiguresOf| mean(own.iter().map(|one| of(one).cpu_us())).value;
    let loaded = |of: fn(&super::loader::LoaderFigures) -> f64| all(&|one| of(&one.both.loaded));
    let rows = loaded(|loaded| loaded.rows as f64).max(1.0);
    let idle_share = idle(|one| &one.both);
    // While the sessions wait, the batching thread either works or waits for a piece, which is read and decoded.
    let (starved, batching) = (loaded(|one| one.starved_s), loaded(|one| one.batching_s));
    let for_pieces = idle_share * share(starved, starved + batching);
    // The shards of a piece are decoded at the same time, so that the sum may exceed the piece's own time.
    let decoding = for_pieces * share(loaded(|one| one.decoding_s), loaded(|one| one.reading_s)).min(1.0);
    let requests_per_row = loaded(|one| one.requests as f64) / rows;
    let bytes_per_row = loaded(|one| one.wire_bytes as f64) / rows;
    let both_per_s = rate(|one| &one.both);
    let measurements = own.iter().flat_map(|one| {
        let four = [&one.loader, &one.inference, &one.both, &one.naive];
        four.into_iter().chain(one.by_count.values())
    });
    let mut statement = OfflineStatement {
        case: case.clone(),
        repeats: own.len(),
        loader_per_s: rate(|one| &one.loader),
        inference_per_s: rate(|one| &one.inference),
        of_slower: ratio(|one| one.both.rate() / one.loader.rate().min(one.inference.rate())),
        of_naive: ratio(|one| one.both.rate() / one.naive.rate()),
        max_gain: ratio(|one| one.loader.rate().max(one.inference.rate()) / one.both.rate()),
        idle_share,
        idle_reading_share: for_pieces - decoding,
        idle_decoding_share: decoding,
        idle_batching_share: idle_share - for_pieces,
        naive_idle_share: idle(|one| &one.naive),
        read_slowdown: mean(own.iter().map(read_slowdown)),
        requests_per_row,
        bytes_per_row,
        loader_cpu_us: cpu_us(|one| &one.loader),
        inference_cpu_us: cpu_us(|one| &one.inference),
        both_cpu_us: cpu_us(|one| &one.both),
        peak_bytes: own.iter().map(|one| one.both.peak_bytes).max().unwrap_or(0),
        usd_per_million: prices.and_then(|prices| {
            prices.per_million(&case.placement.tier, both_per_s.value, requests_per_row, bytes_per_row)
        }),
        taken_share: measurements.map(StreamFigures::others_share).fold(0.0, f64::max),
        both_taken_share: all(&|one| one.both.others_share()) / own.len().max(1) as f64,
        naive_per_s: rate(|one| &one.naive),
        both_per_s,
        accelerators: Vec::new(),
        accelerators_at_90: None,
        diagnosis: Vec::new(),
    };
    statement.diagnosis = diagnosis(&statement, cores);
    statement
}

impl OfflineStatement {
    /// Adds the accelerators that the loader feeds, each of which takes `demand` rows per second.
    fn add_accelerators(&mut self, figures: Vec<AcceleratorFigures>, demand: f64) {
        let busy = figures.iter().filter(|one| one.utilisation.lo >= MIN_UTILISATION);
        let best = busy.max_by_key(|one| one.count);
        let max = (self.loader_per_s.value / (MIN_UTILISATION * demand)).floor();
        // A single repeat leaves all numbers open.
        let is_above = |count: u32| self.repeats > 1 && best.is_none_or(|best| count > best.count);
        let mut all = figures.iter();
        let open = all.find(|one| one.utilisation.hi >= MIN_UTILISATION && is_above(one.count));
        let what = match best {
            // The kernel's timers lengthen a short pause.
            None if self.inference_per_s.value < MIN_UTILISATION * demand => {
                "an unknown number: one fed from memory is below 90 % (raise `compute_ms_per_batch`)".to_owned()
            }
            None if self.repeats < 2 => "an unknown number of accelerators at 90 % (only one repeat)".to_owned(),
            None if open.is_some() => "no tested number of accelerators at 90 % for certain".to_owned(),
            None => "none of the tested numbers of accelerators at 90 %".to_owned(),
            Some(best) => {
                let Interval { value, lo, hi } = best.utilisation.map(|share| 100.0 * share);
                let is_highest = figures.iter().all(|one| one.count <= best.count);
                let tried = if is_highest { ", the highest number tested" } else { "" };
                let count = count_of(best.count, "accelerator");
                format!("{count} at 90 % or more ({value:.1} % [{lo:.1}-{hi:.1}]){tried}")
            }
        };
        let open = open.map(|one| format!("; {} may be fed as well: raise `repeats`", one.count));
        let open = open.unwrap_or_default();
        let text = format!("it feeds {what}{open}; the loader's own rate would suffice for about {max}");
        self.diagnosis = std::iter::once(text).chain(caution(self.taken_share)).collect();
        self.accelerators_at_90 = best.map(|one| one.count);
        self.accelerators = figures;
    }
}

/// Derives from the three rates the slower part, the advice, and the limit of an improvement.
fn diagnosis(one: &OfflineStatement, cores: usize) -> Vec<String> {
    let mut out = vec![slower_part(one)];
    if one.of_slower.value < EQUAL_RATIO && one.of_slower.hi < 1.0 {
        let (percent, cause) = (spread(&one.of_slower.map(|ratio| 100.0 * ratio)), cause(one, cores));
        out.push(format!(
            "together they reach {percent} % of the slower one alone: {cause}"
        ));
    }
    let is_certain = one.of_naive.lo > 1.0 || one.of_naive.hi < 1.0;
    let gives = if is_certain { "gives" } else { "may give" };
    out.push(format!(
        "read-ahead {gives} {} times the rate of one read at a time; without it, sessions wait {:.0} % of their time",
        spread(&one.of_naive),
        100.0 * one.naive_idle_share
    ));
    out.extend(caution(one.taken_share));
    out
}

/// Caution about figures that were measured while others used this share of the cores.
fn caution(taken_share: f64) -> Option<String> {
    let percent = 100.0 * taken_share;
    let text = || format!("other processes used up to {percent:.0} % of the cores: measure again on an idle machine");
    (taken_share > MIN_OTHERS_SHARE).then(text)
}

/// Returns the part with the lower rate, if the intervals of the two rates do not overlap, with advice.
fn slower_part(one: &OfflineStatement) -> String {
    let (loader, inference, gain) = (one.loader_per_s, one.inference_per_s, spread(&one.max_gain));
    let [delivers, takes] = [loader, inference].map(|rate| spread(&rate));
    let is_limit = |of: Interval, other: Interval| of.value < EQUAL_RATIO * other.value && of.hi < other.lo;
    if is_limit(loader, inference) {
        let advice = loader_advice(one);
        return format!(
            "the loader is the bottleneck: alone it delivers {delivers} rows a second, and the model takes {takes}; {advice}. The gain is at \
            most {gain} times"
        );
    }
    if is_limit(inference, loader) {
        return format!(
            "the model is the bottleneck: alone it takes {takes} rows a second, and the loader delivers {delivers}; add sessions, threads or an \
            accelerator, for a gain of up to {gain} times; a faster tier or layout has no effect"
        );
    }
    let are_equal = loader.value.min(inference.value) >= EQUAL_RATIO * loader.value.max(inference.value);
    let (what, advice) = match (one.repeats, are_equal) {
        (0 | 1, _) => ("are not compared (only one repeat)", "raise `repeats`"),
        (_, true) => ("are equally fast", "speed up both"),
        (_, false) => ("do not differ significantly", "raise `repeats`"),
    };
    format!("loader and model {what}, {delivers} and {takes} rows a second: {advice}")
}

fn loader_advice(one: &OfflineStatement) -> String {
    let is_reading = one.idle_reading_share >= one.idle_decoding_share + one.idle_batching_share;
    // A read that waits for a busy worker looks like one that waits for the tier.
    let is_idle = one.loader_cpu_us * one.loader_per_s.value < 1e6 * MAX_IDLE_CORES;
    if !is_reading {
        "it waits for decoding and batching: raise `loader.workers` if cores are free, or use a layout without decoding (rows)"
            .to_owned()
    } else if is_idle && one.read_slowdown.lo > MIN_QUEUE_SLOWDOWN {
        format!(
            "the tier is at its limit: concurrent reads take {} times as long as single ones. Read fewer bytes (a layout with compression, fewer columns), \
            then use fewer requests, or stage the table nearer",
            spread(&one.read_slowdown)
        )
    } else {
        "it waits for the tier: raise `loader.depth` or `piece_bytes`, choose a layout with fewer requests, or stage the table nearer"
            .to_owned()
    }
}

/// Returns the reason why loader and model together are slower than the slower of them.
fn cause(one: &OfflineStatement, cores: usize) -> String {
    let slower = one.loader_per_s.value.min(one.inference_per_s.value);
    let together_us = one.loader_cpu_us + one.inference_cpu_us;
    let own_cores = cores as f64 * (1.0 - one.both_taken_share).max(0.0);
    let max = own_cores * 1e6 / together_us.max(1e-9);
    let others = match one.both_taken_share > MIN_OTHERS_SHARE {
        true => format!(", of which others used {:.0} %", 100.0 * one.both_taken_share),
        false => String::new(),
    };
    if one.both_per_s.value > EQUAL_RATIO * max.min(slower) {
        let [load, infer] = [one.loader_cpu_us, one.inference_cpu_us].map(latency);
        let max = amount(max);
        format!(
            "they share the cores ({cores}{others}): a row takes {load} of CPU to load and {infer} to infer, so at \
            most {max} rows a second fit; add cores, or reduce the work per row"
        )
    } else if others.is_empty() {
        "the cores are not the bottleneck: raise the loader's `ready_bytes` or `depth`".to_owned()
    } else {
        format!("they share the cores ({cores}{others}): the cause is unknown")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::MachineUse;
    use crate::tables::offline::loader::LoaderFigures;
    use crate::tables::placements::Placement;
    use tierlab_layouts::Layout;

    fn figures(per_s: f64, cpu_us: f64, waiting: f64) -> StreamFigures {
        StreamFigures {
            rows: per_s as u64,
            elapsed_s: 1.0,
            running_s: 1.0 - waiting,
            waiting_s: waiting,
            machine: MachineUse {
                own_cpu_s: per_s * cpu_us / 1e6,
                ..MachineUse::default()
            },
            window_s: 1.0,
            peak_bytes: 1 << 20,
            loaded: LoaderFigures {
                rows: 1000,
                reads: 10,
                requests: 10,
                wire_bytes: 512_000,
                reading_s: 1.0,
                decoding_s: 0.25,
                starved_s: 0.75,
                batching_s: 0.25,
            },
        }
    }

    fn repeat(loader: f64, inference: f64, both: f64, cpu_us: [f64; 2]) -> OfflineRepeat {
        OfflineRepeat {
            by_count: BTreeMap::new(),
            loader: figures(loader, cpu_us[0], 0.0),
            inference: figures(inference, cpu_us[1], 0.0),
            both: figures(both, cpu_us[0] + cpu_us[1], 0.4),
            naive: figures(both / 2.0, 1.0, 0.5),
        }
    }

    #[test]
    fn the_highest_number_of_busy_accelerators_is_found() {
        // Each takes 100 rows a second, and the tier has 350.
        let one = |scale: f64| OfflineRepeat {
            by_count: [1, 3, 4]
                .map(|count| (count, figures(scale * (100.0 * f64::from(count)).min(350.0), 1.0, 0.5)))
                .into(),
            ..repeat(350.0, 100.0, 100.0, [1.0, 1.0])
        };
        let repeats = [one(1.0), one(0.999)];
        let mut statement = of_repeats(&repeats, 2);
        statement.add_accelerators(accelerator_figures(&repeats, 100.0), 100.0);
        assert_eq!(statement.accelerators_at_90, Some(3));
        assert!(statement.accelerators.iter().all(|one| one.utilisation.hi <= 1.0));
        assert!((statement.accelerators[2].utilisation.value - 0.875).abs() < 0.002);
        assert!(
            statement.diagnosis[0].contains("it feeds 3 accelerators"),
            "{:?}",
            statement.diagnosis
        );
        assert!(!statement.diagnosis[0].contains("highest number tested"));
        assert!(!statement.diagnosis[0].contains("may be fed"));
    }

    #[test]
    fn a_number_of_accelerators_that_repeats_leave_open_is_named() {
        let one = |rate: f64| OfflineRepeat {
            by_count: [(1, figures(rate, 1.0, 0.5))].into(),
            ..repeat(350.0, 100.0, 100.0, [1.0, 1.0])
        };
        let repeats = [one(99.0), one(93.0)];
        let mut statement = of_repeats(&repeats, 2);
        statement.add_accelerators(accelerator_figures(&repeats, 100.0), 100.0);
        let text = &statement.diagnosis[0];
        assert!(
            text.contains("at 90 % for certain; 1 may be fed as well: raise `repeats`"),
            "{text}"
        );
        assert_eq!(statement.accelerators_at_90, None);
    }

    #[test]
    fn an_accelerator_that_cannot_keep_its_own_time_is_not_the_loaders() {
        let one = |rate: f64| OfflineRepeat {
            by_count: [(1, figures(rate, 1.0, 0.5))].into(),
            ..repeat(350.0, 80.0, 80.0, [1.0, 1.0])
        };
        let repeats = [one(79.0), one(80.0)];
        let mut statement = of_repeats(&repeats, 2);
        statement.add_accelerators(accelerator_figures(&repeats, 100.0), 100.0);
        let text = &statement.diagnosis[0];
        assert!(text.contains("one fed from memory is below 90 %"), "{text}");
    }

    #[test]
    fn figures_of_accelerators_have_the_caution_about_other_work() {
        let one = |rate: f64| {
            let mut busy = figures(rate, 1.0, 0.5);
            busy.machine.foreign_cpu_share = Some(0.4);
            OfflineRepeat {
                by_count: [(1, busy)].into(),
                ..repeat(350.0, 100.0, 100.0, [1.0, 1.0])
            }
        };
        let repeats = [one(99.0), one(98.0)];
        let mut statement = of_repeats(&repeats, 2);
        statement.add_accelerators(accelerator_figures(&repeats, 100.0), 100.0);
        let text = statement.diagnosis.join("; ");
        assert!(
            text.contains("it feeds 1 accelerator") && text.contains("used up to 40 % of the cores"),
            "{text}"
        );
    }

    fn of_repeats(repeats: &[OfflineRepeat], cores: usize) -> OfflineStatement {
        let case = OfflineCase {
            placement: Placement {
                tier: "t".into(),
                layout: Layout::Rows,
                table: "w".into(),
            },
            depth: 8,
            workers: 1,
        };
        statement(&case, repeats, None, cores)
    }

    fn of(loader: f64, inference: f64, both: f64, cpu_us: [f64; 2], cores: usize) -> OfflineStatement {
        of_repeats(&vec![repeat(loader, inference, both, cpu_us); 3], cores)
    }

    #[test]
    fn a_tier_at_its_limit_is_asked_for_fewer_bytes() {
        let mut one = repeat(1000.0, 4000.0, 980.0, [10.0, 10.0]);
        // Alone, a read of as many bytes takes a fifth of the time.
        one.naive.loaded.reading_s = 0.15;
        one.naive.loaded.decoding_s = 0.0;
        let text = of_repeats(&vec![one; 3], 8).diagnosis.remove(0);
        assert!(
            text.contains("5.00 [5.00–5.00] times as long as single ones. Read fewer bytes"),
            "{text}"
        );
    }

    #[test]
    fn a_limit_is_named_where_the_intervals_are_apart() {
        let rounds = [(1000.0, 900.0), (3000.0, 4500.0), (2000.0, 5000.0)];
        let rounds = rounds.map(|(loader, inference)| repeat(loader, inference, 800.0, [10.0, 10.0]));
        let text = of_repeats(&rounds, 8).diagnosis.remove(0);
        assert!(text.contains("do not differ significantly"), "{text}");
        for one in [
            repeat(1000.0, 4000.0, 980.0, [10.0; 2]),
            repeat(1000.0, 1010.0, 990.0, [10.0; 2]),
        ] {
            let text = of_repeats(&[one], 8).diagnosis.remove(0);
            assert!(text.contains("not compared (only one repeat)"), "{text}");
        }
    }

    #[test]
    fn a_single_repeat_shows_neither_a_gain_nor_a_loss() {
        let text = of_repeats(&[repeat(2000.0, 2000.0, 1000.0, [50.0; 2])], 4)
            .diagnosis
            .join("; ");
        assert!(!text.contains("together they reach"), "{text}");
        assert!(
            text.contains("read-ahead may give 2.00 times the rate of one read at a time"),
            "{text}"
        );
    }

    #[test]
    fn cores_are_not_excused_while_others_use_them() {
        let mut one = repeat(2000.0, 2000.0, 1000.0, [50.0, 50.0]);
        one.both.machine.foreign_cpu_share = Some(0.7);
        let text = of_repeats(&vec![one; 3], 4).diagnosis.remove(1);
        assert!(text.contains("others used 70 %): the cause is unknown"), "{text}");
    }

    #[test]
    fn the_slower_part_is_named_with_how_far_mending_goes() {
        let one = of(1000.0, 4000.0, 980.0, [10.0, 10.0], 8);
        assert!(
            one.diagnosis[0].contains("the loader is the bottleneck")
                && one.diagnosis[0].contains("4.08 [4.08–4.08] times"),
            "{:?}",
            one.diagnosis
        );
        assert!(
            one.diagnosis[0].contains("it waits for the tier"),
            "{:?}",
            one.diagnosis
        );
        let one = of(9000.0, 1000.0, 990.0, [10.0, 10.0], 8);
        assert!(
            one.diagnosis[0].contains("the model is the bottleneck")
                && one.diagnosis[0].contains("9.09 [9.09–9.09] times"),
            "{:?}",
            one.diagnosis
        );
        assert!(
            one.diagnosis
                .last()
                .unwrap()
                .contains("gives 2.00 [2.00–2.00] times the rate of one read at a time"),
            "{:?}",
            one.diagnosis
        );
        let one = of(1000.0, 1010.0, 990.0, [10.0, 10.0], 8);
        assert!(one.diagnosis[0].contains("equally fast"), "{:?}", one.diagnosis);
    }

    #[test]
    fn cores_that_are_shared_are_told_from_a_pipeline_that_stalls() {
        // 1,000 us per row and one core: at most 1,000 per second, which is the measured rate.
        let one = of(2000.0, 2000.0, 1000.0, [500.0, 500.0], 1);
        assert!(
            one.diagnosis[1].contains("they share the cores (1):")
                && one.diagnosis[1].contains("reach 50.0 [50.0–50.0] %"),
            "{:?}",
            one.diagnosis
        );
        let one = of(2000.0, 2000.0, 1000.0, [50.0, 50.0], 4);
        assert!(one.diagnosis[1].contains("not the bottleneck"), "{:?}", one.diagnosis);
    }

    #[test]
    fn shards_that_are_decoded_at_once_leave_no_negative_time_for_reads() {
        let mut one = repeat(1000.0, 4000.0, 980.0, [10.0, 10.0]);
        for figures in [&mut one.loader, &mut one.both, &mut one.naive] {
            figures.loaded.decoding_s = 3.0 * figures.loaded.reading_s;
        }
        let one = of_repeats(&vec![one; 3], 8);
        assert!(one.idle_reading_share.abs() < 1e-9, "{one:?}");
        assert!((one.idle_decoding_share - 0.4 * 0.75).abs() < 1e-9, "{one:?}");
        assert!(one.read_slowdown.lo >= 0.0, "{one:?}");
    }

    #[test]
    fn the_time_that_sessions_wait_has_its_causes() {
        let one = of(1000.0, 4000.0, 980.0, [10.0, 10.0], 8);
        // Three quarters of 0.4 for pieces, of which a quarter is decoding.
        assert!((one.idle_share - 0.4).abs() < 1e-9);
        assert!((one.idle_reading_share - 0.4 * 0.75 * 0.75).abs() < 1e-9);
        assert!((one.idle_decoding_share - 0.4 * 0.75 * 0.25).abs() < 1e-9);
        assert!((one.idle_batching_share - 0.1).abs() < 1e-9);
        assert!((one.requests_per_row - 0.01).abs() < 1e-12 && (one.bytes_per_row - 512.0).abs() < 1e-9);
    }
}
