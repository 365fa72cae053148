//! A plan of one's own: the shipped lab and the files that it names, in a folder of their own.

use crate::error::RunError;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Files of `configs/`, by their paths there.
macro_rules! shipped {
    ($($file:literal),* $(,)?) => {
        [$(($file, include_str!(concat!("../../../../configs/", $file)))),*]
    };
}

const FILES: [(&str, &str); 18] = shipped![
    "server.toml",
    "prices.toml",
    "sweeps/quick.toml",
    "tiers/flight.toml",
    "tiers/gds.toml",
    "tiers/memory.toml",
    "tiers/nfs.toml",
    "tiers/nvme.toml",
    "tiers/s3.toml",
    "tiers/emulated/efs-elastic.toml",
    "tiers/emulated/efs-max-io.toml",
    "tiers/emulated/efs-nfs.toml",
    "tiers/emulated/efs-one-zone.toml",
    "tiers/emulated/fsx-lustre-1000.toml",
    "tiers/emulated/fsx-lustre-125.toml",
    "tiers/emulated/gp3.toml",
    "tiers/emulated/s3-express.toml",
    "tiers/emulated/s3-standard.toml",
];
const LAB: &str = include_str!("../../../../configs/labs/quick.toml");
const PLAN: &str = "plan.toml";

/// Writes the files into a folder that is empty or does not exist, and prints the next command.
///
/// # Errors
/// A folder that holds something, or that cannot be written.
pub fn write(folder: &Path) -> Result<(), RunError> {
    let is_taken = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(RunError::io(folder)(error)),
    };
    if is_taken {
        return Err(RunError::Usage(format!(
            "folder is not empty: {}; name a new one for `lab --init`",
            folder.display()
        )));
    }
    let plan = plan();
    for (name, text) in FILES.into_iter().chain([(PLAN, plan.as_str())]) {
        let file = folder.join(name);
        let parent = file.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(RunError::io(parent))?;
        fs::write(&file, text).map_err(RunError::io(&file))?;
    }
    let plan = folder.join(PLAN);
    println!(
        "{}: a lab with every key explained; the files that it names are beside it. Edit it, then run\n  tierlab-loadgen lab {}",
        plan.display(),
        plan.display()
    );
    Ok(())
}

/// The shipped lab with its paths relative to the new folder.
fn plan() -> String {
    LAB.replace("configs/labs/quick.toml", PLAN)
        .replace("name = \"quick\"", "name = \"my-lab\"")
        .replace("../../data/labs/quick", "data")
        .replace("../", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use std::path::PathBuf;

    #[test]
    fn the_plan_finds_its_files_in_its_own_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("new/lab");
        write(&folder).unwrap();
        let plan = Plan::load(&folder.join(PLAN)).unwrap();
        let lab = plan.lab.clone().unwrap();
        let files = super::super::config_files(&plan, &lab).unwrap();
        assert!(
            files.len() > 5 && files.iter().all(|file| file.starts_with(&folder)),
            "{files:?}"
        );
        assert_eq!((plan.name.as_str(), lab.work), ("my-lab", folder.join("data")));
        let again = write(&folder).unwrap_err().to_string();
        assert!(again.contains("is not empty"), "{again}");
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
