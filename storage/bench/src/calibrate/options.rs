//! Flags of `calibrate` to settings that make sense.

use crate::plan::bad_usage;
use anyhow::Result;
use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_instrument::units::parse_bytes;

/// Sizes and depths at most: what a profile can hold.
const MOST_LEVELS: usize = 32;
/// The longest pause from one round to the next.
const LONGEST_PAUSE: Duration = Duration::from_secs(86_400);

/// Of `calibrate`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The tier's TOML
    #[arg(long, value_name = "FILE")]
    pub(crate) tier: PathBuf,
    /// Set a key of the tier's TOML, or take it out with KEY=; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Where the profile goes: a file that ends in `.toml` and is not there yet
    #[arg(long, value_name = "PROFILE")]
    out: PathBuf,
    /// Where this is, in your words: region, machine, network between. Every report of a replay shows it
    #[arg(long, value_name = "TEXT")]
    place: String,
    /// Bytes of a read
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4KiB,64KiB,1MiB", value_parser = parse_bytes)]
    blocks: Vec<u64>,
    /// Reads in flight
    #[arg(long, value_name = "DEPTHS", value_delimiter = ',', default_value = "1,8,32",
          value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    depths: Vec<u32>,
    /// Times that each size is read at each depth, all of them in turn
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Seconds of each time
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds to read before each time, not counted
    #[arg(long, default_value_t = 0.25)]
    warmup: f64,
    /// From the start of one round to that of the next, such as 1h: for a tier that changes over the day
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    every: Duration,
    /// Bytes of the data that is read
    #[arg(long, default_value = "256MiB", value_parser = parse_bytes)]
    size: u64,
    /// A folder on the disk that an `nvme` tier measures, in the place of its root
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
}

/// What is measured, checked.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) out: PathBuf,
    pub(crate) place: String,
    pub(crate) blocks: BTreeSet<u64>,
    pub(crate) depths: BTreeSet<u32>,
    pub(crate) rounds: u32,
    pub(crate) window: Duration,
    pub(crate) warmup: Duration,
    pub(crate) every: Duration,
    pub(crate) size: u64,
}

impl Options {
    /// # Errors
    /// The flag, and what it should be.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let time = |flag: &str, seconds: f64, least: f64| match Duration::try_from_secs_f64(seconds) {
            Ok(time) if (least..=3600.0).contains(&seconds) => Ok(time),
            _ => Err(bad_usage(flag, &format!("from {least} to 3600 seconds, not {seconds}"))),
        };
        let blocks: BTreeSet<u64> = self.blocks.iter().copied().collect();
        let depths: BTreeSet<u32> = self.depths.iter().copied().collect();
        if blocks.len() > MOST_LEVELS || depths.len() > MOST_LEVELS {
            return Err(bad_usage(
                "--blocks, --depths",
                &format!("{MOST_LEVELS} of each at most"),
            ));
        }
        let largest = blocks.last().copied().unwrap_or_default();
        if blocks.contains(&0) || largest > self.size {
            return Err(bad_usage("--blocks", "each at least one byte and at most --size"));
        }
        if self.out.extension().is_none_or(|ending| ending != "toml") {
            return Err(bad_usage(
                "--out",
                "must end in .toml: so `emulated.profile` knows a file from a name",
            ));
        }
        if self.out.exists() {
            let what = format!("{} is there: nothing is written over it", self.out.display());
            return Err(bad_usage("--out", &what));
        }
        if self.place.trim().is_empty() || self.place.chars().count() > 200 || self.place.chars().any(char::is_control)
        {
            return Err(bad_usage("--place", "one line of at most 200 characters"));
        }
        if self.every > LONGEST_PAUSE {
            return Err(bad_usage("--every", "at most a day"));
        }
        Ok(Settings {
            out: self.out.clone(),
            place: self.place.trim().to_owned(),
            blocks,
            depths,
            rounds: self.rounds,
            window: time("--seconds", self.seconds, 0.01)?,
            warmup: time("--warmup", self.warmup, 0.0)?,
            every: self.every,
            size: self.size,
        })
    }
}
