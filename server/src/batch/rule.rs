//! Rule that closes a batch: a pure function of the queue's state.
//!
//! In: the model's limits and a view of the queue, taken by a free session. Out: close now, or how long to wait for
//! more requests. A session that was idle when the oldest request arrived never waits, so at low load there is no
//! artificial delay. A session that returns from a run and finds a batch that is not full waits only while more
//! requests are known to be in the feature stage. It waits at most the model's `max_delay_us`, and at most a quarter of
//! a run's time: waiting must cost less than it can save. Preferred numbers of rows end the wait, and a batch takes at
//! most the largest of them.
//!
//! Also the choice of the sessions that take the next batch, for a model with several groups: few sessions with many
//! threads for lone requests, many sessions with few threads for concurrent requests.

use std::time::Duration;

/// Divisor of a run's time that gives the maximum wait for more requests.
const RUN_SHARE: u32 = 4;

/// A model's limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Maximum rows of a run.
    pub(crate) max_rows: usize,
    /// Numbers of rows that close a batch at once, ascending, each at most `max_rows`; empty means only `max_rows`.
    pub(crate) preferred_rows: Vec<usize>,
    /// Maximum wait for more requests.
    pub(crate) max_delay: Duration,
}

/// State seen by a free session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// Queued rows; at least one.
    pub(crate) rows: usize,
    /// Time since the oldest request was queued.
    pub(crate) oldest_age: Duration,
    /// True if the session was already waiting when the oldest request arrived.
    pub(crate) session_was_idle: bool,
    /// Requests of this model in the feature stage.
    pub(crate) upcoming: usize,
    /// Duration of the session's last run.
    pub(crate) last_run: Duration,
}

/// Next action of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Run the queued requests, up to this many rows; a single request may have more, up to the rule's `max_rows`.
    Close(usize),
    /// Check again after this time, or when a request arrives.
    Wait(Duration),
}

impl Rule {
    /// Maximum rows of a run, except for a single request with more.
    pub(crate) fn largest(&self) -> usize {
        self.preferred_rows.last().copied().unwrap_or(self.max_rows)
    }

    /// Decides for a queue that is not empty.
    pub(crate) fn decide(&self, view: &View) -> Decision {
        let largest = self.largest();
        let met = view.rows >= largest || self.preferred_rows.binary_search(&view.rows).is_ok();
        if met || view.session_was_idle || view.upcoming == 0 {
            return Decision::Close(largest);
        }
        let limit = self.max_delay.min(view.last_run / RUN_SHARE);
        match limit.checked_sub(view.oldest_age) {
            Some(left) if left > Duration::ZERO => Decision::Wait(left),
            _ => Decision::Close(largest),
        }
    }
}

/// Number of sessions in each group of a model, fewest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Groups(pub(crate) Vec<usize>);

/// Group of a session, and the state of its run.
#[derive(Debug, Default)]
pub(crate) struct SessionSlot {
    /// Index of the group.
    pub(crate) group: usize,
    pub(crate) running: bool,
}

/// Sessions of a group that wait for a job.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IdleSessions {
    pub(super) asleep: usize,
    /// Sessions woken that have not taken a job yet. Waking costs a system call, and one is enough.
    woken: usize,
}

impl IdleSessions {
    /// Returns true if a session has to be woken for a new job.
    pub(super) fn needs_wake_up(&mut self) -> bool {
        let wake_up = self.asleep > self.woken;
        self.woken += usize::from(wake_up);
        wake_up
    }

    /// Records that a session has woken, called or not. One call too many is harmless, one too few is not.
    pub(super) fn record_awake(&mut self) {
        self.asleep -= 1;
        self.woken = self.woken.saturating_sub(1);
    }
}

impl Groups {
    /// Group for the next run if there are `runs` runs, in progress and queued: the first, and so the one with the most
    /// threads, that has a session for each. So a request does not wait for a busy group while another is free.
    pub(super) fn group_for(&self, runs: usize) -> usize {
        let sufficient = self.0.iter().position(|&sessions| sessions >= runs);
        sufficient.unwrap_or(self.0.len().saturating_sub(1))
    }

    /// True if this is the group used under overload.
    pub(super) fn is_last(&self, group: usize) -> bool {
        group + 1 == self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule() -> Rule {
        Rule {
            max_rows: 256,
            preferred_rows: vec![8, 32],
            max_delay: Duration::from_micros(500),
        }
    }
    /// A session back from a long run, with company on its way.
    const BUSY: View = View {
        rows: 3,
        oldest_age: Duration::from_micros(100),
        session_was_idle: false,
        upcoming: 2,
        last_run: Duration::from_millis(20),
    };

    #[test]
    fn a_busy_session_waits_for_company_that_is_on_its_way() {
        assert_eq!(rule().decide(&BUSY), Decision::Wait(Duration::from_micros(400)));
    }

    #[test]
    fn an_idle_session_takes_the_first_request_at_once() {
        assert_eq!(
            rule().decide(&View {
                session_was_idle: true,
                ..BUSY
            }),
            Decision::Close(32)
        );
    }

    #[test]
    fn preferred_rows_close_a_batch_and_bound_it() {
        assert_eq!(rule().decide(&View { rows: 8, ..BUSY }), Decision::Close(32));
        assert!(matches!(rule().decide(&View { rows: 9, ..BUSY }), Decision::Wait(_)));
        assert_eq!(rule().decide(&View { rows: 99, ..BUSY }), Decision::Close(32));
        let none = Rule {
            preferred_rows: Vec::new(),
            ..rule()
        };
        assert!(matches!(none.decide(&View { rows: 255, ..BUSY }), Decision::Wait(_)));
        assert_eq!(none.decide(&View { rows: 256, ..BUSY }), Decision::Close(256));
        assert_eq!(rule().decide(&View { rows: 32, ..BUSY }), Decision::Close(32));
        assert!(matches!(rule().decide(&View { rows: 31, ..BUSY }), Decision::Wait(_)));
    }

    #[test]
    fn nobody_waits_for_nobody() {
        assert_eq!(rule().decide(&View { upcoming: 0, ..BUSY }), Decision::Close(32));
    }

    #[test]
    fn the_oldest_request_waits_no_longer_than_the_limit() {
        assert_eq!(
            rule().decide(&View {
                oldest_age: Duration::from_micros(500),
                ..BUSY
            }),
            Decision::Close(32)
        );
        assert_eq!(
            Rule {
                max_delay: Duration::ZERO,
                ..rule()
            }
            .decide(&BUSY),
            Decision::Close(32)
        );
    }

    #[test]
    fn a_short_run_is_not_worth_a_long_wait() {
        let short = View {
            last_run: Duration::from_micros(40),
            oldest_age: Duration::ZERO,
            ..BUSY
        };
        assert_eq!(rule().decide(&short), Decision::Wait(Duration::from_micros(10)));
    }

    proptest! {
        #[test]
        fn waits_are_bounded_whatever_is_queued(
            rows in 1_usize..600, age in 0_u64..2_000, idle: bool, upcoming in 0_usize..9, run in 0_u64..100_000,
        ) {
            let view = View {
                rows,
                oldest_age: Duration::from_micros(age),
                session_was_idle: idle,
                upcoming,
                last_run: Duration::from_micros(run),
            };
            if let Decision::Wait(wait) = rule().decide(&view) {
                prop_assert!(wait > Duration::ZERO);
                prop_assert!(view.oldest_age + wait <= rule().max_delay);
                prop_assert!(wait <= view.last_run);
            }
        }
    }

    #[test]
    fn the_widest_group_with_a_session_for_each_run_takes_the_next() {
        let groups = Groups(vec![1, 4, 16]);
        let groups_taken: Vec<usize> = [1, 2, 4, 5, 16, 17, 1000].map(|runs| groups.group_for(runs)).into();
        assert_eq!(groups_taken, [0, 1, 1, 2, 2, 2, 2]);
        assert!(groups.is_last(2) && !groups.is_last(0));
        let one_group = Groups(vec![3]);
        assert_eq!([1, 3, 9].map(|runs| one_group.group_for(runs)), [0, 0, 0]);
        assert!(one_group.is_last(0));
    }
}
