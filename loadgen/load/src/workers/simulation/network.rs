//! Ways between a run and its agents that were made up. In: a world. Out: how long a message takes.

use super::world::{World, nanos};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1, LogNormal};

/// Half of all agents are within a quarter of the middle.
const QUARTILE: f64 = 1.25;
/// Third quartile of the normal distribution, in standard deviations.
const NORMAL_QUARTILE: f64 = 0.674_489_750_196_081_7;

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To the agent.
    There,
    /// From it.
    Back,
}

/// All ways.
pub(super) struct Network {
    rng: ChaCha8Rng,
    /// One-way delays of each agent, there and back, in nanoseconds; the two may differ.
    ways_ns: Vec<[u64; 2]>,
    jitter_ns: f64,
}

impl Network {
    pub(super) fn new(world: &World) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(world.seed);
        let factor = LogNormal::new(0.0, QUARTILE.ln() / NORMAL_QUARTILE).ok();
        let mut factors = || factor.map_or(1.0, |factor| factor.sample(&mut rng));
        let middle = nanos(world.way) as f64;
        let ways_ns = (0..world.agents)
            .map(|_| {
                let way = middle * factors();
                // A tenth of it is the direction's own.
                [(0.9 * way + 0.1 * middle * factors()) as u64, way as u64]
            })
            .collect();
        Self {
            rng,
            ways_ns,
            jitter_ns: nanos(world.jitter) as f64,
        }
    }

    /// Delay of one message.
    pub(super) fn way(&mut self, agent: u32, way: Way) -> u64 {
        let longer: f64 = Exp1.sample(&mut self.rng);
        let [there, back] = self.ways_ns[agent as usize];
        let ns = if way == Way::There { there } else { back };
        ns + (longer * self.jitter_ns) as u64
    }

    /// The longest way back, without jitter.
    pub(super) fn longest(&self) -> u64 {
        self.ways_ns.iter().map(|[_, back]| *back).max().unwrap_or(0)
    }
}
