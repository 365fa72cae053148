//! Check of a closed loop's repeats against the interactive response time law.
//!
//! In: repeats of a closed loop. Out: the terms of the law, and whether they fit. Pure. The law (P. J. Denning and J. P. Buzen,
//! *The operational analysis of queueing network models*, 1978): `users = rate × (response time + pause)`, for any server.

use crate::record::{ClosedLoopFigures, Repeat};

/// Tolerance of the law, as a share, beyond the cycles cut by the window's edges.
const TOLERANCE: f64 = 0.02;

/// Returns the terms of the law over all repeats, weighted by requests; `None` if nothing ended.
#[must_use]
pub fn figures(repeats: &[Repeat]) -> Option<ClosedLoopFigures> {
    let kept = || {
        repeats
            .iter()
            .filter_map(|repeat| Some((repeat.window_s, repeat.driver.closed_loop()?)))
    };
    let seconds: f64 = kept().map(|(window_s, _)| window_s).sum();
    let ended: f64 = kept().map(|(window_s, figures)| figures.ended_rps * window_s).sum();
    let mean = |of: fn(&ClosedLoopFigures) -> f64| {
        let sum: f64 = kept()
            .map(|(window_s, figures)| of(&figures) * figures.ended_rps * window_s)
            .sum();
        sum / ended
    };
    (ended > 0.0 && seconds > 0.0).then(|| ClosedLoopFigures {
        ended_rps: ended / seconds,
        mean_response_us: mean(|figures| figures.mean_response_us),
        mean_pause_us: mean(|figures| figures.mean_pause_us),
        mean_think_us: mean(|figures| figures.mean_think_us),
    })
}

/// Returns the users by the law if they differ from the plan's. At each edge of a window a user's cycle is cut, so the
/// count of cycles may be wrong by the number of users.
#[must_use]
pub fn broken(users: u32, repeats: &[Repeat]) -> Option<f64> {
    let figures = figures(repeats)?;
    let ended: f64 = repeats
        .iter()
        .filter_map(|repeat| Some(repeat.driver.closed_loop()?.ended_rps * repeat.window_s))
        .sum();
    let by_law = figures.users_by_law();
    let users = f64::from(users);
    let edges = users * repeats.len() as f64 / ended;
    ((by_law / users - 1.0).abs() > TOLERANCE + edges).then_some(by_law)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::DriverFigures;
    use proptest::prelude::*;

    fn repeat(users: f64, response_us: f64, pause_us: f64, window_s: f64) -> Repeat {
        let closed_loop = ClosedLoopFigures {
            ended_rps: users * 1e6 / (response_us + pause_us),
            mean_response_us: response_us,
            mean_pause_us: pause_us,
            mean_think_us: 0.0,
        };
        Repeat {
            window_s,
            driver: DriverFigures::ClosedLoop {
                closed_loop,
                goose: None,
            },
            ..Repeat::empty()
        }
    }

    proptest! {
        #[test]
        fn what_obeys_the_law_is_not_broken_and_what_lost_requests_is(
            users in 1_u32..64, response_us in 100.0..50_000.0, pause_us in 0.0..50_000.0,
        ) {
            // Long enough that the edges are at most a percent.
            let window_s = 100.0 * (response_us + pause_us) / 1e6;
            let sound = vec![repeat(f64::from(users), response_us, pause_us, window_s); 3];
            prop_assert_eq!(broken(users, &sound), None);
            let lost = vec![repeat(0.9 * f64::from(users), response_us, pause_us, window_s); 3];
            prop_assert!(broken(users, &lost).is_some());
        }
    }

    #[test]
    fn repeats_count_by_their_requests() {
        let repeats = [repeat(1.0, 1_000.0, 0.0, 1.0), repeat(1.0, 3_000.0, 0.0, 3.0)];
        let figures = figures(&repeats).unwrap();
        // A thousand requests of each.
        assert!((figures.mean_response_us - 2_000.0).abs() < 1e-6 && (figures.ended_rps - 500.0).abs() < 1e-6);
        assert_eq!(super::figures(&[Repeat::empty()]), None);
    }
}
