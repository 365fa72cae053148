//! `calibrate`: records a tier as a profile that can be replayed elsewhere. In: flags. Out: a profile's file, and its
//! summary on standard output. `tierlab_storage::wrappers::emulated` describes profiles and their replay.

mod describe;
mod measure;
mod options;
mod print;

pub(crate) use options::CalibrateOptions;

use crate::machine::Environment;
use crate::plan::tier_config;
use crate::station::Station;
use crate::stop::Stop;
use anyhow::{Context, Result, bail};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tierlab_storage::TierConfig;
use tierlab_storage::wrappers::emulated::{Recorded, RecordedEnvironment, RecordedOrigin};

/// Maximum characters of a note in a profile.
const MOST_NOTE: usize = 300;
/// Maximum notes in a profile.
const MOST_NOTES: usize = 16;

/// Records a tier.
///
/// # Errors
/// Invalid flags, a tier that does not open, a read that failed permanently, a file that cannot be written.
pub(crate) fn call(options: &CalibrateOptions) -> Result<()> {
    options.check()?;
    let config = tier_config(&options.tier, &options.set)?;
    let stop = Stop::on_signal()?;
    let mut station = Station::new("calibrate", &config, scratch(options, &config), 0)?;
    let mut origin = origin(options, &config, &station);
    let measured = measure::rounds(&mut station, options, is_direct(&config), &stop);
    // Data is removed from the tier after a failure too.
    let removed = station.remove();
    let measured = measured?;
    removed?;
    if stop.is_asked() && measured.cells.iter().any(|cell| cell.calls() == 0) {
        bail!("interrupted before every size was read at every depth: no profile was written");
    }
    measured.check()?;
    if !measured.disturbed.is_empty() {
        origin.notes.insert(0, plain(&measured.disturbed));
    }
    origin.notes.truncate(MOST_NOTES);
    let profile = describe::profile(origin, &measured);
    write(&profile, &options.out)?;
    print!("{}", print::text(&profile, &options.out));
    if stop.is_asked() {
        bail!("interrupted: the profile covers {} rounds", measured.rounds_at_s.len());
    }
    Ok(())
}

/// Returns the folder in which a local tier is measured: its own root, unless another is given.
fn scratch<'a>(options: &'a CalibrateOptions, config: &'a TierConfig) -> Option<&'a Path> {
    let root = match config {
        TierConfig::Nvme(nvme) => nvme.root.as_deref(),
        _ => None,
    };
    options.scratch.as_deref().or(root)
}

/// True if the tier bypasses the page cache, which is then cleared of the data.
const fn is_direct(config: &TierConfig) -> bool {
    matches!(config, TierConfig::Nvme(nvme) if nvme.direct)
}

fn origin(options: &CalibrateOptions, config: &TierConfig, station: &Station) -> RecordedOrigin {
    let mount = match config {
        TierConfig::Nfs(nfs) => nfs.path.as_deref(),
        _ => station.root(),
    };
    let here = Environment::here(mount);
    let filesystem = here.filesystems.values().next();
    RecordedOrigin {
        date: here.date.clone(),
        place: options.place.trim().to_owned(),
        tier: config.kind().to_owned(),
        // The first note is the tier's address, which may be private.
        notes: station.notes.iter().skip(1).map(|note| plain(note)).collect(),
        environment: RecordedEnvironment {
            kernel: plain(&here.host.kernel),
            cpu: plain(&here.host.cpu),
            cpus: here.host.cores,
            memory_bytes: here.host.memory_bytes,
            client: format!("tierlab-storage-bench {}", tierlab_program::version(None)),
            filesystem: filesystem.map_or_else(String::new, |text| plain(text)),
        },
    }
}

/// Removes characters that terminals and pages cannot show safely.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MOST_NOTE).collect()
}

/// Writes the profile atomically, to a file that does not exist yet.
fn write(profile: &Recorded, out: &Path) -> Result<()> {
    let text = profile.to_text()?;
    let cannot = || format!("cannot write {}", out.display());
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).with_context(cannot)?;
    let head = "# Profile of a tier, recorded by `tierlab-storage-bench calibrate`. Replay it over another tier with\n\
                # `[emulated]` and `profile = \"THIS FILE\"` in that tier's TOML.\n";
    file.write_all(head.as_bytes()).with_context(cannot)?;
    file.write_all(text.as_bytes()).with_context(cannot)?;
    file.persist_noclobber(out).with_context(cannot)?;
    Ok(())
}
