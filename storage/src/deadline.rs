//! Deadline of the caller. In: an instant and a future. Out: the same future, in which a tier that retries can see the
//! time left. The tier then sends no request without a waiting caller, and does not spend all of the time on one
//! attempt. Knows nothing of requests or tiers; cancels nothing by itself.
//!
//! The deadline belongs to the task; spawned tasks do not inherit it. A cache or stage fetches for several callers on
//! its own task, so the fetch does not end with the deadline of the first caller.

use std::time::{Duration, Instant};
use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static DEADLINE: Instant;
}

/// Runs a future whose result is useless after `deadline`. Of nested deadlines the earlier one counts.
pub fn within<F: Future>(deadline: Instant, future: F) -> TaskLocalFuture<Instant, F> {
    DEADLINE.scope(current().map_or(deadline, |outer| outer.min(deadline)), future)
}

/// Deadline of the calling task, if it has one.
pub fn current() -> Option<Instant> {
    DEADLINE.try_get().ok()
}

/// Remaining time, at most `limit`.
pub fn remaining(limit: Duration) -> Duration {
    current().map_or(limit, |deadline| {
        limit.min(deadline.saturating_duration_since(Instant::now()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_earlier_deadline_counts_and_spawned_tasks_have_none() {
        let (hour, now) = (Duration::from_secs(3600), Instant::now());
        assert_eq!((current(), remaining(hour)), (None, hour));
        within(now + hour, async {
            assert_eq!(current(), Some(now + hour));
            assert!(remaining(hour) <= hour && remaining(hour) > hour / 2);
            assert_eq!(remaining(Duration::from_millis(3)), Duration::from_millis(3));
            within(now + 2 * hour, async { assert_eq!(current(), Some(now + hour)) }).await;
            within(now, async { assert_eq!(remaining(hour), Duration::ZERO) }).await;
            assert_eq!(tokio::spawn(async { current() }).await.unwrap(), None);
        })
        .await;
        assert_eq!(current(), None);
    }
}
