//! Origins and servers of a lab. In: tiers and cache states. Out: running processes, each with its address.

use super::Bench;
use super::data::Prepared;
use crate::children::{self, Child};
use crate::control::Control;
use crate::error::RunError;
use crate::plan::{CacheState, LabPlan, Origin, Protocol, TierPlan};
use crate::runner::Target;
use crate::sweep;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tierlab_protocol::metrics;

const BUCKET: &str = "tierlab";
/// What the embedded S3 server accepts; it listens on loopback only.
const S3_ENVIRONMENT: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "tierlab"),
    ("AWS_SECRET_ACCESS_KEY", "tierlab-secret"),
    ("AWS_REGION", "us-east-1"),
];

/// Where each tier's data lie, and the origins that serve them.
#[derive(Debug)]
pub(super) struct Places {
    origin: Option<Child>,
    by_tier: BTreeMap<String, Place>,
    /// Folders on this machine that hold what is read.
    pub(super) folders: Vec<PathBuf>,
}

/// Where one tier's data lie.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Keys of the tier's config, as `KEY=VALUE`.
    pub(super) set: Vec<String>,
    /// What tells the place from others, free of ports that change from run to run.
    pub(super) identity: String,
    /// The folder of its files, where that is on this machine.
    pub(super) folder: Option<PathBuf>,
    /// Credentials of embedded origins.
    pub(super) environment: Vec<(&'static str, &'static str)>,
}

impl Places {
    /// The place of a tier of the plan.
    pub(super) fn of(&self, tier: &str) -> &Place {
        &self.by_tier[tier]
    }
}

#[derive(Debug, Default, Deserialize)]
struct OriginReady {
    #[serde(default)]
    s3: Option<String>,
    #[serde(default)]
    nfs: Option<String>,
    #[serde(default)]
    flight: Option<String>,
}

/// Makes the folders and starts the origins.
pub(super) fn open_places(bench: &Bench<'_>) -> Result<Places, RunError> {
    let lab = bench.lab;
    let folder = |name: &str| -> Result<PathBuf, RunError> {
        let folder = lab.work.join(name);
        fs::create_dir_all(&folder).map_err(RunError::io(&folder))?;
        Ok(folder)
    };
    let logs = folder("logs")?;
    let mut places = Places {
        origin: None,
        by_tier: BTreeMap::new(),
        folders: Vec::new(),
    };
    let embedded = |name: &str| {
        lab.tiers
            .iter()
            .any(|tier| tier.name == name && tier.origin == Origin::Embedded)
    };
    let mut ready = OriginReady::default();
    if let Some(program) = &bench.programs.origin {
        let mut command = Command::new(program);
        for (name, root, listen) in [
            ("s3", "--s3-root", "--s3-listen"),
            ("nfs", "--nfs-root", "--nfs-listen"),
            ("flight", "--flight-root", "--flight-listen"),
        ] {
            if embedded(name) {
                let root_folder = folder(name)?;
                command.arg(root).arg(&root_folder).args([listen, "127.0.0.1:0"]);
                places.folders.push(root_folder);
            }
        }
        if embedded("s3") {
            command.args(["--bucket", BUCKET]);
        }
        command.arg("--exit-with-parent");
        let log = logs.join("origin.log");
        let (child, said) = Child::start("tierlab-origin", command, &log, lab.ready_timeout, bench.interrupt)?;
        places.origin = Some(child);
        ready = said;
    }
    for tier in &lab.tiers {
        let place = place(tier, &ready, &folder)?;
        if tier.name == "nvme" && tier.set.iter().all(|pair| !pair.starts_with("root=")) {
            places.folders.push(folder("nvme")?);
        }
        places.by_tier.insert(tier.name.clone(), place);
    }
    Ok(places)
}

fn place(
    tier: &TierPlan,
    ready: &OriginReady,
    folder: &dyn Fn(&str) -> Result<PathBuf, RunError>,
) -> Result<Place, RunError> {
    let said = |address: &Option<String>| {
        address
            .clone()
            .ok_or_else(|| RunError::Child(format!("tierlab-origin did not say where it serves {}", tier.name)))
    };
    let own_root = tier.set.iter().find_map(|pair| pair.strip_prefix("root="));
    let mut place = Place {
        folder: match (tier.origin, own_root) {
            (Origin::Embedded, _) => Some(folder(&tier.name)?),
            (_, Some(root)) => Some(PathBuf::from(root)),
            _ if matches!(tier.name.as_str(), "nvme" | "gds") => Some(folder(&tier.name)?),
            _ => None,
        },
        ..Place::default()
    };
    let mut ports = Vec::new();
    match (tier.name.as_str(), tier.origin) {
        ("s3", Origin::Embedded) => {
            place.set = vec![
                format!("bucket={BUCKET}"),
                "region=us-east-1".into(),
                "allow_http=true".into(),
            ];
            place.environment = S3_ENVIRONMENT.to_vec();
            ports.push(format!("endpoint={}", said(&ready.s3)?));
        }
        ("nfs", Origin::Embedded) => ports.push(format!("url={}", said(&ready.nfs)?)),
        ("flight", Origin::Embedded) => ports.push(format!("url={}", said(&ready.flight)?)),
        ("nvme" | "gds", _) if tier.set.iter().all(|pair| !pair.starts_with("root=")) => {
            place.set.push(format!("root={}", folder(&tier.name)?.display()));
        }
        _ => {}
    }
    place.set.extend(tier.set.iter().cloned());
    place.identity = format!("{} {}", tier.origin, place.set.join(" "));
    place.set.extend(ports);
    Ok(place)
}

/// One server of the lab.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting<'a> {
    /// Where it reads from.
    pub(super) tier: &'a TierPlan,
    /// Its cache.
    pub(super) cache: &'a CacheState,
}

/// Everything that runs.
#[derive(Debug)]
pub(super) struct Fleet {
    servers: Vec<Child>,
    places: Places,
}

#[derive(Debug, Deserialize)]
struct ServerReady {
    listen: String,
    #[serde(default)]
    grpc_listen: Option<String>,
}

impl Fleet {
    /// The origins; servers are added.
    pub(super) fn new(places: Places) -> Self {
        Self {
            servers: Vec::new(),
            places,
        }
    }

    /// Starts a server of the lab and waits until its models are loaded and warm.
    pub(super) async fn start(
        &mut self,
        bench: &Bench<'_>,
        prepared: &Prepared,
        setting: Setting<'_>,
    ) -> Result<Target, RunError> {
        let server = self.launch(bench, prepared, setting, &setting.cache.name)?;
        let target = server.target(bench, prepared, setting).await?;
        self.servers.push(server.child);
        Ok(target)
    }

    /// Starts a server that ends when it is dropped; `name` tells its log from others of its tier.
    pub(super) fn launch(
        &self,
        bench: &Bench<'_>,
        prepared: &Prepared,
        Setting { tier, cache }: Setting<'_>,
        name: &str,
    ) -> Result<Launched, RunError> {
        let Bench { plan, lab, .. } = bench;
        let place = self.places.of(&tier.name);
        let capacity = capacity(prepared, cache);
        let mut command = Command::new(&bench.programs.server);
        command.arg("--config").arg(&lab.server_config);
        command.args(["--tier", &tier.name, "--listen", "127.0.0.1:0", "--exit-with-parent"]);
        if plan.protocol == Protocol::Grpc {
            command.args(["--grpc-listen", "127.0.0.1:0"]);
        }
        command.arg("--set").arg(format!("models=[\"{}\"]", plan.model));
        command.arg("--set").arg(format!("cache.capacity_bytes={capacity}"));
        // What is fitted when a server starts could differ from one tier's server to the next.
        command.args(["--set", "runtime.instances.cores=1"]);
        for pair in &place.set {
            command.arg("--set").arg(format!("tiers.{}.{pair}", tier.name));
        }
        if lab.cold_start.is_some() {
            command.args(["--set", "repository.control=explicit", "--set", "admin.enabled=true"]);
        }
        for pair in lab.server_set.iter().chain(&cache.set) {
            command.arg("--set").arg(pair);
        }
        command.envs(place.environment.iter().copied());
        let what = format!("tierlab-server for {} {}", tier.name, cache.name);
        let log = lab.work.join("logs").join(format!("{}-{name}.log", tier.name));
        let (child, ready) = Child::start(&what, command, &log, lab.ready_timeout, bench.interrupt)?;
        Ok(Launched {
            what,
            log,
            child,
            ready,
        })
    }

    /// The folder of a tier's files.
    pub(super) fn folder(&self, tier: &TierPlan) -> Result<PathBuf, RunError> {
        self.places.of(&tier.name).folder.clone().ok_or_else(|| {
            RunError::Usage(format!(
                "tier {}: its files are not on this machine, so what is cached of them cannot be dropped",
                tier.name
            ))
        })
    }

    /// Whether everything still runs.
    pub(super) fn check(&mut self) -> Result<(), RunError> {
        self.places
            .origin
            .iter_mut()
            .chain(&mut self.servers)
            .try_for_each(Child::check)
    }

    /// Ends the servers, then the origins.
    pub(super) fn stop(self) {
        children::stop_all(self.servers);
        drop(self.places);
    }
}

/// A server that says that it is ready.
#[derive(Debug)]
pub(super) struct Launched {
    what: String,
    log: PathBuf,
    child: Child,
    ready: ServerReady,
}

impl Launched {
    /// What is measured of it, once it has shown to be what was asked for.
    pub(super) async fn target(
        &self,
        bench: &Bench<'_>,
        prepared: &Prepared,
        Setting { tier, cache }: Setting<'_>,
    ) -> Result<Target, RunError> {
        let plan = bench.plan;
        let Self { what, log, ready, .. } = self;
        let capacity = capacity(prepared, cache);
        let control = Control::new(&format!("http://{}", ready.listen))?;
        let has = control.scrape().await?.sum(metrics::CACHE_CAPACITY_BYTES, &[]) as u64;
        if has != capacity {
            return Err(RunError::Child(format!(
                "{what} has a cache of {has} bytes, not the {capacity} of `lab.cache` `{}` (log: {})",
                cache.name,
                log.display()
            )));
        }
        let model = control.model(&plan.model).await?;
        if prepared.table_bytes > 0 && model.joined.is_none() {
            return Err(RunError::Child(format!(
                "{what} does not join features, though the model's config says so (log: {})",
                log.display()
            )));
        }
        Ok(Target {
            tier: tier.name.clone(),
            cache: cache.name.clone(),
            cache_share: cache.share,
            control,
            grpc: match &ready.grpc_listen {
                Some(address) => Some(format!("http://{address}").parse().map_err(|_| {
                    RunError::Child(format!(
                        "{what} says that it speaks gRPC at `{address}`, which is no address"
                    ))
                })?),
                None => None,
            },
            content: sweep::content(plan, &model),
            others: BTreeMap::new(),
            outputs: BTreeMap::from([(plan.model.clone(), model.outputs)]),
        })
    }
}

fn capacity(prepared: &Prepared, cache: &CacheState) -> u64 {
    (prepared.table_bytes as f64 * cache.share) as u64
}

impl LabPlan {
    /// The config file of a tier: `tiers/NAME.toml` beside the server's config.
    #[must_use]
    pub fn tier_file(&self, tier: &str) -> PathBuf {
        let beside = self.server_config.parent().unwrap_or_else(|| Path::new(""));
        beside.join("tiers").join(format!("{tier}.toml"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(name: &str, origin: Origin, set: &[&str]) -> TierPlan {
        TierPlan {
            name: name.into(),
            origin,
            publish: true,
            set: set.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn ports_are_set_but_not_part_of_a_places_identity() {
        let ready = |port: u16| OriginReady {
            s3: Some(format!("http://127.0.0.1:{port}")),
            flight: Some(format!("grpc://127.0.0.1:{port}")),
            nfs: None,
        };
        let folder = |name: &str| Ok(Path::new("/work").join(name));
        let s3 = tier("s3", Origin::Embedded, &["concurrency=4"]);
        let one = place(&s3, &ready(1), &folder).unwrap();
        let two = place(&s3, &ready(2), &folder).unwrap();
        assert_eq!(one.identity, two.identity);
        assert!(one.set.contains(&"endpoint=http://127.0.0.1:1".to_owned()));
        assert!(one.set.contains(&"concurrency=4".to_owned()));
        assert!(place(&tier("nfs", Origin::Embedded, &[]), &ready(1), &folder).is_err());
        let flight = place(&tier("flight", Origin::Embedded, &[]), &ready(3), &folder).unwrap();
        assert_eq!(flight.set, ["url=grpc://127.0.0.1:3"]);
    }

    #[test]
    fn a_real_tier_is_where_its_plan_says() {
        let ready = OriginReady::default();
        let folder = |name: &str| Ok(Path::new("/work").join(name));
        let own = place(&tier("nvme", Origin::Real, &["root=/mnt/fast"]), &ready, &folder).unwrap();
        assert_eq!(own.set, ["root=/mnt/fast"]);
        let default = place(&tier("nvme", Origin::Real, &[]), &ready, &folder).unwrap();
        assert_eq!(default.set, ["root=/work/nvme"]);
        let s3 = place(&tier("s3", Origin::Real, &["bucket=b"]), &ready, &folder).unwrap();
        assert!(s3.environment.is_empty());
    }
}
