//! Cold starts side by side. In: a run. Out: a table of medians, since few are measured of each, and the cost of starting
//! servers together in sentences.

use crate::content::labels::{variant, without_servers};
use crate::content::table::{Cell, Table, cells, figures, text};
use crate::units::{NONE, digits3, latency_interval};
use tierlab_analysis::curves::grouped;
use tierlab_analysis::record::{ColdStart, Interval, Run};
use tierlab_analysis::statistics::sections::{OUTSIDE, Pairing, mean_interval, of_means};

/// Meaning of the figures.
const INTRO: &str = "ready: from the load call, or from the start of the server's process; stages are as the server reports them. in all: \
                     geometric mean with its 95 % interval";
/// Meaning of the figures of fleets.
const FLEETS: &str = "For servers that start together, times count from the due start of the first and are those of the last to reply, \
                      except `earliest reply`; bytes are what all of them read from the tier. `spread over`: range of their random start \
                      times, in seconds";

/// Stages that any cold start reports, in the order of the servers' reports. Servers may report different stages.
pub(crate) fn stages(starts: &[ColdStart]) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for start in starts {
        let mut index = 0;
        for (stage, _) in &start.stages_s {
            index = match all.iter().position(|other| other == stage) {
                Some(at) => at + 1,
                None => {
                    all.insert(index, stage);
                    index + 1
                }
            };
        }
    }
    all
}

/// Seconds of a stage of one start; `None` if it was not reported.
pub(crate) fn stage_s(start: &ColdStart, stage: &str) -> Option<f64> {
    let of_stage = start.stages_s.iter().find(|(name, _)| name == stage);
    of_stage.map(|(_, seconds)| *seconds)
}

/// Cold starts of a run, a row per tier, cause and spread; `None` without any.
pub(super) fn table(run: &Run) -> Option<Table> {
    if run.cold_starts.is_empty() {
        return None;
    }
    let stages = stages(&run.cold_starts);
    let has_fleets = run.cold_starts.iter().any(|start| start.servers > 1);
    let columns = ["tier", "by", "page cache"].map(text).into_iter();
    let columns = columns.chain(["n", "servers", "spread over s", "earliest reply ms", "ready ms"].map(figures));
    let columns = columns.chain(stages.iter().map(|stage| figures(*stage)));
    let columns = columns.chain(["first reply ms", "in all", "MiB of the tier"].map(figures));
    let groups = groups(run);
    let together = groups.iter().filter_map(|group| together(run, group, &groups));
    let spread = groups.iter().filter_map(|group| spread(group, &groups));
    let intro = match has_fleets {
        true => format!("{INTRO}. {FLEETS}"),
        false => INTRO.to_owned(),
    };
    let table = Table {
        title: "Cold starts, medians".to_owned(),
        intro,
        notes: together.chain(spread).collect(),
        ..Table::new(columns, groups.iter().map(|group| row(group, &stages)))
    };
    Some(table.named(|name| has_fleets || !OF_FLEETS.contains(&name)))
}

/// Columns that only fleets have.
const OF_FLEETS: [&str; 4] = ["servers", "spread over s", "earliest reply ms", "MiB of the tier"];

fn row(group: &StartGroup<'_>, stages: &[&str]) -> Vec<Cell> {
    let none = || NONE.to_owned();
    // Servers of another version may not report a stage.
    let millis = |of: &dyn Fn(&ColdStart) -> Option<f64>| {
        let seconds: Vec<f64> = group.starts.iter().filter_map(|&start| of(start)).collect();
        match seconds.is_empty() {
            true => none(),
            // Adding 0.0 avoids -0.0.
            false => format!("{:.1}", median(seconds) * 1e3 + 0.0),
        }
    };
    let first = group.first;
    let mut row = vec![
        first.tier.clone(),
        first.way.to_string(),
        first.page_cache.to_string(),
        group.starts.len().to_string(),
        first.servers.to_string(),
        first.jitter_s.to_string(),
        millis(&|start| start.earliest_reply_s),
        millis(&|start| Some(start.ready_s)),
    ];
    row.extend(stages.iter().map(|stage| millis(&|start| stage_s(start, stage))));
    row.push(millis(&|start| Some(start.first_reply_s)));
    row.push(total_time(group));
    row.push(bytes(group).map_or_else(none, |bytes| digits3(bytes / f64::from(1 << 20))));
    cells(row)
}

/// Time from the start to the last reply.
fn total_time(group: &StartGroup<'_>) -> String {
    let logs = group.logs();
    let interval = mean_interval(&logs).unwrap_or(Interval::exact(logs[0]));
    latency_interval(Some(&interval.map(|log| log.exp() * 1e6)))
}

/// Median of the bytes that all servers read from the tier.
fn bytes(group: &StartGroup<'_>) -> Option<f64> {
    let bytes = |start: &&ColdStart| start.tier_bytes.map(|bytes| bytes as f64);
    let all: Option<Vec<f64>> = group.starts.iter().map(bytes).collect();
    all.map(median)
}

/// Cost of starting together, against the smallest number of servers of the same variant.
fn together(run: &Run, group: &StartGroup<'_>, groups: &[StartGroup<'_>]) -> Option<String> {
    let name = |group: &StartGroup<'_>| variant(run, &group.first.tier).map(without_servers);
    let base = name(group)?;
    let is_same = |other: &&StartGroup<'_>| other.is_like(group) && name(other).as_ref() == Some(&base);
    let small = groups.iter().filter(is_same).min_by_key(|other| other.first.servers)?;
    if small.first.servers >= group.first.servers || group.first.jitter_s > 0.0 {
        return None;
    }
    let times = times_as_long(small, group)?;
    let read = match (bytes(small), bytes(group)) {
        (Some(one), Some(all)) if one > 0.0 => format!(", and together they read {:.2} times the bytes", all / one),
        (Some(_), Some(0.0)) => ", and nothing is read from the tier".to_owned(),
        _ => String::new(),
    };
    let (way, servers) = (group.first.way, group.first.servers);
    let small = match small.first.servers {
        1 => "a single server".to_owned(),
        small => format!("the last of {small}"),
    };
    Some(format!(
        "{base} by {way}: the last of {servers} servers that start together takes {times} times as long to reply as {small}{read}"
    ))
}

/// Effect of spreading the starts.
fn spread(group: &StartGroup<'_>, groups: &[StartGroup<'_>]) -> Option<String> {
    if group.first.jitter_s == 0.0 {
        return None;
    }
    let at_once = groups
        .iter()
        .find(|other| other.is_like(group) && other.first.tier == group.first.tier && other.first.jitter_s == 0.0)?;
    let times = times_as_long(at_once, group)?;
    Some(format!(
        "{} by {}: spread over {} s, the last of {} servers takes {times} times as long to reply as when all start at once",
        group.first.tier, group.first.way, group.first.jitter_s, group.first.servers
    ))
}

/// Ratio with its interval, by interleaved repeats: `2.13 [1.98–2.29]`.
fn times_as_long(base: &StartGroup<'_>, group: &StartGroup<'_>) -> Option<String> {
    let times = of_means(&base.logs(), &group.logs(), Pairing::ByRepeat)?.interval(OUTSIDE);
    let [value, lo, hi] = [times.value, times.lo, times.hi].map(f64::exp);
    Some(format!("{value:.2} [{lo:.2}–{hi:.2}]"))
}

/// Cold starts of one tier, cause and spread.
struct StartGroup<'a> {
    first: &'a ColdStart,
    starts: Vec<&'a ColdStart>,
}

impl StartGroup<'_> {
    fn is_like(&self, other: &Self) -> bool {
        (self.first.way, self.first.page_cache) == (other.first.way, other.first.page_cache)
    }

    /// Logarithms of the seconds until the last reply.
    fn logs(&self) -> Vec<f64> {
        let total_time = |start: &&ColdStart| (start.ready_s + start.first_reply_s).ln();
        self.starts.iter().map(total_time).collect()
    }
}

fn groups(run: &Run) -> Vec<StartGroup<'_>> {
    let kind = |start: &ColdStart| (start.tier.clone(), start.way, start.page_cache, start.jitter_s);
    let groups = grouped(run.cold_starts.iter().map(|start| (kind(start), start)));
    let groups = groups.into_iter();
    groups
        .map(|(_, starts)| StartGroup {
            first: starts[0],
            starts,
        })
        .collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => values[middle - 1].midpoint(values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::{ColdWay, PageCache};

    #[test]
    fn a_stage_that_nobody_tells_is_not_known_and_one_of_nothing_is_nothing() {
        let start = |stages: &[(&str, f64)]| ColdStart {
            tier: "t".to_owned(),
            way: ColdWay::Restart,
            index: 0,
            page_cache: PageCache::Dropped,
            servers: 1,
            jitter_s: 0.0,
            stages_s: stages.iter().map(|(stage, s)| ((*stage).to_owned(), *s)).collect(),
            ready_s: 1.0,
            first_reply_s: 0.5,
            earliest_reply_s: None,
            tier_bytes: None,
        };
        // One that tells less comes first.
        let starts = [start(&[("read", -0.0)]), start(&[("read", -0.0), ("session", 0.2)])];
        let columns = stages(&starts);
        assert_eq!(columns, ["read", "session"]);
        let told = |starts: Vec<&ColdStart>| {
            let first = starts[0];
            row(&StartGroup { first, starts }, &columns)[8..10]
                .iter()
                .map(Cell::text)
                .collect::<Vec<_>>()
        };
        assert_eq!(told(vec![&starts[0]]), ["0.0", "n/a"]);
        assert_eq!(told(starts.iter().collect()), ["0.0", "200.0"]);
    }

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }
}
