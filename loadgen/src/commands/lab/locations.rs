//! Locations of each tier's data, and the origins that serve them. In: the tiers of a plan. Out: folders, and running origins with
//! their addresses.

use super::context::LabContext;
use crate::children::Child;
use crate::error::RunError;
use crate::plan::{Origin, TierPlan, pairs};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const BUCKET: &str = "tierlab";
/// Credentials of the embedded S3 server, which listens on loopback only.
const S3_ENVIRONMENT: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "tierlab"),
    ("AWS_SECRET_ACCESS_KEY", "tierlab-secret"),
    ("AWS_REGION", "us-east-1"),
];

/// Locations of each tier's data, and the origins that serve them.
#[derive(Debug, Default)]
pub(super) struct Locations {
    pub(super) origin: Option<Child>,
    /// Location of each tier of the plan.
    pub(super) by_tier: BTreeMap<String, Location>,
    /// Folders on this machine whose data are read.
    pub(super) folders: Vec<PathBuf>,
}

/// Location of one tier's data.
#[derive(Debug, Default)]
pub(super) struct Location {
    /// Keys of the tier's config, as `KEY=VALUE`.
    pub(super) set: Vec<String>,
    /// Identity of the location, without ports, which change from run to run.
    pub(super) identity: String,
    /// Folder of its files, if it is on this machine.
    pub(super) folder: Option<PathBuf>,
    /// Credentials of embedded origins.
    pub(super) environment: Vec<(&'static str, &'static str)>,
}

impl Location {
    /// Adds its keys, below `prefix`, and its credentials to a command.
    pub(super) fn add_to(&self, command: &mut Command, prefix: &str) {
        set_keys(command, self.set.iter().map(|pair| format!("{prefix}{pair}")));
        command.envs(self.environment.iter().copied());
    }
}

/// Adds keys of a program's config to its command.
pub(super) fn set_keys(command: &mut Command, pairs: impl IntoIterator<Item = String>) {
    for pair in pairs {
        command.arg("--set").arg(pair);
    }
}

#[derive(Debug, Default, Deserialize)]
struct OriginReady {
    s3: Option<String>,
    nfs: Option<String>,
}

/// Creates the folders and starts the origins.
pub(super) fn open(context: &LabContext<'_>) -> Result<Locations, RunError> {
    let lab = context.lab;
    let folder = |name: &str| -> Result<PathBuf, RunError> {
        let folder = lab.work.join(name);
        fs::create_dir_all(&folder).map_err(RunError::io(&folder))?;
        Ok(folder)
    };
    let logs = folder("logs")?;
    let mut locations = Locations::default();
    let is_embedded = |tier: &TierPlan, name: &str| tier.kind == name && tier.origin == Origin::Embedded;
    let embedded = |name: &str| lab.tiers.iter().any(|tier| is_embedded(tier, name));
    let mut ready = OriginReady::default();
    if let Some(program) = &context.programs.origin {
        let mut command = Command::new(program);
        for (name, root, listen) in [
            ("s3", "--s3-root", "--s3-listen"),
            ("nfs", "--nfs-root", "--nfs-listen"),
        ] {
            if embedded(name) {
                let root_folder = folder(name)?;
                command.arg(root).arg(&root_folder).args([listen, "127.0.0.1:0"]);
                locations.folders.push(root_folder);
            }
        }
        if embedded("s3") {
            command.args(["--bucket", BUCKET]);
        }
        command.arg("--exit-with-parent");
        let log = logs.join("origin.log");
        let child = Child::spawn("tierlab-origin", command, &log)?;
        let (child, reported) = child.ready(lab.ready_timeout, context.interrupt)?;
        locations.origin = Some(child);
        ready = reported;
    }
    for tier in &lab.tiers {
        let location = location(tier, &ready, &folder)?;
        if tier.kind == "nvme" && !tier.set.contains_key("root") {
            locations.folders.push(folder(&tier.name)?);
        }
        locations.by_tier.insert(tier.name.clone(), location);
    }
    Ok(locations)
}

fn location(
    tier: &TierPlan,
    ready: &OriginReady,
    folder: &dyn Fn(&str) -> Result<PathBuf, RunError>,
) -> Result<Location, RunError> {
    let no_address = || RunError::Failed(format!("tierlab-origin reported no address for {}", tier.name));
    let configured_root = tier.set.get("root").and_then(toml::Value::as_str);
    let mut location = Location {
        folder: match (tier.origin, configured_root) {
            (Origin::Embedded, _) => Some(folder(&tier.kind)?),
            (_, Some(root)) => Some(PathBuf::from(root)),
            _ if matches!(tier.kind.as_str(), "nvme" | "gds") => Some(folder(&tier.name)?),
            _ => None,
        },
        ..Location::default()
    };
    let mut ports = Vec::new();
    match (tier.kind.as_str(), tier.origin) {
        ("s3", Origin::Embedded) => {
            location.set = vec![
                format!("bucket={BUCKET}"),
                "region=us-east-1".into(),
                "allow_http=true".into(),
            ];
            location.environment = S3_ENVIRONMENT.to_vec();
            ports.push(format!("endpoint={}", ready.s3.as_ref().ok_or_else(no_address)?));
        }
        ("nfs", Origin::Embedded) => ports.push(format!("url={}", ready.nfs.as_ref().ok_or_else(no_address)?)),
        ("nvme" | "gds", _) if !tier.set.contains_key("root") => {
            location.set.push(format!("root={}", folder(&tier.name)?.display()));
        }
        _ => {}
    }
    location.set.extend(pairs(&tier.set));
    location.identity = format!("{} {}", tier.origin, location.set.join(" "));
    location.set.extend(ports);
    Ok(location)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn tier(name: &str, origin: Origin, set: &str) -> TierPlan {
        TierPlan {
            name: name.into(),
            kind: name.into(),
            origin,
            publish: true,
            set: toml::from_str(set).unwrap(),
        }
    }

    #[test]
    fn ports_are_set_but_not_part_of_a_places_identity() {
        let ready = |port: u16| OriginReady {
            s3: Some(format!("http://127.0.0.1:{port}")),
            nfs: Some(format!("nfs://127.0.0.1:{port}/export")),
        };
        let folder = |name: &str| Ok(Path::new("/work").join(name));
        let s3 = tier("s3", Origin::Embedded, "concurrency=4");
        let one = location(&s3, &ready(1), &folder).unwrap();
        let two = location(&s3, &ready(2), &folder).unwrap();
        assert_eq!(one.identity, two.identity);
        assert!(one.set.contains(&"endpoint=http://127.0.0.1:1".to_owned()));
        assert!(one.set.contains(&"concurrency=4".to_owned()));
        let nfs = tier("nfs", Origin::Embedded, "");
        assert!(location(&nfs, &OriginReady::default(), &folder).is_err());
        let nfs = location(&nfs, &ready(3), &folder).unwrap();
        assert_eq!(nfs.set, ["url=nfs://127.0.0.1:3/export"]);
    }

    #[test]
    fn a_real_tier_is_where_its_plan_says() {
        let ready = OriginReady::default();
        let folder = |name: &str| Ok(Path::new("/work").join(name));
        let own = location(&tier("nvme", Origin::Real, "root=\"/mnt/fast\""), &ready, &folder).unwrap();
        assert_eq!(own.set, ["root=/mnt/fast"]);
        let default = location(&tier("nvme", Origin::Real, ""), &ready, &folder).unwrap();
        assert_eq!(default.set, ["root=/work/nvme"]);
        let s3 = location(&tier("s3", Origin::Real, "bucket=\"b\""), &ready, &folder).unwrap();
        assert!(s3.environment.is_empty());
    }
}
