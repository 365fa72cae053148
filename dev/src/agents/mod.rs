//! One step by very many agents, simulated, from one agent to ten thousand; and the first limit that it exceeds.

mod network;
mod step;
mod world;

pub(crate) use world::World;

use crate::table::{Cell, Row, Tables, cell, fixed};
use anyhow::Result;
use step::{Took, simulate};
use tierlab_agents::MOST;
use tierlab_agents::clock::ASKED_AT_ONCE;
use tierlab_load::workers::HAND_OVER_LIMIT;

/// Numbers of agents.
const SIZES: [u32; 7] = [1, 4, 16, 64, 256, 1_000, 10_000];
/// Default limit of open files of a process.
const OPEN_FILES: u32 = 1_024;

/// Simulates every number of agents, with as many asked at once as in a real step and with all of them; writes `agents` into a folder.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn run(world: &World) -> Result<()> {
    let few = ASKED_AT_ONCE as u32;
    let as_real = SIZES.map(|agents| (agents, few));
    let many = SIZES.into_iter().filter(|&agents| agents > few);
    let at_once = many.map(|agents| (agents, agents));
    let rows = as_real.into_iter().chain(at_once).map(|(agents, asked_at_once)| {
        let took = simulate(world, agents, asked_at_once)?;
        let mut cells = vec![cell("agents", agents), cell("asked_at_once", asked_at_once)];
        cells.extend(figures(&took));
        cells.push(cell("exceeds", exceeded(world, agents, &took)));
        Ok(Row { holds: true, cells })
    });
    let rows = rows.collect::<Result<Vec<Row>>>()?;
    let about = format!(
        "# A step by very many agents, simulated\n\nMessages, their order and their bytes are the real ones. Simulated, from seed {}: \
         one way takes {} us in the middle and {} us of jitter, the run's one thread {} us for a message and {} ns for a sample, its \
         network carries {} Gbit/s. Each agent sends {} requests a second for {} s.\n",
        world.seed,
        world.way_us,
        world.jitter_us,
        world.handling_us,
        world.sample_ns,
        world.network_gbit,
        world.rate_each,
        world.step_s
    );
    let mut tables = Tables::new(&world.out)?;
    tables.write("agents", &about, &rows)?;
    tables.finish()
}

/// Value at a share of sorted times, in microseconds.
fn at_us(sorted_ns: &[u64], share: f64) -> f64 {
    let last = sorted_ns.len().saturating_sub(1);
    let index = (share * last as f64).round() as usize;
    sorted_ns.get(index).map_or(0.0, |&ns| ns as f64 / 1e3)
}

fn figures(took: &Took) -> Vec<Cell> {
    vec![
        cell("messages_out", took.messages_out),
        cell("messages_in", took.messages_in),
        cell("bytes_out", took.bytes_out),
        cell("bytes_in", took.bytes_in),
        fixed("to_start_s", 6, took.to_start_ns as f64 / 1e9),
        fixed("skew_p50_us", 1, at_us(&took.skew_ns, 0.5)),
        fixed("skew_max_us", 1, at_us(&took.skew_ns, 1.0)),
        fixed("uncertainty_p50_us", 1, at_us(&took.uncertainty_ns, 0.5)),
        fixed("uncertainty_max_us", 1, at_us(&took.uncertainty_ns, 1.0)),
        cell("told_late", took.told_late),
        fixed("handing_over_s", 3, took.handing_over_s),
        cell("memory_bytes", took.memory),
    ]
}

/// Limits that a step exceeds.
fn exceeded(world: &World, agents: u32, took: &Took) -> String {
    let apart_us = at_us(&took.skew_ns, 1.0).max(at_us(&took.uncertainty_ns, 1.0));
    let limits = [
        (
            apart_us > world.start_skew_us,
            format!("starts {apart_us:.0} us apart or uncertain"),
        ),
        (
            took.told_late > 0,
            format!("{} agents told after the start", took.told_late),
        ),
        (agents + 64 > OPEN_FILES, format!("open files above {OPEN_FILES}")),
        (
            took.handing_over_s > HAND_OVER_LIMIT.as_secs_f64(),
            format!("handing over above {} s", HAND_OVER_LIMIT.as_secs()),
        ),
        (agents > MOST, format!("more than {MOST} agents")),
    ];
    let exceeded = limits.into_iter().filter(|(is_exceeded, _)| *is_exceeded);
    exceeded.map(|(_, limit)| limit).collect::<Vec<_>>().join("; ")
}
