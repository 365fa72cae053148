//! Choice of the sessions that take the next batch, for a model with several groups: few sessions with many threads for
//! lone requests, many sessions with few threads for concurrent requests.
//!
//! In: the number of runs, in progress and queued. Out: the group for the next run: the first, and so the one with the
//! most threads, that has a session for each run. So a request does not wait for a busy group while another group is
//! free, unless all sessions of the last group are busy.

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
    asleep: usize,
    /// Sessions woken that have not taken a job yet. Waking costs a system call, and one is enough.
    called: usize,
}

impl IdleSessions {
    /// Returns true if a session has to be woken for a new job.
    pub(super) fn wake_up(&mut self) -> bool {
        let wake_up = self.asleep > self.called;
        self.called += usize::from(wake_up);
        wake_up
    }

    /// Records that a session starts to wait.
    pub(super) fn sleep(&mut self) {
        self.asleep += 1;
    }

    /// Records that a session has woken, called or not. One call too many is harmless, one too few is not.
    pub(super) fn awake(&mut self) {
        self.asleep -= 1;
        self.called = self.called.saturating_sub(1);
    }

    pub(super) fn any(&self) -> bool {
        self.asleep > 0
    }
}

impl Groups {
    /// Group for the next run if there are `runs` runs.
    pub(super) fn taking(&self, runs: usize) -> usize {
        let enough = self.0.iter().position(|&sessions| sessions >= runs);
        enough.unwrap_or(self.0.len().saturating_sub(1))
    }

    /// True if this is the group used under overload.
    pub(super) fn is_last(&self, group: usize) -> bool {
        group + 1 == self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_group_with_a_session_for_each_run_takes_the_next() {
        let groups = Groups(vec![1, 4, 16]);
        let taken: Vec<usize> = [1, 2, 4, 5, 16, 17, 1000].map(|runs| groups.taking(runs)).into();
        assert_eq!(taken, [0, 1, 1, 2, 2, 2, 2]);
        assert!(groups.is_last(2) && !groups.is_last(0));
        let alike = Groups(vec![3]);
        assert_eq!([1, 3, 9].map(|runs| alike.taking(runs)), [0, 0, 0]);
        assert!(alike.is_last(0));
    }
}
