//! One step of very many agents in virtual time. In: a [`World`]. Out: messages, bytes and times of the step, and the skew of its starts.
//!
//! Messages, their order and their bytes are the real ones; the network, the clocks and the time that a message takes are simulated
//! from a seed. The run is one thread, which handles one message after another; its network carries one byte after another.

use super::network::{Network, Way};
use super::world::{World, nanos};
use anyhow::Result;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;
use tierlab_agents::clock::{self, TRIPS, Trip, lead};
use tierlab_agents::message;
use tierlab_analysis::record::{Mode, Outcome, Sample};
use tierlab_load::endpoint::TargetSpec;
use tierlab_load::pacer::Observed;
use tierlab_load::schedule::Load;
use tierlab_load::workers::message::{Done, Reply, SAMPLES_AT_ONCE, StepOrder, ToRun, ToWorker};
use tierlab_protocol::timing::{Stage, StageTimings};

/// Time of day in messages, in nanoseconds: as long as a real one.
const CLOCK_NS: i64 = 1_795_219_080_123_456_789;

/// Cost of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Took {
    /// Messages of the run.
    pub(super) messages_out: u64,
    /// Messages of the agents.
    pub(super) messages_in: u64,
    /// Bytes of the run.
    pub(super) bytes_out: u64,
    /// Bytes of the agents, samples included.
    pub(super) bytes_in: u64,
    /// Time from the order to the start.
    pub(super) to_start_ns: u64,
    /// Offset of each agent's start, sorted.
    pub(super) skew_ns: Vec<u64>,
    /// Uncertainty of each clock, sorted.
    pub(super) uncertainty_ns: Vec<u64>,
    /// Agents that were told to start after the start.
    pub(super) told_late: u32,
    /// Time from the end of the step to its last sample.
    pub(super) handing_over_s: f64,
    /// Memory of the samples in the run, in bytes.
    pub(super) memory: u64,
}

/// Event of the simulation, with its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An agent receives its order.
    Ordered,
    /// The run receives an agent's word that it is ready.
    Ready,
    /// An agent is asked for its time.
    Asked,
    /// The run receives the time that an agent's clock showed.
    Answered(u64),
    /// An agent is told when to start.
    Told,
}

/// Bytes of a message's frame, whose length takes four.
fn length(message: &impl Serialize) -> Result<u64> {
    Ok(4 + message::encode(message)?.len() as u64)
}

/// Bytes of a sample with the server's stages in it, as those of this project's server have.
fn sample_length() -> Result<f64> {
    let mut timings = StageTimings::default();
    for stage in Stage::ALL {
        timings.add(stage, Duration::from_micros(300));
    }
    let samples: Vec<Sample> = (0..SAMPLES_AT_ONCE as u64)
        .map(|number| Sample {
            due_us: 1_000_000 + 100 * number,
            sent_us: 1_000_040 + 100 * number,
            done_us: 1_003_000 + 100 * number,
            outcome: Outcome::Ok,
            timings: Some(timings),
        })
        .collect();
    Ok(length(&Reply::samples(&samples))? as f64 / SAMPLES_AT_ONCE as f64)
}

/// The run's side: one thread and a network, each doing one thing after another, and a heap of events to come.
struct Run<'a> {
    world: &'a World,
    network: Network,
    events: BinaryHeap<Reverse<(u64, u64, u32, Event)>>,
    sequence: u64,
    /// Time at which the thread is free again.
    free_ns: u64,
    /// Time at which the network is free again, outwards.
    sent_ns: u64,
    took: Took,
    trips: Vec<Vec<Trip>>,
}

impl Run<'_> {
    fn arrives(&mut self, at_ns: u64, event: Event, agent: u32) {
        self.sequence += 1;
        self.events.push(Reverse((at_ns, self.sequence, agent, event)));
    }

    /// The thread handles a message that is there at a time; returns when it has.
    fn handle(&mut self, at_ns: u64) -> u64 {
        self.free_ns = self.free_ns.max(at_ns) + nanos(self.world.handling_us);
        self.free_ns
    }

    /// Sends a message to an agent.
    fn send(&mut self, at_ns: u64, message: &ToWorker, event: Event, agent: u32) -> Result<()> {
        let bytes = length(message)?;
        let handled = self.handle(at_ns);
        let on_the_wire = (bytes as f64 / self.world.bandwidth() * 1e9) as u64;
        self.sent_ns = self.sent_ns.max(handled) + on_the_wire;
        self.took.messages_out += 1;
        self.took.bytes_out += bytes;
        let arrives = self.sent_ns + self.network.way(agent, Way::ToAgent);
        self.arrives(arrives, event, agent);
        Ok(())
    }

    /// Sends an agent's answer.
    fn answer(&mut self, at_ns: u64, message: &ToRun, event: Event, agent: u32) -> Result<()> {
        self.took.messages_in += 1;
        self.took.bytes_in += length(message)?;
        let arrives = at_ns + self.network.way(agent, Way::ToRun);
        self.arrives(arrives, event, agent);
        Ok(())
    }

    fn ask(&mut self, at_ns: u64, agent: u32) -> Result<()> {
        // The clock is read before the message is written, as in the real protocol.
        let asked_ns = signed(self.free_ns.max(at_ns));
        self.trips[agent as usize].push(Trip {
            asked_ns,
            there_ns: 0,
            back_ns: 0,
        });
        self.send(at_ns, &ToWorker::Ping, Event::Asked, agent)
    }

    /// Exchanges all messages up to the start; returns the start, and when each agent was told.
    fn start(&mut self, asked_at_once: u32, preparing_ns: u64) -> Result<(u64, Vec<u64>)> {
        let agents = self.trips.len() as u32;
        let (mut ready, mut known) = (0, 0);
        let mut unasked: VecDeque<u32> = (0..agents).collect();
        let mut told_ns = vec![0; agents as usize];
        let mut start_ns = 0;
        while let Some(Reverse((now, _, agent, event))) = self.events.pop() {
            match event {
                Event::Ordered => self.answer(now + preparing_ns, &ToRun::Ready, Event::Ready, agent)?,
                Event::Ready => {
                    let handled = self.handle(now);
                    ready += 1;
                    if ready == agents {
                        for agent in unasked.drain(..asked_at_once.min(agents) as usize) {
                            self.ask(handled, agent)?;
                        }
                    }
                }
                // All clocks show the same here.
                Event::Asked => self.answer(now, &ToRun::Pong(CLOCK_NS), Event::Answered(now), agent)?,
                Event::Answered(there_ns) => {
                    let handled = self.handle(now);
                    let trips = &mut self.trips[agent as usize];
                    if let Some(trip) = trips.last_mut() {
                        (trip.there_ns, trip.back_ns) = (signed(there_ns), signed(handled));
                    }
                    if trips.len() < TRIPS {
                        self.ask(handled, agent)?;
                        continue;
                    }
                    known += 1;
                    if let Some(next) = unasked.pop_front() {
                        self.ask(handled, next)?;
                    }
                    if known == agents {
                        let slowest = self.trips.iter().flatten().map(Trip::took_ns).max().unwrap_or(0);
                        let lead = lead(agents as usize, Duration::from_nanos(slowest));
                        start_ns = handled + lead.as_nanos() as u64;
                        for agent in 0..agents {
                            self.send(handled, &ToWorker::Start(CLOCK_NS), Event::Told, agent)?;
                        }
                    }
                }
                Event::Told => told_ns[agent as usize] = now,
            }
        }
        Ok((start_ns, told_ns))
    }

    /// All agents hand over at once: the network brings one byte after another, the thread reads one sample after another.
    fn hand_over(&mut self, requests: f64) -> Result<()> {
        let done = length(&ToRun::Reply(Reply::Done(Done {
            observed: Observed {
                mean_in_flight: 12.345_678,
                ..Observed::default()
            },
            late_us: 123,
            samples: 12_345,
            ..Done::default()
        })))?;
        let agents = self.trips.len() as u64;
        let bytes = requests * sample_length()? + (agents * done) as f64;
        let frames = agents * 2;
        self.took.messages_in += frames;
        self.took.bytes_in += bytes as u64;
        let carried_s = bytes / self.world.bandwidth();
        let read_s = (self.world.sample_ns * requests + self.world.handling_us * 1e3 * frames as f64) / 1e9;
        // Reading goes on while the network carries.
        self.took.handing_over_s = self.network.longest() as f64 / 1e9 + read_s.max(carried_s);
        self.took.memory = requests as u64 * size_of::<Sample>() as u64;
        Ok(())
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Simulates one step, from its order to its last sample; the same world gives the same step.
///
/// # Errors
/// A message is longer than a frame may be.
pub(super) fn simulate(world: &World, agents: u32, asked_at_once: u32) -> Result<Took> {
    let mut run = Run {
        world,
        network: Network::new(world, agents),
        events: BinaryHeap::new(),
        sequence: 0,
        free_ns: 0,
        sent_ns: 0,
        took: Took::default(),
        trips: vec![Vec::new(); agents as usize],
    };
    let order = StepOrder {
        target: TargetSpec::plain("http://inference.example:8000", None),
        load: Load {
            mode: Mode::Realtime,
            batch_size: 1,
            rate: world.rate_each * f64::from(agents),
        },
        seed: u64::MAX,
        journey: None,
    }
    .message()?;
    for agent in 0..agents {
        run.send(0, &order, Event::Ordered, agent)?;
    }
    let share = world.rate_each * world.step_s;
    let (start_ns, told_ns) = run.start(asked_at_once, nanos(world.preparing_us * share))?;
    run.took.to_start_ns = start_ns;
    for (trips, told_ns) in run.trips.iter().zip(told_ns) {
        let Some(offset) = clock::offset(trips) else { continue };
        // The start on the agent's own clock: off by as much as its offset is wrong.
        let believed_ns = start_ns.saturating_add_signed(offset.ns);
        run.took.told_late += u32::from(told_ns > believed_ns);
        run.took.skew_ns.push(believed_ns.max(told_ns).abs_diff(start_ns));
        run.took.uncertainty_ns.push(offset.uncertainty_ns);
    }
    run.took.skew_ns.sort_unstable();
    run.took.uncertainty_ns.sort_unstable();
    run.hand_over(share * f64::from(agents))?;
    Ok(run.took)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    /// World of the defaults.
    fn world() -> World {
        #[derive(clap::Parser)]
        struct Defaults {
            #[command(flatten)]
            world: World,
        }
        Defaults::parse_from(["x", "--jitter-us", "50"]).world
    }

    #[test]
    fn the_same_world_gives_the_same_step_and_every_message_is_counted() {
        let took = simulate(&world(), 50, 8).unwrap();
        assert_eq!(took, simulate(&world(), 50, 8).unwrap());
        assert_ne!(took, simulate(&World { seed: 8, ..world() }, 50, 8).unwrap());
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
            let took = simulate(&world(), agents, 8).unwrap();
            let (skew, uncertainty) = (took.skew_ns.last().unwrap(), took.uncertainty_ns.last().unwrap());
            assert!(
                took.told_late == 0 && skew <= uncertainty,
                "{agents}: {skew} {uncertainty}"
            );
        }
    }

    #[test]
    fn asking_all_at_once_looks_like_slow_ways() {
        let [few, all] = [8, 1_000].map(|asked_at_once| simulate(&world(), 1_000, asked_at_once).unwrap());
        let worst = |took: &Took| *took.uncertainty_ns.last().unwrap();
        assert!(worst(&all) > 3 * worst(&few), "{} {}", worst(&all), worst(&few));
    }
}
