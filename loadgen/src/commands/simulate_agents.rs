//! A step by very many agents, simulated. In: what a message costs and how far agents are. Out: a table, from one agent to ten
//! thousand, and what gives way first.

use crate::error::RunError;
use clap::Args;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_load::workers::simulation::{Took, World, simulate};
use tierlab_load::workers::{HAND_OVER_LIMIT, MOST, beginning};

/// How many agents.
const SIZES: [u32; 7] = [1, 4, 16, 64, 256, 1_000, 10_000];
/// Open files that a process may have where nobody has said otherwise.
const OPEN_FILES: u32 = 1_024;

/// What `simulate-agents` is told.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The folder that agents.md and agents.csv go to
    #[arg(long, default_value = "results/agents")]
    pub out: PathBuf,
    /// Requests a second of each agent
    #[arg(long, default_value_t = 1_000.0, value_parser = positive)]
    pub rate_each: f64,
    /// Seconds of the step
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    pub step_s: f64,
    /// Microseconds of one way to the agent in the middle
    #[arg(long, default_value_t = 250.0, value_parser = positive)]
    pub way_us: f64,
    /// Microseconds that a message takes longer than its way, on average
    #[arg(long, default_value_t = 30.0, value_parser = positive)]
    pub jitter_us: f64,
    /// Microseconds of the run's thread to send or read one message
    #[arg(long, default_value_t = 15.0, value_parser = positive)]
    pub handling_us: f64,
    /// Nanoseconds of the run's thread to read one sample
    #[arg(long, default_value_t = 150.0, value_parser = positive)]
    pub sample_ns: f64,
    /// Microseconds of an agent to make a request ready
    #[arg(long, default_value_t = 3.0, value_parser = positive)]
    pub preparing_us: f64,
    /// Gigabits a second of the run's network
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    pub network_gbit: f64,
    /// Microseconds that agents may begin apart: a plan's `limits.start_skew_us`
    #[arg(long, default_value_t = 2_000.0, value_parser = positive)]
    pub start_skew_us: f64,
    /// What all random numbers derive from
    #[arg(long, default_value_t = 20_261_123)]
    pub seed: u64,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number <= 1e9 => Ok(number),
        _ => Err("give a number above 0, at most 1e9".into()),
    }
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    world: World,
    took: Took,
}

impl Options {
    fn world(&self, agents: u32, asked_at_once: u32) -> World {
        let micros = |us: f64| Duration::from_secs_f64(us / 1e6);
        World {
            agents,
            asked_at_once,
            rate: self.rate_each * f64::from(agents),
            step: Duration::from_secs_f64(self.step_s),
            way: micros(self.way_us),
            jitter: micros(self.jitter_us),
            handling: micros(self.handling_us),
            sample_handling: micros(self.sample_ns / 1e3),
            preparing: micros(self.preparing_us),
            bandwidth: self.network_gbit * 1e9 / 8.0,
            seed: self.seed,
        }
    }
}

/// Simulates, and writes `agents.md` and `agents.csv` into a folder.
///
/// # Errors
/// A file cannot be written.
pub fn run(options: &Options) -> Result<(), RunError> {
    let few = beginning::ASKED_AT_ONCE as u32;
    let row = |agents: u32, asked_at_once: u32| -> Result<Row, RunError> {
        let world = options.world(agents, asked_at_once);
        let took = simulate(&world).map_err(|error| RunError::Usage(error.to_string()))?;
        Ok(Row { world, took })
    };
    let mut rows = Vec::new();
    for agents in SIZES {
        rows.push(row(agents, few)?);
    }
    for agents in SIZES.into_iter().filter(|&agents| agents > few) {
        rows.push(row(agents, agents)?);
    }
    let markdown = markdown(&rows, options);
    std::fs::create_dir_all(&options.out).map_err(RunError::io(&options.out))?;
    for (name, text) in [("agents.csv", csv(&rows)), ("agents.md", markdown.clone())] {
        let file = options.out.join(name);
        std::fs::write(&file, text).map_err(RunError::io(&file))?;
    }
    print!("{markdown}");
    eprintln!("the tables are in {}", options.out.display());
    Ok(())
}

fn at(sorted_ns: &[u64], share: f64) -> f64 {
    let last = sorted_ns.len().saturating_sub(1);
    let index = (share * last as f64).round() as usize;
    sorted_ns.get(index).map_or(0.0, |&ns| ns as f64 / 1e3)
}

/// What a step of a row breaks.
fn broken(row: &Row, options: &Options) -> Vec<String> {
    let (world, took) = (&row.world, &row.took);
    let mut broken = Vec::new();
    let apart = at(&took.skew_ns, 1.0).max(at(&took.uncertainty_ns, 1.0));
    if apart > options.start_skew_us {
        broken.push(format!("beginnings: {apart:.0} us apart or uncertain"));
    }
    if took.told_late > 0 {
        broken.push(format!("{} agents told after the start", took.told_late));
    }
    if world.agents + 64 > OPEN_FILES {
        broken.push(format!("open files above {OPEN_FILES}"));
    }
    if took.handing_over > HAND_OVER_LIMIT {
        broken.push(format!("handing over above {} s", HAND_OVER_LIMIT.as_secs()));
    }
    if world.agents > MOST {
        broken.push(format!("more than the {MOST} agents that a run takes"));
    }
    broken
}

fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "agents,asked_at_once,messages_out,messages_in,bytes_out,bytes_in,to_start_s,skew_p50_us,skew_max_us,uncertainty_p50_us,uncertainty_max_us,told_late,handing_over_s,memory_bytes\n",
    );
    for Row { world, took } in rows {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{:.6},{:.1},{:.1},{:.1},{:.1},{},{:.3},{}",
            world.agents,
            world.asked_at_once,
            took.messages_out,
            took.messages_in,
            took.bytes_out,
            took.bytes_in,
            took.to_start.as_secs_f64(),
            at(&took.skew_ns, 0.5),
            at(&took.skew_ns, 1.0),
            at(&took.uncertainty_ns, 0.5),
            at(&took.uncertainty_ns, 1.0),
            took.told_late,
            took.handing_over.as_secs_f64(),
            took.memory
        );
    }
    text
}

fn markdown(rows: &[Row], options: &Options) -> String {
    let mut text = format!(
        "# A step by very many agents, simulated\n\nMessages, their order and their bytes are the real ones. Made up, from seed {}: one way takes {} us \
         in the middle and {} us of jitter, the run's one thread {} us for a message and {} ns for a sample, its network carries {} Gbit/s. \
         Each agent sends {} requests a second for {} s.\n\n\
         | agents | asked at once | messages out, in | MB out, in | to the start | skew p50, max (us) | uncertainty p50, max (us) | handing over | samples in memory | gives way |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
        options.seed,
        options.way_us,
        options.jitter_us,
        options.handling_us,
        options.sample_ns,
        options.network_gbit,
        options.rate_each,
        options.step_s
    );
    for row in rows {
        let Row { world, took } = row;
        let broken = broken(row, options);
        let _ = writeln!(
            text,
            "| {} | {} | {}, {} | {:.2}, {:.1} | {:.2} s | {:.0}, {:.0} | {:.0}, {:.0} | {:.1} s | {:.2} GB | {} |",
            world.agents,
            world.asked_at_once,
            took.messages_out,
            took.messages_in,
            took.bytes_out as f64 / 1e6,
            took.bytes_in as f64 / 1e6,
            took.to_start.as_secs_f64(),
            at(&took.skew_ns, 0.5),
            at(&took.skew_ns, 1.0),
            at(&took.uncertainty_ns, 0.5),
            at(&took.uncertainty_ns, 1.0),
            took.handing_over.as_secs_f64(),
            took.memory as f64 / 1e9,
            if broken.is_empty() {
                "nothing".to_owned()
            } else {
                broken.join("; ")
            }
        );
    }
    text
}
