//! The `init` command: a commented plan of one's own, with the files that it names. In: a kind of plan. Out: files; nothing is measured.

use crate::error::RunError;
use clap::{Args, ValueEnum};
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// Kind of plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A question to several variants: a folder with the plan, the tiers and the prices
    Lab,
    /// Rates of a running server of the Open Inference Protocol
    Sweep,
    /// Rates of any HTTP endpoint
    Endpoint,
}

/// Options of `init`.
#[derive(Debug, Clone, Args)]
pub struct InitOptions {
    /// Kind of plan
    #[arg(value_enum)]
    kind: Kind,
    /// New file, or new folder of a lab [default: sweep.toml, endpoint.toml or my-lab]
    path: Option<PathBuf>,
}

/// Files of `configs/`, by their paths there.
macro_rules! shipped {
    ($($file:literal),* $(,)?) => {
        [$(($file, include_str!(concat!("../../../../configs/", $file)))),*]
    };
}

const FILES: [(&str, &str); 19] = shipped![
    "server.toml",
    "prices.toml",
    "tiers/flight.toml",
    "tiers/gds.toml",
    "tiers/memory.toml",
    "tiers/nfs.toml",
    "tiers/nvme.toml",
    "tiers/redis.toml",
    "tiers/s3.toml",
    "tiers/emulated/efs-elastic.toml",
    "tiers/emulated/efs-max-io.toml",
    "tiers/emulated/efs-nfs.toml",
    "tiers/emulated/efs-one-zone.toml",
    "tiers/emulated/elasticache.toml",
    "tiers/emulated/fsx-lustre-1000.toml",
    "tiers/emulated/fsx-lustre-125.toml",
    "tiers/emulated/gp3.toml",
    "tiers/emulated/s3-express.toml",
    "tiers/emulated/s3-standard.toml",
];
const LAB: &str = include_str!("lab.toml");
const SWEEP: &str = include_str!("sweep.toml");
const ENDPOINT: &str = include_str!("endpoint.toml");
const PLAN: &str = "plan.toml";

/// Writes the plan and prints the next command.
///
/// # Errors
/// A file or folder that is taken, or that cannot be written.
pub fn run(options: &InitOptions) -> Result<(), RunError> {
    let path = |default: &str| options.path.clone().unwrap_or_else(|| default.into());
    let command = match options.kind {
        Kind::Lab => format!("lab {}", lab(&path("my-lab"))?.display()),
        Kind::Sweep => format!(
            "sweep {} --url http://HOST:PORT",
            write_new(&path("sweep.toml"), SWEEP)?.display()
        ),
        Kind::Endpoint => format!("sweep {}", write_new(&path("endpoint.toml"), ENDPOINT)?.display()),
    };
    println!("edit the plan, then run\n  tierlab-loadgen {command}");
    Ok(())
}

/// Writes a text to a new file, in a folder that is created if it does not exist.
fn write_new(file: &Path, text: &str) -> Result<PathBuf, RunError> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(RunError::io(folder))?;
    let mut new = fs::File::create_new(file).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => RunError::Usage(format!("file exists: {}; name a new one", file.display())),
        _ => RunError::io(file)(error),
    })?;
    new.write_all(text.as_bytes()).map_err(RunError::io(file))?;
    Ok(file.to_owned())
}

/// Writes a lab's plan and the files that it names to a folder that is empty or does not exist.
fn lab(folder: &Path) -> Result<PathBuf, RunError> {
    let is_taken = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(RunError::io(folder)(error)),
    };
    if is_taken {
        let problem = format!("folder is not empty: {}; name a new one", folder.display());
        return Err(RunError::Usage(problem));
    }
    for (name, text) in FILES {
        write_new(&folder.join(name), text)?;
    }
    write_new(&folder.join(PLAN), LAB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn a_lab_finds_its_files_in_its_own_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("new/lab");
        let read = Plan::load(&lab(&folder).unwrap()).unwrap();
        let plan = read.lab.clone().unwrap();
        let files = crate::commands::lab::config_files(&read, &plan).unwrap();
        assert!(
            files.len() > 4 && files.iter().all(|file| file.starts_with(&folder)),
            "{files:?}"
        );
        assert_eq!(plan.work, folder.join("data"));
        let again = lab(&folder).unwrap_err().to_string();
        assert!(again.contains("is not empty"), "{again}");
    }

    #[test]
    fn every_plan_is_short_and_valid_in_a_new_folder_and_nothing_is_overwritten() {
        let place = tempfile::tempdir().unwrap();
        for text in [SWEEP, ENDPOINT] {
            let file = place.path().join("new/plan.toml");
            let read = Plan::load(&write_new(&file, text).unwrap()).unwrap();
            let seconds = f64::from(read.repeats) * read.window.as_secs_f64();
            for load in &read.loads {
                assert!(load.rate * seconds > 1_100.0, "no p99 at {}/s", load.rate);
            }
            let again = write_new(&file, text).unwrap_err().to_string();
            assert!(again.contains("file exists"), "{again}");
            fs::remove_dir_all(place.path().join("new")).unwrap();
        }
        for text in [LAB, SWEEP, ENDPOINT] {
            assert!(text.lines().count() <= 40 && text.contains(" # "));
        }
    }

    #[test]
    fn every_shipped_tier_and_profile_is_written() {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
        let listed = |folder: &str| {
            fs::read_dir(configs.join(folder))
                .unwrap()
                .map(|entry| entry.unwrap().path())
        };
        let shipped: Vec<PathBuf> = listed("tiers")
            .chain(listed("tiers/emulated"))
            .filter(|path| path.is_file())
            .collect();
        let written = FILES.iter().filter(|(name, _)| name.starts_with("tiers/"));
        assert_eq!(shipped.len(), written.count(), "{shipped:?}");
    }
}
