//! `doctor`: looks at the machine and a tier for what would slow a run. In: flags, and the system's files below a root that tests
//! make up. Out: findings, as text or JSON. It changes nothing; what it measures it writes into a folder of its own.

mod disk;
mod finding;
mod gpu;
mod groups;
mod kernel;
mod measured;
mod nfs;
mod pcie;
mod print;
mod subject;
mod tree;

use crate::machine::Environment;
use crate::plan::tier_config;
use crate::stop::Stop;
use anyhow::{Context, Result};
use clap::Args;
use finding::Finding;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;
use subject::Subject;
use tierlab_instrument::mounts::holding;
use tierlab_instrument::units::latency;
use tierlab_storage::TierConfig;
use tree::Tree;

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The tier's TOML; without it the machine alone is looked at
    #[arg(long, value_name = "FILE")]
    tier: Option<PathBuf>,
    /// Set a key of the tier's TOML, or take it out with KEY=; may be given several times
    #[arg(long, value_name = "KEY=VALUE", requires = "tier")]
    set: Vec<String>,
    /// Look only: write and read nothing
    #[arg(long)]
    no_measure: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Version of the JSON.
const SCHEMA: u32 = 1;

/// Everything, as `--json` has it.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    machine: Environment,
    tier: Option<&'static str>,
    /// Warnings first.
    findings: Vec<Finding>,
}

/// Looks and prints.
///
/// # Errors
/// Flags or a tier's TOML that make no sense. Whatever is found is no error.
pub(crate) fn call(options: &Options) -> Result<()> {
    let config = options
        .tier
        .as_deref()
        .map(|file| tier_config(file, &options.set))
        .transpose()?;
    let subject = config.as_ref().map(Subject::of).unwrap_or_default();
    let machine = Environment::here(&subject.folders);
    let mut findings = look(&Tree::at("/"), &subject, machine.host.cores as usize);
    if let Some(config) = &config {
        findings.push(opens(config)?);
    }
    if !options.no_measure {
        let stop = Stop::on_signal()?;
        for folder in &subject.folders {
            findings.extend(measure(folder, subject.direct, &stop));
        }
    }
    findings.sort_by_key(|finding| finding.level);
    let report = Report {
        schema: SCHEMA,
        machine,
        tier: config.as_ref().map(TierConfig::kind),
        findings,
    };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", print::text(&report.machine, report.tier, &report.findings));
    }
    Ok(())
}

/// What the system's files say.
fn look(tree: &Tree, subject: &Subject, cores: usize) -> Vec<Finding> {
    let mut found = kernel::findings(tree, cores, subject.pinned_bytes);
    found.extend(groups::findings(tree, cores));
    let mounts = tree.text("proc/self/mountinfo").unwrap_or_default();
    for folder in &subject.folders {
        // One that is not there yet lies where its parent does.
        let place = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        found.extend(match holding(&mounts, &place) {
            None => vec![Finding::unknown(
                "file system",
                format!("no mount is known that holds {}", folder.display()),
            )],
            Some(mount) if mount.kind.starts_with("nfs") => nfs::findings(tree, &mount),
            Some(mount) => disk::below(tree, &mount),
        });
    }
    found.extend(disk::nvme(tree));
    found.extend(gpu::findings(tree, subject.wants_gpu));
    found
}

/// Whether the tier opens at all.
fn opens(config: &TierConfig) -> Result<Finding> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start a runtime")?;
    let begun = Instant::now();
    let opened = runtime.block_on(tierlab_storage::open(config));
    let took = latency(begun.elapsed().as_secs_f64() * 1e6);
    Ok(match opened {
        Ok(tier) => {
            let info = tier.info();
            let notes: String = info.notes.iter().map(|note| format!("; {note}")).collect();
            Finding::fine("the tier opens", format!("{} {}{notes}", info.kind, info.location))
                .measured(format!("in {took}"))
        }
        Err(error) => Finding::warning("the tier does not open", error.to_string())
            .effect("nothing of it can be measured")
            .change("what the error says; docs/how-to/tiers.md has each kind's keys"),
    })
}

fn measure(folder: &Path, direct: Option<bool>, stop: &Stop) -> Vec<Finding> {
    match measured::ways(folder, stop) {
        Ok(ways) => measured::findings(&ways, direct),
        Err(error) => vec![Finding::unknown(
            "direct and buffered reads",
            format!("not measured on {}: {error:#}", folder.display()),
        )],
    }
}

#[cfg(test)]
mod tests;
