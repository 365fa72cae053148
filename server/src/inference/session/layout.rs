//! Default number of sessions of a model, and threads of each: a pure rule.
//!
//! In: cores, the bytes of the model's weights, and the time of a run for each number of threads. Out: groups of equal
//! sessions. Concurrent requests finish soonest with one core each; a lone request finishes soonest on all cores. No
//! single number of threads is good for both: several threads cost more CPU time per run, and one thread leaves the
//! other cores idle. So there is one session over all cores, two over half of them, and so on to one session for each
//! core. The rule keeps those that are worth their memory, and the queue chooses by the number of requests.

use crate::Millis;
use crate::inference::runtime::Threads;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;
use tierlab_formats::model::InstanceConfig;

/// Maximum cores for which a model's sessions are sized.
pub(crate) const MAX_CORES: u32 = 64;
/// Minimum run time for several threads: handing work to them takes tens of microseconds.
const SPREAD_FROM: Duration = Duration::from_micros(250);
/// Approximate CPU time of a request outside its run. During it, another request is in its run.
const OUTSIDE_RUN: Duration = Duration::from_micros(50);
/// Maximum run time with more threads, in percent of that with fewer, for the threads to be worth it.
const WORTH_PERCENT: u32 = 90;

/// `[runtime.instances]`: limits for the sessions of models whose configs state none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FitConfig {
    /// Cores to use; 0 uses all that the process may use.
    pub(crate) cores: u32,
    /// Time limit of the measured runs of a model, in milliseconds; 0 disables measuring.
    #[serde(rename = "measure_ms", with = "Millis")]
    pub(crate) measure: Duration,
    /// Maximum bytes of weights held by all sessions of a model, beyond those of the first.
    pub(crate) max_weight_bytes: u64,
}

impl Default for FitConfig {
    fn default() -> Self {
        Self {
            cores: 0,
            measure: Duration::from_secs(1),
            max_weight_bytes: 1 << 30,
        }
    }
}

/// Sessions with the same number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionGroup {
    pub(crate) sessions: u32,
    pub(crate) threads: Threads,
}

impl SessionGroup {
    /// Layout stated in a model's config.
    pub(crate) fn stated(instances: &InstanceConfig) -> Self {
        let (intra_op, inter_op) = (instances.intra_op_threads, instances.inter_op_threads);
        Self::new(instances.count, intra_op, inter_op, false)
    }

    /// Sessions of a fitted layout.
    fn fitted(sessions: u32, intra_op: u32) -> Self {
        // Only during a run. Otherwise a thread sleeps and is woken between any two nodes.
        let spinning = intra_op > 1;
        Self::new(sessions, intra_op, 1, spinning)
    }

    fn new(sessions: u32, intra_op: u32, inter_op: u32, spinning: bool) -> Self {
        let threads = Threads {
            intra_op,
            inter_op,
            spinning,
        };
        Self { sessions, threads }
    }
}

/// `2 sessions of 1 thread`.
impl fmt::Display for SessionGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        let (sessions, threads) = (self.sessions, self.threads.intra_op);
        let (s, t) = (plural(sessions), plural(threads));
        write!(f, "{sessions} session{s} of {threads} thread{t}")
    }
}

/// Candidate groups, fewest threads first. Together they hold at most `limit_bytes` of weights; otherwise there is a
/// single session over all cores.
pub(crate) fn candidates(cores: u32, weight_bytes: u64, limit_bytes: u64) -> Vec<SessionGroup> {
    let cores = cores.clamp(1, MAX_CORES);
    let copies = limit_bytes / weight_bytes.max(1);
    let fits = |groups: &[SessionGroup]| groups.iter().map(|group| u64::from(group.sessions)).sum::<u64>() <= copies;
    let halved = std::iter::successors(Some(cores), |&threads| (threads > 1).then_some(threads / 2));
    let groups = halved.map(|threads| SessionGroup::fitted(cores / threads, threads));
    let mut groups: Vec<SessionGroup> = groups.collect();
    groups.reverse();
    if fits(&groups) {
        return groups;
    }
    let Some((&widest, narrower)) = groups.split_last() else {
        return groups;
    };
    let mut pairs = narrower.iter().map(|&group| vec![group, widest]);
    pairs.find(|pair| fits(pair)).unwrap_or_else(|| vec![widest])
}

/// Layout of a model whose runs are too short for several threads: as many sessions of one thread as can be in their
/// runs at the same time when all cores are busy. `None` if the run is longer.
pub(crate) fn for_short_runs(cores: u32, alone: Duration) -> Option<SessionGroup> {
    if alone >= SPREAD_FROM {
        return None;
    }
    let share = alone.as_secs_f64() / (alone + OUTSIDE_RUN).as_secs_f64();
    let sessions = (f64::from(cores) * share).ceil() as u32;
    Some(SessionGroup::fitted(sessions.clamp(1, cores.clamp(1, MAX_CORES)), 1))
}

/// Returns the groups worth having, most threads first. `timed` has candidates, fewest threads first, and the time of a
/// run in each. A group of more threads must be faster by a tenth than the previous one.
pub(crate) fn select_groups(timed: &[(SessionGroup, Option<Duration>)]) -> Vec<SessionGroup> {
    let Some(&(first, Some(mut best))) = timed.first() else {
        return unmeasured(&timed.iter().map(|(group, _)| *group).collect::<Vec<_>>());
    };
    let mut selected = vec![first];
    for &(group, run_time) in &timed[1..] {
        if let Some(alone) = run_time.filter(|&alone| alone * 100 <= best * WORTH_PERCENT) {
            selected.push(group);
            best = alone;
        }
    }
    selected.reverse();
    selected
}

/// Layout without measured runs, most threads first: assumes that runs scale well, and keeps only one session over all
/// cores and the group with the most sessions.
pub(crate) fn unmeasured(candidates: &[SessionGroup]) -> Vec<SessionGroup> {
    match candidates {
        [narrowest, .., widest] => vec![*widest, *narrowest],
        groups => groups.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(groups: &[SessionGroup]) -> Vec<(u32, u32)> {
        groups
            .iter()
            .map(|group| (group.sessions, group.threads.intra_op))
            .collect()
    }

    #[test]
    fn candidates_go_from_one_core_each_to_all_cores() {
        let all = |cores| shape(&candidates(cores, 1, u64::MAX));
        assert_eq!(all(1), [(1, 1)]);
        assert_eq!(all(2), [(2, 1), (1, 2)]);
        assert_eq!(all(3), [(3, 1), (1, 3)]);
        assert_eq!(all(6), [(6, 1), (2, 3), (1, 6)]);
        assert_eq!(all(16), [(16, 1), (8, 2), (4, 4), (2, 8), (1, 16)]);
    }

    #[test]
    fn large_weights_are_not_multiplied() {
        let of = |cores, weights| shape(&candidates(cores, weights, 1000));
        assert_eq!(of(16, 32), [(16, 1), (8, 2), (4, 4), (2, 8), (1, 16)]);
        assert_eq!(of(16, 58), [(16, 1), (1, 16)]);
        assert_eq!(of(16, 100), [(8, 2), (1, 16)]);
        assert_eq!(of(16, 333), [(2, 8), (1, 16)]);
        assert_eq!(of(16, 334), [(1, 16)]);
        assert_eq!(of(2, 333), [(2, 1), (1, 2)]);
        assert_eq!(of(2, 5000), [(1, 2)]);
        assert_eq!(of(1, 5000), [(1, 1)]);
        assert_eq!(of(2, 0), [(2, 1), (1, 2)]);
    }

    #[test]
    fn short_runs_get_the_sessions_that_can_be_busy() {
        let of = |cores, us| for_short_runs(cores, Duration::from_micros(us)).map(|group| group.sessions);
        assert_eq!(of(2, 7), Some(1));
        assert_eq!(of(64, 7), Some(8));
        assert_eq!(of(2, 100), Some(2));
        assert_eq!(of(2, 249), Some(2));
        assert_eq!(of(2, 250), None);
        assert_eq!(of(8, 0), Some(1));
    }

    #[test]
    fn more_threads_are_kept_where_they_are_faster() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let chosen = |cores, times: &[Option<Duration>]| {
            let timed = candidates(cores, 1, u64::MAX).into_iter().zip(times.iter().copied());
            shape(&select_groups(&timed.collect::<Vec<_>>()))
        };
        assert_eq!(chosen(2, &[ms(200), ms(110)]), [(1, 2), (2, 1)]);
        assert_eq!(chosen(2, &[ms(200), ms(180)]), [(1, 2), (2, 1)]);
        assert_eq!(chosen(2, &[ms(200), ms(181)]), [(2, 1)]);
        assert_eq!(chosen(2, &[ms(200), ms(300)]), [(2, 1)]);
        assert_eq!(chosen(4, &[ms(100), ms(95), ms(85)]), [(1, 4), (4, 1)]);
        assert_eq!(chosen(4, &[ms(100), ms(60), ms(58)]), [(2, 2), (4, 1)]);
        assert_eq!(chosen(2, &[None, None]), [(1, 2), (2, 1)]);
        assert_eq!(chosen(4, &[ms(100), None, ms(85)]), [(1, 4), (4, 1)]);
        assert_eq!(chosen(4, &[None, ms(60), ms(30)]), [(1, 4), (4, 1)]);
        assert_eq!(chosen(1, &[None]), [(1, 1)]);
    }

    proptest! {
        #[test]
        fn layouts_keep_to_the_cores_and_the_memory(cores in 1_u32..300, weights in 0_u64..2000, limit in 0_u64..100_000) {
            let groups = candidates(cores, weights, limit);
            let sessions: u64 = groups.iter().map(|group| u64::from(group.sessions)).sum();
            prop_assert!(sessions == 1 || sessions * weights <= limit);
            prop_assert!(groups.iter().all(|group| group.sessions * group.threads.intra_op <= cores && group.sessions > 0));
            prop_assert!(groups.windows(2).all(|pair| pair[0].threads.intra_op < pair[1].threads.intra_op));
            prop_assert_eq!(groups.last().unwrap().threads.intra_op, cores.min(MAX_CORES));
        }
    }
}
