//! Simulated network between a run and its agents.

use super::world::{World, nanos};
use crate::random::{exponential, normal, rng};
use rand_chacha::ChaCha8Rng;

/// Ratio of the third quartile of delays to the median.
const QUARTILE: f64 = 1.25;
/// Third quartile of the normal distribution, in standard deviations.
const NORMAL_QUARTILE: f64 = 0.674_489_750_196_081_7;

/// Direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    ToAgent,
    ToRun,
}

pub(super) struct Network {
    rng: ChaCha8Rng,
    /// One-way delays of each agent, there and back, in nanoseconds; the two may differ.
    ways_ns: Vec<[u64; 2]>,
    jitter_ns: f64,
}

impl Network {
    pub(super) fn new(world: &World, agents: u32) -> Self {
        let mut rng = rng(world.seed);
        let mut factor = || (QUARTILE.ln() / NORMAL_QUARTILE * normal(&mut rng)).exp();
        let middle = nanos(world.way_us) as f64;
        let ways_ns = (0..agents)
            .map(|_| {
                let way = middle * factor();
                // A tenth of it is the direction's own.
                [(0.9 * way + 0.1 * middle * factor()) as u64, way as u64]
            })
            .collect();
        Self {
            rng,
            ways_ns,
            jitter_ns: nanos(world.jitter_us) as f64,
        }
    }

    /// Draws the delay of one message.
    pub(super) fn way(&mut self, agent: u32, way: Way) -> u64 {
        let longer = exponential(&mut self.rng);
        let [there, back] = self.ways_ns[agent as usize];
        let ns = if way == Way::ToAgent { there } else { back };
        ns + (longer * self.jitter_ns) as u64
    }

    /// Longest way back, without jitter.
    pub(super) fn longest(&self) -> u64 {
        self.ways_ns.iter().map(|[_, back]| *back).max().unwrap_or(0)
    }
}
