//! Expectations for one prepared request, and the sample whose values are checked. In: expectations and a share. Out:
//! the expectation of the n-th request of a step.

use super::expected::Expected;
use crate::schedule::split_mix;
use std::sync::Arc;

/// Expected replies to one prepared request.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedReply {
    structure: Arc<Expected>,
    valued: Option<Arc<Expected>>,
    /// Sampled share, in units of 2^-64.
    sampled: u64,
    seed: u64,
}

impl WantedReply {
    /// Creates the expectations: always the structure, and known values on a share of the requests chosen by the seed.
    #[must_use]
    pub fn new(structure: Arc<Expected>, valued: Option<(Arc<Expected>, f64)>, seed: u64) -> Self {
        let (valued, share) = valued.map_or((None, 0.0), |(valued, share)| (Some(valued), share));
        Self {
            structure,
            valued,
            // Saturates at both ends.
            sampled: (share * u64::MAX as f64) as u64,
            seed,
        }
    }

    /// True if values are expected.
    pub(crate) const fn has_values(&self) -> bool {
        self.valued.is_some()
    }

    /// Returns the expectation for the step's request number `index`. The values of the first request are always
    /// checked.
    #[must_use]
    pub fn at(&self, index: usize) -> &Arc<Expected> {
        let is_sampled = index == 0 || split_mix(self.seed ^ index as u64) <= self.sampled;
        match &self.valued {
            Some(valued) if is_sampled && self.sampled > 0 => valued,
            _ => &self.structure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_is_looked_at_is_the_share_that_was_asked_for() {
        let structure = Arc::new(Expected::new("m", &[], None));
        let valued = Arc::new(Expected::new("v", &[], None));
        for (share, least, most) in [(0.0, 0, 0), (0.01, 60, 140), (0.5, 4_800, 5_200), (1.0, 10_000, 10_000)] {
            let wanted = WantedReply::new(Arc::clone(&structure), Some((Arc::clone(&valued), share)), 7);
            let looked_at = (0..10_000).filter(|index| **wanted.at(*index) == *valued).count();
            assert!((least..=most).contains(&looked_at), "{share}: {looked_at}");
        }
    }
}
