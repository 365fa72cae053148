//! `doctor`: checks the machine and a tier for causes of slow runs. In: flags, and the system's files below a root,
//! which tests replace. Out: findings, as text or JSON. It changes nothing; measurements write only into a temporary
//! folder.

mod disk;
mod finding;
mod gpu;
mod groups;
mod kernel;
mod measured;
mod network;

use crate::machine::Environment;
use crate::plan::tier_config;
use crate::prepared_tier::runtime;
use crate::stop::Stop;
use anyhow::Result;
use clap::Args;
use finding::{Finding, Tree};
use measured::Ways;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tierlab_formats::mounts::mount_of;
use tierlab_instrument::units::latency;
use tierlab_storage::tiers::nvme::try_ring;
use tierlab_storage::{ErrorKind, TierConfig};

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// Configuration of the tier, a TOML file; without it only the machine is checked
    #[arg(long, value_name = "FILE")]
    tier: Option<PathBuf>,
    /// Set a key of the tier's configuration, or remove it with KEY=; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "tier")]
    set: Vec<String>,
    /// Only check: write and read nothing
    #[arg(long)]
    no_measure: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Version of the JSON.
const SCHEMA: u32 = 1;

/// Content of `--json`.
#[derive(Debug, Serialize)]
struct DoctorReport {
    schema: u32,
    machine: Environment,
    tier: Option<&'static str>,
    /// Findings, the worst first.
    findings: Vec<Finding>,
}

/// Parts of a tier to check in addition to the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Subject {
    /// Local folders and mounts that the tier reads from.
    folders: Vec<PathBuf>,
    /// Bytes of memory that the tier registers with the kernel.
    pinned_bytes: u64,
    /// True if the tier bypasses the page cache; `None` if it cannot choose.
    direct: Option<bool>,
    wants_gpu: bool,
    /// Address of a tier behind a network.
    url: Option<String>,
}

impl Subject {
    fn of(config: &TierConfig) -> Self {
        let mut subject = Self::default();
        match config {
            TierConfig::Wrapped(wrapped) => return Self::of(&wrapped.tier),
            TierConfig::Nvme(nvme) => {
                subject.folders = nvme.root.iter().chain(&nvme.roots).cloned().collect();
                subject.pinned_bytes = nvme.registered_buffers_bytes;
                subject.direct = Some(nvme.direct);
            }
            TierConfig::Nfs(nfs) => {
                subject.folders.extend(nfs.path.clone());
                subject.url.clone_from(&nfs.url);
            }
            TierConfig::Object(bucket) => subject.url = bucket.address(),
            TierConfig::Gds(gds) => {
                subject.folders.push(gds.root.clone());
                subject.wants_gpu = true;
            }
            // Other tiers behind a network have their address under the same key.
            other => {
                let keys = toml::Table::try_from(other).unwrap_or_default();
                subject.url = keys.get("url").and_then(toml::Value::as_str).map(str::to_owned);
            }
        }
        subject
    }
}

/// Runs the checks and prints the findings.
///
/// # Errors
/// Invalid flags or tier configuration. Findings are not errors.
pub(crate) fn run(options: &DoctorOptions) -> Result<()> {
    let file = options.tier.as_deref();
    let config = file.map(|file| tier_config(file, &options.set)).transpose()?;
    let subject = config.as_ref().map(Subject::of).unwrap_or_default();
    let opened = config.as_ref().map(check_open).transpose()?;
    let machine = Environment::current(subject.folders.iter().map(PathBuf::as_path));
    let stop = Stop::on_signal()?;
    let measure = |folder: &Path| (!options.no_measure).then(|| measured::measure_ways(folder, &stop));
    let tree = Tree::at("/");
    let mut findings = check_system(&tree, &subject, &try_ring(), measure);
    if let Some(url) = &subject.url {
        findings.extend(network::findings(&tree, url));
    }
    findings.extend(opened);
    if !options.no_measure && subject.folders.is_empty() {
        findings.extend(config.as_ref().map(|config| measured::measure_tier(config, &stop)));
    }
    findings.sort_by(Finding::order);
    let report = DoctorReport {
        schema: SCHEMA,
        machine,
        tier: config.as_ref().map(TierConfig::kind),
        findings,
    };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", finding::text(&report.machine, report.tier, &report.findings));
    }
    Ok(())
}

/// Checks the system's files, and measures each folder with `measure`.
fn check_system(
    tree: &Tree,
    subject: &Subject,
    ring: &io::Result<()>,
    measure: impl Fn(&Path) -> Option<Result<Ways>>,
) -> Vec<Finding> {
    let mut found = kernel::findings(tree, subject.pinned_bytes, ring);
    let mounts = tree.text("proc/self/mountinfo").unwrap_or_default();
    for folder in &subject.folders {
        // A missing folder is on the file system of its parent.
        let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        let unknown = format!("unknown mount of {}", folder.display());
        let mut own = match mount_of(&mounts, &real) {
            None => vec![Finding::unknown("file system", unknown)],
            Some(mount) if mount.kind.starts_with("nfs") => disk::nfs(tree, &mount),
            Some(mount) => disk::check_folder(tree, &mount),
        };
        match measure(folder) {
            None => {}
            Some(Ok(ways)) => {
                measured::add_reads(&mut own, &ways);
                own.extend(measured::findings(&ways, subject.direct));
            }
            Some(Err(error)) => {
                let why = format!("not measured on {}: {error:#}", folder.display());
                own.push(Finding::unknown("direct and buffered reads", why));
            }
        }
        found.extend(own);
    }
    // Checked after the measurements, because limits affect them.
    found.extend(groups::findings(tree, kernel::online(tree)));
    found.extend(disk::links(tree));
    found.extend(gpu::findings(tree, subject.wants_gpu));
    found
}

/// Checks that the tier opens.
///
/// # Errors
/// A key of the configuration is missing or invalid.
fn check_open(config: &TierConfig) -> Result<Finding> {
    let runtime = runtime(0)?;
    let started = Instant::now();
    let opened = runtime.block_on(tierlab_storage::open(config));
    let took = latency(started.elapsed().as_secs_f64() * 1e6);
    Ok(match opened {
        Ok(tier) => {
            let info = tier.info();
            let notes: String = info.notes.iter().map(|note| format!("; {note}")).collect();
            Finding::fine("the tier opens", format!("{} {}{notes}", info.kind, info.location))
                .measured(format!("in {took}"))
        }
        Err(error) if error.kind() == ErrorKind::Invalid => return Err(error.into()),
        Err(error) => Finding::warning("the tier does not open", error.to_string())
            .effect("the tier cannot be measured")
            .times(f64::INFINITY)
            .change("fix the reported error; docs/reference/server-config.md lists each kind's keys"),
    })
}

#[cfg(test)]
mod tests;
