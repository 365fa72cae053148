//! A step of very many agents, simulated: what the run and they say to each other, in virtual time. In: a [`World`]. Out: what it took,
//! how far from together they began, and what gave way first.
//!
//! Messages, their order and their bytes are the real ones; the network, the clocks and the time that a message costs are made up
//! from a seed. The run is one thread, which handles one message after another; its network carries one byte after another.

mod network;
mod world;

pub use world::World;

use super::beginning::lead;
use super::clock::{self, Trip};
use super::frame::{self, FrameError, Kind};
use super::message::{self, Done, Message, Ping, Pong, Ready, Start, StepOrder};
use super::samples;
use crate::endpoint::TargetSpec;
use crate::load::Load;
use network::{Network, Way};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;
use tierlab_analysis::record::{Mode, Outcome, Sample};
use tierlab_protocol::timing::{Stage, StageTimings};
use world::nanos;

/// Cost of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Took {
    /// Messages of the run.
    pub messages_out: u64,
    /// Messages of the agents.
    pub messages_in: u64,
    /// Bytes of the run.
    pub bytes_out: u64,
    /// Bytes of the agents, samples included.
    pub bytes_in: u64,
    /// From the order to the start.
    pub to_start: Duration,
    /// By how much each agent's beginning was off, sorted; nanoseconds.
    pub skew_ns: Vec<u64>,
    /// Uncertainty of each clock, sorted; nanoseconds.
    pub uncertainty_ns: Vec<u64>,
    /// Agents that were told to start after the start.
    pub told_late: u32,
    /// From the end of the step to its last sample.
    pub handing_over: Duration,
    /// Memory of the samples in the run, in bytes.
    pub memory: u64,
}

/// Event of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An agent has its order.
    Ordered(u32),
    /// The run is reached by an agent's word that it is ready.
    Ready(u32),
    /// An agent is asked for its time.
    Asked(u32),
    /// The run is reached by the time that an agent's clock showed.
    Answered(u32, u64),
    /// An agent is told when to start.
    Told(u32),
}

/// The frame of a message, in bytes.
fn length<M: Message>(message: &M) -> Result<u64, FrameError> {
    Ok(frame::encode(M::KIND, &message::body(message)?)?.len() as u64)
}

/// Lengths of messages and of a sample.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    order: u64,
    ready: u64,
    ping: u64,
    pong: u64,
    start: u64,
    done: u64,
    sample: f64,
}

impl Lengths {
    fn of(world: &World) -> Result<Self, FrameError> {
        let clock_ns = 1_795_219_080_123_456_789;
        let load = Load {
            mode: Mode::Realtime,
            batch_size: 1,
            rate: world.rate,
        };
        let target = TargetSpec::plain("http://inference.example:8000", None);
        Ok(Self {
            order: length(&StepOrder {
                target,
                load,
                seed: u64::MAX,
                journey: None,
            })?,
            ready: length(&Ready {})?,
            ping: length(&Ping {})?,
            pong: length(&Pong { clock_ns })?,
            start: length(&Start { clock_ns })?,
            done: length(&Done {
                limit_hit: false,
                mean_in_flight: 12.345_678,
                late_us: 123,
                samples: 12_345,
                examples: Vec::new(),
                steps: Vec::new(),
            })?,
            sample: sample_length()?,
        })
    }
}

/// A sample with the server's stages in it, as those of this project's server have.
fn sample_length() -> Result<f64, FrameError> {
    const MADE: u64 = 1_000;
    let mut timings = StageTimings::default();
    for stage in Stage::ALL {
        timings.add(stage, Duration::from_micros(300));
    }
    let samples: Vec<Sample> = (0..MADE)
        .map(|number| Sample {
            due_us: 1_000_000 + 100 * number,
            sent_us: 1_000_040 + 100 * number,
            done_us: 1_003_000 + 100 * number,
            outcome: Outcome::Ok,
            timings: Some(timings),
        })
        .collect();
    let mut bytes = 0;
    for body in samples::encode(&samples) {
        bytes += frame::encode(Kind::Samples, &body)?.len();
    }
    Ok(bytes as f64 / MADE as f64)
}

/// The run's side: one thread and a network, each doing one thing after another, and a heap of what is to happen.
struct Run<'a> {
    world: &'a World,
    lengths: Lengths,
    network: Network,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    /// When the thread is free again.
    free_ns: u64,
    /// When the network is, outwards.
    sent_ns: u64,
    took: Took,
    trips: Vec<Vec<Trip>>,
}

impl Run<'_> {
    fn happens(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at_ns, self.sequence, event)));
    }

    /// The thread handles a message that is there at a time; when it has.
    fn handle(&mut self, at_ns: u64) -> u64 {
        self.free_ns = self.free_ns.max(at_ns) + nanos(self.world.handling);
        self.free_ns
    }

    /// Sends a message to an agent.
    fn say(&mut self, at_ns: u64, bytes: u64, event: Event, agent: u32) {
        let handled = self.handle(at_ns);
        let on_the_wire = (bytes as f64 / self.world.bandwidth * 1e9) as u64;
        self.sent_ns = self.sent_ns.max(handled) + on_the_wire;
        self.took.messages_out += 1;
        self.took.bytes_out += bytes;
        let arrives = self.sent_ns + self.network.way(agent, Way::There);
        self.happens(arrives, event);
    }

    /// An agent's answer goes on its way.
    fn answer(&mut self, at_ns: u64, bytes: u64, event: Event, agent: u32) {
        self.took.messages_in += 1;
        self.took.bytes_in += bytes;
        let arrives = at_ns + self.network.way(agent, Way::Back);
        self.happens(arrives, event);
    }

    fn ask(&mut self, at_ns: u64, agent: u32) {
        // As the real one: the clock is read before the message is written.
        let asked_ns = self.free_ns.max(at_ns);
        self.trips[agent as usize].push(Trip {
            asked_ns: signed(asked_ns),
            there_ns: 0,
            back_ns: 0,
        });
        self.say(at_ns, self.lengths.ping, Event::Asked(agent), agent);
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// One step, from its order to its last sample; the same world gives the same step.
///
/// # Errors
/// A message is longer than a frame may be.
pub fn simulate(world: &World) -> Result<Took, FrameError> {
    let agents = world.agents;
    let mut run = Run {
        world,
        lengths: Lengths::of(world)?,
        network: Network::new(world),
        events: BinaryHeap::new(),
        sequence: 0,
        free_ns: 0,
        sent_ns: 0,
        took: Took {
            messages_out: 0,
            messages_in: 0,
            bytes_out: 0,
            bytes_in: 0,
            to_start: Duration::ZERO,
            skew_ns: Vec::new(),
            uncertainty_ns: Vec::new(),
            told_late: 0,
            handing_over: Duration::ZERO,
            memory: 0,
        },
        trips: vec![Vec::new(); agents as usize],
    };
    for agent in 0..agents {
        run.say(0, run.lengths.order, Event::Ordered(agent), agent);
    }
    let requests = world.rate * world.step.as_secs_f64();
    let share = requests / f64::from(agents);
    let preparing = nanos(world.preparing.mul_f64(share));
    let (mut ready, mut known) = (0, 0);
    let mut unasked: VecDeque<u32> = VecDeque::new();
    let mut told: Vec<u64> = vec![0; agents as usize];
    let mut start_ns = 0;
    while let Some(Reverse((now, _, event))) = run.events.pop() {
        match event {
            Event::Ordered(agent) => run.answer(now + preparing, run.lengths.ready, Event::Ready(agent), agent),
            Event::Ready(_) => {
                let handled = run.handle(now);
                ready += 1;
                if ready == agents {
                    unasked.extend(0..agents);
                    for agent in unasked
                        .drain(..(world.asked_at_once.min(agents)) as usize)
                        .collect::<Vec<_>>()
                    {
                        run.ask(handled, agent);
                    }
                }
            }
            // Offsets are taken off again in the end: all clocks show the same here.
            Event::Asked(agent) => run.answer(now, run.lengths.pong, Event::Answered(agent, now), agent),
            Event::Answered(agent, there_ns) => {
                let handled = run.handle(now);
                let trips = &mut run.trips[agent as usize];
                if let Some(trip) = trips.last_mut() {
                    (trip.there_ns, trip.back_ns) = (signed(there_ns), signed(handled));
                }
                if trips.len() < super::beginning::TRIPS {
                    run.ask(handled, agent);
                    continue;
                }
                known += 1;
                if let Some(next) = unasked.pop_front() {
                    run.ask(handled, next);
                }
                if known == agents {
                    let slowest = run.trips.iter().flatten().map(Trip::took_ns).max().unwrap_or(0);
                    start_ns = handled + nanos(lead(agents as usize, Duration::from_nanos(slowest)));
                    for agent in 0..agents {
                        run.say(handled, run.lengths.start, Event::Told(agent), agent);
                    }
                }
            }
            Event::Told(agent) => told[agent as usize] = now,
        }
    }
    run.took.to_start = Duration::from_nanos(start_ns);
    let mut ends_ns = 0;
    for (trips, &told) in run.trips.iter().zip(&told) {
        let Some(offset) = clock::offset(trips) else { continue };
        // What it takes for the start, on its own clock: off by as much as its offset is wrong.
        let believed = start_ns.saturating_add_signed(offset.ns);
        let began = believed.max(told);
        run.took.told_late += u32::from(told > believed);
        run.took.skew_ns.push(began.abs_diff(start_ns));
        run.took.uncertainty_ns.push(offset.uncertainty_ns);
        ends_ns = ends_ns.max(began + nanos(world.step));
    }
    run.took.skew_ns.sort_unstable();
    run.took.uncertainty_ns.sort_unstable();
    hand_over(&mut run, requests, ends_ns);
    Ok(run.took)
}

/// All agents hand over at once: the network brings one byte after another, the thread reads one sample after another.
fn hand_over(run: &mut Run<'_>, requests: f64, ends_ns: u64) {
    let world = run.world;
    let of_samples = requests * run.lengths.sample;
    let of_words = (u64::from(world.agents) * run.lengths.done) as f64;
    let bytes = of_samples + of_words;
    let frames = u64::from(world.agents) * 2;
    run.took.messages_in += frames;
    run.took.bytes_in += bytes as u64;
    let carried = bytes / world.bandwidth;
    let read = world.sample_handling.mul_f64(requests) + world.handling.mul_f64(frames as f64);
    let slowest_way = Duration::from_nanos(run.network.longest());
    // The one goes on beside the other.
    run.took.handing_over = slowest_way + read.max(Duration::from_secs_f64(carried));
    run.took.memory = requests as u64 * size_of::<Sample>() as u64;
    run.free_ns = ends_ns;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(agents: u32) -> World {
        World {
            agents,
            asked_at_once: 8,
            rate: 1_000.0 * f64::from(agents),
            step: Duration::from_secs(10),
            way: Duration::from_micros(250),
            jitter: Duration::from_micros(50),
            handling: Duration::from_micros(15),
            sample_handling: Duration::from_nanos(100),
            preparing: Duration::from_micros(2),
            bandwidth: 1.25e9,
            seed: 7,
        }
    }

    #[test]
    fn the_same_world_gives_the_same_step_and_every_message_is_counted() {
        let took = simulate(&world(50)).unwrap();
        assert_eq!(took, simulate(&world(50)).unwrap());
        assert_ne!(took, simulate(&World { seed: 8, ..world(50) }).unwrap());
        // Order and start, and sixteen questions, to each; ready, sixteen answers, done and samples from each.
        assert_eq!((took.messages_out, took.messages_in), (50 * 18, 50 * 19));
        assert_eq!((took.skew_ns.len(), took.uncertainty_ns.len()), (50, 50));
        // Samples are nearly all of it.
        let samples = 500_000.0 * sample_length().unwrap();
        assert!(took.bytes_in as f64 > samples && (took.bytes_in as f64) < 1.01 * samples);
    }

    #[test]
    fn a_clock_is_never_further_off_than_is_said() {
        for agents in [1, 10, 500] {
            let took = simulate(&world(agents)).unwrap();
            let (skew, uncertainty) = (took.skew_ns.last().unwrap(), took.uncertainty_ns.last().unwrap());
            assert!(
                took.told_late == 0 && skew <= uncertainty,
                "{agents}: {skew} {uncertainty}"
            );
        }
    }

    #[test]
    fn asking_all_at_once_looks_like_slow_ways() {
        let few = simulate(&world(1_000)).unwrap();
        let all = simulate(&World {
            asked_at_once: 1_000,
            ..world(1_000)
        })
        .unwrap();
        let worst = |took: &Took| *took.uncertainty_ns.last().unwrap();
        assert!(worst(&all) > 3 * worst(&few), "{} {}", worst(&all), worst(&few));
    }
}
