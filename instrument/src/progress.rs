//! Progress of a run on stderr: a bar on a terminal, and the remaining time.
//!
//! In: counts of steps, and times. Out: a bar, and durations. Independent of steps.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Redraws per second: more than the live view's, so that the last figures before a pause are shown.
const MAX_DRAWS_HZ: u8 = 8;

/// Bar over planned steps.
pub const OVER_STEPS: &str = "{msg}\n{wide_bar} {pos}/{len}  {elapsed}";

/// Creates a bar over `steps` steps; `None` without a capable terminal.
pub fn bar(steps: u32) -> Option<ProgressBar> {
    let target = ProgressDrawTarget::stderr_with_hz(MAX_DRAWS_HZ);
    if target.is_hidden() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(Some(u64::from(steps)), target);
    restyle(&bar, OVER_STEPS);
    Some(bar)
}

/// Changes the parts of a bar.
pub fn restyle(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// Returns the mean length of finished steps, or before the first one the expected length; and the number of steps left.
pub fn pace(done: u32, steps: u32, elapsed: Duration, expected_step: Duration) -> (Duration, u32) {
    let step = elapsed.checked_div(done).unwrap_or(expected_step);
    (step, steps.saturating_sub(done))
}

/// Returns the time that `left` steps will take, `in_step` after the start of the first one.
pub fn remaining(step: Duration, left: u32, in_step: Duration) -> Duration {
    step.saturating_mul(left).saturating_sub(in_step.min(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_expected_and_then_measured_and_its_rest_shrinks() {
        let seconds = Duration::from_secs;
        let left = |done, elapsed, in_step| {
            let (step, left) = pace(done, 10, seconds(elapsed), seconds(3));
            remaining(step, left, seconds(in_step))
        };
        assert_eq!(left(0, 0, 0), seconds(30));
        assert_eq!(left(2, 8, 0), seconds(32));
        assert_eq!(left(2, 8, 3), seconds(29));
        // A step that takes longer than the others does not eat up their time.
        assert_eq!(left(2, 8, 60), seconds(28));
        assert_eq!(left(10, 40, 0), seconds(0));
    }
}
