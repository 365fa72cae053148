//! Servers of a lab. In: variants. Out: running processes, each with its address, and targets that have answered correctly, with their
//! stages and caches prepared.

use super::context::{LabContext, Purpose, Replica};
use super::locations::{Locations, set_keys};
use super::stage;
use crate::children::{self, Child};
use crate::commands::options;
use crate::environment;
use crate::error::RunError;
use crate::plan::{CacheState, LabPlan, Origin, Plan, TargetPlan, TierPlan, VariantPlan, pairs};
use crate::runner::check_reply::check_reply;
use crate::runner::target::{Content, Target};
use crate::server::control::Control;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tierlab_analysis::record::{Environment, StageState, Variant};
use tierlab_protocol::metrics;

/// Servers of all variants.
pub(super) struct Targets {
    /// Processes that the lab has started.
    pub(super) servers: Servers,
    /// One target a variant.
    pub(super) by_variant: Vec<Target>,
    /// Servers of all fleets, one by one.
    pub(super) single_servers: Vec<Target>,
    /// Named variants as the result has them.
    pub(super) variants: Vec<Variant>,
}

impl Targets {
    /// Starts or contacts the server of each variant.
    pub(super) async fn open(
        context: &LabContext<'_>,
        locations: Locations,
        environment: &mut Environment,
    ) -> Result<Self, RunError> {
        let servers = Vec::new();
        let mut targets = Self {
            servers: Servers { servers, locations },
            by_variant: Vec::new(),
            single_servers: Vec::new(),
            variants: Vec::new(),
        };
        for variant in &context.lab.variants {
            match &variant.target {
                Some(server) => targets.contact(context.plan, variant, server, environment).await?,
                None => targets.start(context, variant, environment).await?,
            }
        }
        Ok(targets)
    }

    /// Contacts an existing server, which is neither changed nor ended.
    async fn contact(
        &mut self,
        plan: &Plan,
        variant: &VariantPlan,
        server: &TargetPlan,
        environment: &mut Environment,
    ) -> Result<(), RunError> {
        eprintln!("contacting the existing {} server", variant.label());
        let (found, scrape, _) = options::open(plan, server).await?;
        let target = Target {
            variant: variant.name.clone(),
            tier: variant.tier.name.clone(),
            cache: "as-is".into(),
            cache_share: 0.0,
            ..found
        };
        options::print_notes(&check_reply(plan, &target, &plan.model).await?);
        let origin = format!("real; served at {}", target.control.base);
        environment::add_server(environment, variant.label(), &origin, &scrape);
        self.variants.push(variant_record(variant, None));
        self.by_variant.push(target);
        Ok(())
    }

    /// Starts the servers of a variant and prepares their stages and caches.
    async fn start(
        &mut self,
        context: &LabContext<'_>,
        variant: &VariantPlan,
        environment: &mut Environment,
    ) -> Result<(), RunError> {
        let plan = context.plan;
        let noun = match variant.servers {
            1 => "server".to_owned(),
            servers => format!("{servers} servers"),
        };
        eprintln!("starting the {} {noun}, {} cache", variant.label(), variant.cache.name);
        stage::empty(context, variant, Purpose::Loads)?;
        let mut staged = None;
        let servers = self.servers.start(context, variant).await?;
        for target in &servers {
            options::print_notes(&check_reply(plan, target, &plan.model).await?);
            staged = stage::prepare(context, variant, target).await?;
            if variant.cache.prefill {
                stage::fill_cache(plan, target, context.interrupt).await?;
            }
        }
        self.single_servers.extend(servers.iter().cloned());
        let Some(target) = Target::fleet(servers) else {
            return Ok(());
        };
        let scrape = target.control.scrape().await?;
        let origin = match variant.tier.origin {
            // Its reads are neither direct nor cold: the data were written just before.
            Origin::Embedded => "embedded; origin reads through the page cache".into(),
            other => other.to_string(),
        };
        environment::add_server(environment, variant.label(), &origin, &scrape);
        if !variant.name.is_empty() {
            self.variants.push(variant_record(variant, staged));
        }
        self.by_variant.push(target);
        Ok(())
    }
}

/// Variant in the form of the result.
fn variant_record(variant: &VariantPlan, staged: Option<StageState>) -> Variant {
    Variant {
        name: variant.name.clone(),
        tier: variant.tier.kind.clone(),
        origin: match &variant.emulated {
            _ if variant.target.is_some() => "real, an existing server".to_owned(),
            Some(profile) => format!("emulated, {}, over {}", profile_name(profile), variant.tier.origin),
            None => variant.tier.origin.to_string(),
        },
        emulated: variant.emulated.as_deref().map(profile_name),
        staged,
        layout: variant.laid_out().map(str::to_owned),
        cache: variant.cache.name.clone(),
        cache_share: variant.cache.share,
        price: variant.price.clone(),
        instance: variant.instance.clone(),
        servers: variant.servers,
        set: pairs(&variant.set),
    }
}

/// Returns a profile as results name it: for a file, its name; the tier's notes describe its origin.
fn profile_name(profile: &str) -> String {
    let file = Path::new(profile).file_name();
    file.map_or_else(|| profile.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Running servers and origins.
#[derive(Debug)]
pub(super) struct Servers {
    servers: Vec<Child>,
    locations: Locations,
}

#[derive(Debug, Deserialize)]
struct ServerReady {
    listen: String,
    grpc_listen: Option<String>,
}

impl Servers {
    /// Starts the servers of a variant, one after another, and waits until their models are loaded and warm.
    pub(super) async fn start(
        &mut self,
        context: &LabContext<'_>,
        variant: &VariantPlan,
    ) -> Result<Vec<Target>, RunError> {
        let service = shared_service(context.lab, variant);
        stage::ignore_missing(std::fs::remove_file(&service)).map_err(RunError::io(&service))?;
        let mut targets = Vec::new();
        for number in 0..variant.servers {
            let replica = Replica::new(variant, number, Purpose::Loads);
            let server = self.launch(context, &replica).await?;
            targets.push(server.target(context, variant).await?);
            self.servers.push(server.child);
        }
        Ok(targets)
    }

    /// Starts a server that ends when it is dropped, and waits until it is ready.
    pub(super) async fn launch(&self, context: &LabContext<'_>, replica: &Replica<'_>) -> Result<Launched, RunError> {
        let LabContext { plan, lab, .. } = context;
        let variant = replica.variant;
        let VariantPlan { tier, cache, .. } = variant;
        let mut command = Command::new(&context.programs.server);
        // The log filter of the other programs, which is no key of the server.
        command.env_remove("TIERLAB_LOG");
        command.arg("--config").arg(&lab.server_config);
        command.args(["--tier", &tier.name, "--listen", "127.0.0.1:0", "--exit-with-parent"]);
        if plan.speaks_grpc() {
            command.args(["--grpc-listen", "127.0.0.1:0"]);
        }
        let mut keys = vec![
            format!("models=[\"{}\"]", plan.model),
            format!("cache.capacity_bytes={}", capacity(context, cache)),
            // Sessions fitted at a server's start could differ between the tiers' servers.
            "runtime.instances.cores=1".to_owned(),
        ];
        keys.extend(variant.laid_out().map(|layout| format!("features.layout={layout}")));
        let wrappers = tier_wrappers(context, replica)?;
        keys.extend(wrappers.into_iter().map(|pair| format!("tiers.{}.{pair}", tier.name)));
        if !variant.name.is_empty() {
            keys.push(format!("telemetry.variant={}", variant.name));
        }
        if lab.cold_start.is_some() {
            keys.extend(["repository.control=explicit", "admin.enabled=true"].map(str::to_owned));
        }
        keys.extend(pairs(&lab.server_set));
        keys.extend(pairs(&cache.set).iter().map(|pair| format!("cache.{pair}")));
        keys.extend(pairs(&variant.set));
        let location = &self.locations.by_tier[&tier.name];
        location.add_to(&mut command, &format!("tiers.{}.", tier.name));
        set_keys(&mut command, keys);
        let label = format!("tierlab-server for {} {}", variant.label(), cache.name);
        let log = lab.work.join("logs").join(format!("{}.log", replica.log_name()));
        let child = Child::spawn(&label, command, &log)?;
        // Servers of a fleet start at the same time.
        let (limit, interrupt) = (lab.ready_timeout, context.interrupt.clone());
        let ready = tokio::task::spawn_blocking(move || child.ready(limit, &interrupt)).await;
        let (child, ready) = ready.map_err(|error| RunError::Failed(format!("{label}: {error}")))??;
        Ok(Launched { child, ready })
    }

    /// Returns the folder of a tier's files.
    pub(super) fn folder(&self, tier: &TierPlan) -> Result<PathBuf, RunError> {
        let problem = "its files are not on this machine, so their page cache cannot be dropped";
        let folder = self.locations.by_tier[&tier.name].folder.clone();
        folder.ok_or_else(|| RunError::Usage(format!("tier {}: {problem}", tier.name)))
    }

    /// Fails if a process has ended.
    pub(super) fn check(&mut self) -> Result<(), RunError> {
        let mut all = self.locations.origin.iter_mut().chain(&mut self.servers);
        all.try_for_each(Child::check)
    }

    /// Ends the servers, then the origins.
    pub(super) fn stop(self) {
        children::stop_all(self.servers);
        drop(self.locations);
    }
}

/// Server that has reported to be ready.
#[derive(Debug)]
pub(super) struct Launched {
    child: Child,
    ready: ServerReady,
}

impl Launched {
    /// Target of the server, after a check of its tier and cache.
    pub(super) async fn target(&self, context: &LabContext<'_>, variant: &VariantPlan) -> Result<Target, RunError> {
        let plan = context.plan;
        let cache = &variant.cache;
        let (Child { label, log, .. }, ready) = (&self.child, &self.ready);
        let refuse = |why: &str| RunError::Failed(format!("{label} {why} (log: {})", log.display()));
        let capacity = capacity(context, cache);
        let grpc_url = ready.grpc_listen.as_ref().map(|address| format!("http://{address}"));
        let control = Control::own(&format!("http://{}", ready.listen), grpc_url)?;
        let actual_capacity = control.scrape().await?.sum(metrics::CACHE_CAPACITY_BYTES, &[]) as u64;
        if actual_capacity != capacity {
            let state = &cache.name;
            let why = format!("has a cache of {actual_capacity} bytes, not the {capacity} of `lab.cache` `{state}`");
            return Err(refuse(&why));
        }
        let model = control.model(&plan.model).await?;
        if context.prepared.table_bytes > 0 && model.joined.is_none() {
            return Err(refuse(
                "does not join features, although the model's config requires it",
            ));
        }
        let content = Content::new(plan, &model)?;
        let outputs = BTreeMap::from([(plan.model.clone(), model.outputs)]);
        Ok(Target {
            variant: variant.name.clone(),
            tier: variant.tier.name.clone(),
            cache: cache.name.clone(),
            cache_share: cache.share,
            ..Target::new(control, content, outputs)
        })
    }
}

/// Returns the file through which the servers of a fleet share one emulated service.
fn shared_service(lab: &LabPlan, variant: &VariantPlan) -> PathBuf {
    lab.work.join("services").join(variant.file_name())
}

/// Wrappers of the tier in a server of a variant, as keys of the tier's config.
fn tier_wrappers(context: &LabContext<'_>, replica: &Replica<'_>) -> Result<Vec<String>, RunError> {
    let &Replica { variant, number, .. } = replica;
    let mut set = Vec::new();
    if let Some(profile) = &variant.emulated {
        let seed = context.plan.seed.wrapping_add(number.into());
        set.push(format!("emulated.profile={profile}"));
        set.push(format!("emulated.seed={seed}"));
        set.extend(variant.shared.iter().map(|pair| format!("emulated.{pair}")));
        if variant.shares_service() {
            let service = shared_service(context.lab, variant);
            let folder = service.parent().unwrap_or(&service);
            std::fs::create_dir_all(folder).map_err(RunError::io(folder))?;
            set.push(format!("emulated.shared={}", service.display()));
        }
    }
    if let Some(stage) = &variant.staged {
        let folder = stage::server_folder(context.lab, replica);
        set.push(format!("staged.root={}", folder.display()));
        set.push(format!("staged.capacity_bytes={}", stage.capacity_bytes));
        if stage.is_shared {
            set.push("staged.shared=true".to_owned());
        }
    }
    Ok(set)
}

fn capacity(context: &LabContext<'_>, cache: &CacheState) -> u64 {
    (context.prepared.table_bytes as f64 * cache.share) as u64
}
