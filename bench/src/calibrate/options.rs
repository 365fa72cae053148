//! Flags of `calibrate`.

use crate::plan::{Access, bad_usage, parse_positive_seconds, parse_seconds};
use anyhow::Result;
use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_instrument::units::parse_bytes;

/// Maximum number of sizes, and of depths, in a profile.
const MOST_LEVELS: usize = 32;
/// Maximum pause between rounds.
const LONGEST_PAUSE: Duration = Duration::from_secs(86_400);

/// Flags of `calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateOptions {
    /// Configuration of the tier, a TOML file
    #[arg(long, value_name = "FILE")]
    pub(crate) tier: PathBuf,
    /// Set a key of the tier's configuration, or remove it with KEY=; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// File to write the profile to, ending in `.toml`; must not exist
    #[arg(long, value_name = "PROFILE")]
    pub(super) out: PathBuf,
    /// Description of the place: region, machine, network in between. Every report of a replay shows it
    #[arg(long, value_name = "TEXT")]
    pub(super) place: String,
    /// Read sizes in bytes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4KiB,64KiB,1MiB", value_parser = parse_bytes)]
    blocks: Vec<u64>,
    /// Reads in flight
    #[arg(long, value_name = "DEPTHS", value_delimiter = ',', default_value = "1,8,32",
          value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    depths: Vec<u32>,
    /// Measurements of each size at each depth, interleaved
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value = "3", value_parser = parse_positive_seconds)]
    seconds: Duration,
    /// Seconds of reading before each measurement, not counted
    #[arg(long, default_value = "0.25", value_parser = parse_seconds)]
    warmup: Duration,
    /// Time from the start of one round to the next, such as 1h, for a tier that changes over the day
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    pub(super) every: Duration,
    /// Bytes of the data to read
    #[arg(long, default_value = "256MiB", value_parser = parse_bytes)]
    size: u64,
    /// Folder on the disk to measure with an `nvme` tier, instead of its root
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
}

impl CalibrateOptions {
    /// Checks the flags.
    ///
    /// # Errors
    /// The flag, and its allowed values.
    pub(super) fn check(&self) -> Result<()> {
        let (blocks, depths) = (self.blocks(), self.depths());
        let exists = format!("{} exists and is not overwritten: choose another", self.out.display());
        let is_line = (1..=200).contains(&self.place.trim().chars().count()) && !self.place.contains(char::is_control);
        let is_toml = self.out.extension().is_some_and(|ending| ending == "toml");
        let in_data = !blocks.contains(&0) && blocks.iter().all(|block| *block <= self.size);
        let (levels, toml) = (
            format!("at most {MOST_LEVELS} of each"),
            "must end in .toml, so that `emulated.profile` can tell a file from a name",
        );
        let checks = [
            (
                blocks.len().max(depths.len()) <= MOST_LEVELS,
                "--blocks, --depths",
                levels.as_str(),
            ),
            (in_data, "--blocks", "each at least one byte and at most --size"),
            (is_toml, "--out", toml),
            (!self.out.exists(), "--out", &exists),
            (is_line, "--place", "one line of at most 200 characters"),
            (self.every <= LONGEST_PAUSE, "--every", "at most a day"),
        ];
        match checks.into_iter().find(|(is_right, ..)| !is_right) {
            Some((_, flag, why)) => Err(bad_usage(flag, why)),
            None => Ok(()),
        }
    }

    /// Distinct read sizes.
    pub(super) fn blocks(&self) -> BTreeSet<u64> {
        self.blocks.iter().copied().collect()
    }

    /// Distinct numbers of reads in flight.
    pub(super) fn depths(&self) -> BTreeSet<u32> {
        self.depths.iter().copied().collect()
    }

    pub(super) fn access(&self) -> Access {
        Access {
            tolerates_faults: true,
            ..Access::reads(self.size, self.seconds, self.warmup)
        }
    }
}
