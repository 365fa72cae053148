//! Waits until no foreign load disturbs the machine.
//!
//! In: the disturbance of the last step; the server's addresses and the plan's limits. Out: the maximum wait before the next step, and
//! true if the machine became quiet in that time. Independent of steps.

use super::disturbance::{MIN_SAMPLES, disturbance};
use super::watch::MachineWatch;
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::Limits;

/// Duration of one check: long enough for CPU time counted in hundredths of a second.
const CHECK_TIME: Duration = Duration::from_millis(1_300);

/// Returns true if foreign load disturbs the machine now, by the limits of steps. Takes 1.3 s. A machine that cannot be watched
/// counts as quiet, as in steps.
pub async fn is_disturbed(servers: Vec<String>, limits: &Limits) -> bool {
    let Some(watch) = MachineWatch::begin(servers, CHECK_TIME) else {
        return false;
    };
    let began = SystemTime::now();
    tokio::time::sleep(CHECK_TIME).await;
    let Some(watched) = watch.end(began, CHECK_TIME) else {
        return false;
    };
    // With fewer samples than due, the watch itself had to wait for a CPU.
    watched.machine.samples < MIN_SAMPLES || disturbance(&watched.machine, limits, watched.server_is_known).is_some()
}

/// Repeats a check until it is false, and returns the time taken; `None` if it stayed true for `longest`.
pub async fn wait<F: Future<Output = bool>>(
    longest: Duration,
    mut is_disturbed: impl FnMut() -> F,
) -> Option<Duration> {
    let began = tokio::time::Instant::now();
    let checks = async {
        while is_disturbed().await {}
        began.elapsed()
    };
    tokio::time::timeout(longest, checks).await.ok()
}

/// Maximum wait before a step of the plan's own loads, in multiples of its length, but at most [`LONGEST`].
const STEPS: u32 = 10;
const LONGEST: Duration = Duration::from_mins(1);

/// State of a run that waits for a quiet machine.
#[derive(Debug, Default)]
pub struct QuietWait {
    /// Disturbance of the last step.
    last_disturbance: Option<String>,
    /// True after a failed wait without a quiet step since: a disturbance that long is not temporary.
    last_wait_failed: bool,
    /// End of a question's budget.
    pub ends: Option<Instant>,
    /// Total waiting time.
    pub waited: Duration,
}

impl QuietWait {
    /// Records the disturbance of a step.
    pub fn record_step(&mut self, disturbed: Option<&str>) {
        self.last_disturbance = disturbed.map(str::to_owned);
        self.last_wait_failed &= self.last_disturbance.is_some();
    }

    /// Returns the maximum wait before the next step, with the disturbance. A question waits for up to half of its remaining budget.
    pub fn max_wait(&self, step: Duration, now: Instant) -> Option<(Duration, &str)> {
        let last_disturbance = self.last_disturbance.as_deref()?;
        let longest = match self.ends {
            Some(ends) => ends.saturating_duration_since(now) / 2,
            None if self.last_wait_failed => return None,
            None => (step * STEPS).min(LONGEST),
        };
        Some((longest, last_disturbance))
    }

    /// Records a wait and its outcome.
    pub fn record_wait(&mut self, long: Duration, is_quiet: bool) {
        self.waited += long;
        self.last_wait_failed = !is_quiet;
        if is_quiet {
            self.last_disturbance = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_disturbance_or_with_its_time() {
        let checks = AtomicU32::new(0);
        let disturbed_until = |last: u32| {
            let checks = &checks;
            move || async move {
                tokio::time::sleep(CHECK_TIME).await;
                checks.fetch_add(1, Ordering::Relaxed) + 1 < last
            }
        };
        let minute = Duration::from_secs(60);
        assert_eq!(wait(minute, disturbed_until(4)).await, Some(CHECK_TIME * 4));
        assert_eq!(checks.swap(0, Ordering::Relaxed), 4);
        assert_eq!(wait(minute, disturbed_until(1_000)).await, None);
        assert!((40..50).contains(&checks.load(Ordering::Relaxed)), "{checks:?}");
    }

    #[tokio::test]
    async fn what_has_no_limit_disturbs_nobody() {
        let limits = Limits {
            foreign_cpu_share: 1.0,
            steal_share: 1.0,
            foreign_disk_bytes_per_s: f64::INFINITY,
            foreign_network_bytes_per_s: f64::INFINITY,
            foreign_io_pressure: 1.0,
            foreign_memory_pressure: 1.0,
            ..Limits::default()
        };
        // Beside other tests the watch may get too few samples, now and then.
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(is_disturbed(vec!["http://192.0.2.1:1".into()], &limits).await);
        }
        assert!(seen.contains(&false), "{seen:?}");
    }

    #[test]
    fn a_disturbed_step_is_followed_by_a_wait_of_its_own_measure() {
        let (now, step) = (Instant::now(), Duration::from_secs(2));
        let mut quiet = QuietWait::default();
        quiet.record_step(None);
        assert_eq!(quiet.max_wait(step, now), None);
        quiet.record_step(Some("a compiler"));
        assert_eq!(quiet.max_wait(step, now), Some((Duration::from_secs(20), "a compiler")));
        assert_eq!(quiet.max_wait(step * 30, now).unwrap().0, LONGEST);
        quiet.record_wait(LONGEST, false);
        quiet.record_step(Some("a compiler"));
        assert_eq!(quiet.max_wait(step, now), None, "it was waited for in vain");
        quiet.record_step(None);
        quiet.record_step(Some("a compiler"));
        assert!(quiet.max_wait(step, now).is_some(), "there was a quiet step since");
    }

    #[test]
    fn a_question_waits_for_half_of_what_is_left_each_time() {
        let (now, step) = (Instant::now(), Duration::from_secs(2));
        let mut quiet = QuietWait {
            ends: Some(now + Duration::from_secs(100)),
            last_wait_failed: true,
            ..QuietWait::default()
        };
        quiet.record_step(Some("a compiler"));
        assert_eq!(quiet.max_wait(step, now).unwrap().0, Duration::from_secs(50));
        let later = now + Duration::from_secs(200);
        assert_eq!(quiet.max_wait(step, later).unwrap().0, Duration::ZERO);
    }
}
