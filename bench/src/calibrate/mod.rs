//! `calibrate`: records a tier as a profile that can be replayed elsewhere. In: flags. Out: a profile's file, and its
//! summary on standard output. `tierlab_storage::wrappers::emulated` describes profiles and their replay.

mod describe;
mod measure;

use crate::machine::Environment;
use crate::plan::{Access, bad_usage, parse_positive_seconds, parse_seconds, tier_config};
use crate::prepared_tier::PreparedTier;
use crate::stop::Stop;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::NamedTempFile;
use tierlab_instrument::units::parse_bytes;
use tierlab_storage::TierConfig;
use tierlab_storage::wrappers::emulated::{Recorded, RecordedEnvironment, RecordedOrigin};

/// Maximum number of sizes, and of depths, in a profile.
const MAX_LEVELS: usize = 32;
/// Maximum pause between rounds.
const MAX_PAUSE: Duration = Duration::from_secs(86_400);

/// Flags of `calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateOptions {
    /// Configuration of the tier, a TOML file
    #[arg(long, value_name = "FILE")]
    tier: PathBuf,
    /// Set a key of the tier's configuration, or remove it with KEY=; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// File to write the profile to, ending in `.toml`; must not exist
    #[arg(long, value_name = "PROFILE")]
    out: PathBuf,
    /// Description of the place: region, machine, network in between. Every report of a replay shows it
    #[arg(long, value_name = "TEXT")]
    place: String,
    /// Read sizes in bytes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4KiB,64KiB,1MiB", value_parser = parse_bytes)]
    blocks: Vec<u64>,
    /// Reads in flight
    #[arg(long, value_name = "DEPTHS", value_delimiter = ',', default_value = "1,8,32",
          value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    depths: Vec<u32>,
    /// Measurements of each size at each depth, interleaved
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value = "3", value_parser = parse_positive_seconds)]
    seconds: Duration,
    /// Seconds of reading before each measurement, not counted
    #[arg(long, default_value = "0.25", value_parser = parse_seconds)]
    warmup: Duration,
    /// Time from the start of one round to the next, such as 1h, for a tier that changes over the day
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    every: Duration,
    /// Bytes of the data to read
    #[arg(long, default_value = "256MiB", value_parser = parse_bytes)]
    size: u64,
    /// Folder on the disk to measure with an `nvme` tier, instead of its root
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
}

impl CalibrateOptions {
    /// Checks the flags.
    ///
    /// # Errors
    /// The flag, and its allowed values.
    fn check(&self) -> Result<()> {
        let (blocks, depths) = (self.blocks(), self.depths());
        let levels = format!("at most {MAX_LEVELS} of each");
        let toml = "must end in .toml, so that `emulated.profile` can tell a file from a name";
        let exists = format!("{} exists and is not overwritten: choose another", self.out.display());
        let is_line = (1..=200).contains(&self.place.trim().chars().count()) && !self.place.contains(char::is_control);
        let is_toml = self.out.extension().is_some_and(|ending| ending == "toml");
        let in_data = blocks.iter().all(|block| (1..=self.size).contains(block));
        let has_few_levels = blocks.len().max(depths.len()) <= MAX_LEVELS;
        let checks = [
            (has_few_levels, "--blocks, --depths", levels.as_str()),
            (in_data, "--blocks", "each at least one byte and at most --size"),
            (is_toml, "--out", toml),
            (!self.out.exists(), "--out", &exists),
            (is_line, "--place", "one line of at most 200 characters"),
            (self.every <= MAX_PAUSE, "--every", "at most a day"),
        ];
        let wrong = checks.into_iter().find(|(is_valid, ..)| !is_valid);
        wrong.map_or(Ok(()), |(_, flag, why)| Err(bad_usage(flag, why)))
    }

    /// Distinct read sizes.
    fn blocks(&self) -> BTreeSet<u64> {
        self.blocks.iter().copied().collect()
    }

    /// Distinct numbers of reads in flight.
    fn depths(&self) -> BTreeSet<u32> {
        self.depths.iter().copied().collect()
    }

    fn access(&self) -> Access {
        Access {
            tolerates_faults: true,
            ..Access::reads(self.size, self.seconds, self.warmup)
        }
    }
}

/// Maximum characters of a note in a profile.
const MAX_NOTE_CHARS: usize = 300;
/// Maximum notes in a profile.
const MAX_NOTES: usize = 16;

/// Records a tier.
///
/// # Errors
/// Invalid flags, a tier that does not open, a read that failed permanently, a file that cannot be written.
pub(crate) fn run(options: &CalibrateOptions) -> Result<()> {
    options.check()?;
    let config = tier_config(&options.tier, &options.set)?;
    // Created before the measurement, which may take a day.
    let file = create(&options.out)?;
    let stop = Stop::on_signal()?;
    // A local tier is measured in its own root, unless another folder is given.
    let bare = match &config {
        TierConfig::Wrapped(wrapped) => &wrapped.tier,
        bare => bare,
    };
    let (root, is_direct) = match bare {
        TierConfig::Nvme(nvme) => (nvme.root.as_deref(), nvme.direct),
        _ => (None, false),
    };
    let mut tier = PreparedTier::new("calibrate", &config, options.scratch.as_deref().or(root), 0)?;
    let mut origin = origin(options, &config, &tier);
    let measured = measure::rounds(&mut tier, options, is_direct, &stop);
    // Data is removed from the tier after a failure too.
    let removed = tier.remove();
    let measured = measured?;
    if stop.is_requested() && measured.cells.iter().any(|cell| cell.calls() == 0) {
        bail!("interrupted before every size was read at every depth: no profile was written");
    }
    measured.check()?;
    let disturbed = Some(measured.disturbed.clone()).filter(|text| !text.is_empty());
    // The first note is the tier's address, which may be private.
    let notes = disturbed.into_iter().chain(tier.notes().into_iter().skip(1));
    origin.notes = notes.take(MAX_NOTES).map(|note| printable(&note)).collect();
    let profile = describe::profile(origin, &measured);
    write(&profile, file, &options.out)?;
    print!("{}", describe::text(&profile, &options.out));
    removed?;
    if stop.is_requested() {
        let finished = measured.cells.iter().map(|cell| cell.by_round.len()).min();
        bail!("interrupted: finished rounds: {}", finished.unwrap_or(0));
    }
    Ok(())
}

fn origin(options: &CalibrateOptions, config: &TierConfig, tier: &PreparedTier) -> RecordedOrigin {
    let mount = match config {
        TierConfig::Nfs(nfs) => nfs.path.as_deref(),
        _ => tier.root(),
    };
    let environment = Environment::current(mount);
    let filesystem = environment.filesystems.values().next();
    RecordedOrigin {
        date: environment.date.clone(),
        place: options.place.trim().to_owned(),
        tier: config.kind().to_owned(),
        // Known after the measurement.
        notes: Vec::new(),
        environment: RecordedEnvironment {
            kernel: printable(&environment.host.kernel),
            cpu: printable(&environment.host.cpu),
            cpus: environment.host.cores,
            memory_bytes: environment.host.memory_bytes,
            client: format!("tierlab-storage-bench {}", tierlab_program::version(None)),
            filesystem: filesystem.map_or_else(String::new, |text| printable(text)),
        },
    }
}

/// Removes characters that terminals and pages cannot show safely.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_NOTE_CHARS).collect()
}

/// Creates a file in the folder of a profile.
fn create(out: &Path) -> Result<NamedTempFile> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    let file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")));
    file.with_context(|| format!("cannot write {}", out.display()))
}

/// Writes the profile atomically, to a file that does not exist yet.
fn write(profile: &Recorded, mut file: NamedTempFile, out: &Path) -> Result<()> {
    let text = profile.to_text()?;
    let cannot = || format!("cannot write {}", out.display());
    let head = "# Profile of a tier, recorded by `tierlab-storage-bench calibrate`. Replay it over another tier with\n\
                # `[emulated]` and `profile = \"THIS FILE\"` in that tier's TOML.\n";
    file.write_all(format!("{head}{text}").as_bytes())
        .with_context(cannot)?;
    file.persist_noclobber(out).with_context(cannot).map(drop)
}
