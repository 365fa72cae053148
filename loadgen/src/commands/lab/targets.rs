//! Servers to measure. In: variants of a plan. Out: targets that have answered correctly, with their stages and caches prepared.

use super::context::{LabContext, Purpose};
use super::locations::Locations;
use super::servers::Servers;
use super::{prefill, stage};
use crate::commands::target_options;
use crate::environment;
use crate::error::RunError;
use crate::plan::{Origin, Plan, TargetPlan, VariantPlan, pairs};
use crate::runner::check_reply::check_reply;
use crate::runner::target::Target;
use std::path::Path;
use tierlab_analysis::record::{Environment, StageState, Variant};

/// Servers of all variants.
pub(super) struct Targets {
    /// Processes that the lab has started.
    pub(super) servers: Servers,
    /// One target a variant.
    pub(super) all: Vec<Target>,
    /// Servers of all fleets, one by one.
    pub(super) each: Vec<Target>,
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
        let mut targets = Self {
            servers: Servers::new(locations),
            all: Vec::new(),
            each: Vec::new(),
            variants: Vec::new(),
        };
        for variant in &context.lab.variants {
            match &variant.target {
                Some(server) => targets.find(context.plan, variant, server, environment).await?,
                None => targets.start(context, variant, environment).await?,
            }
        }
        Ok(targets)
    }

    /// Contacts an existing server, which is neither changed nor ended.
    async fn find(
        &mut self,
        plan: &Plan,
        variant: &VariantPlan,
        server: &TargetPlan,
        environment: &mut Environment,
    ) -> Result<(), RunError> {
        eprintln!("contacting the existing {} server", variant.label());
        let found = target_options::open(plan, server).await?;
        target_options::say(&found.notes);
        let target = Target {
            variant: variant.name.clone(),
            tier: variant.tier.name.clone(),
            cache: "as-is".into(),
            cache_share: 0.0,
            ..found.target
        };
        target_options::say(&check_reply(plan, &target, &plan.model).await?);
        let origin = format!("real; served at {}", target.control.base);
        environment::add_server(environment, variant.label(), &origin, &found.scrape);
        self.variants.push(recorded(variant, None));
        self.all.push(target);
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
        let what = match variant.servers {
            1 => "server".to_owned(),
            servers => format!("{servers} servers"),
        };
        eprintln!("starting the {} {what}, {} cache", variant.label(), variant.cache.name);
        stage::empty(context, variant, Purpose::Loads)?;
        let mut staged = None;
        let servers = self.servers.start(context, variant).await?;
        for target in &servers {
            target_options::say(&check_reply(plan, target, &plan.model).await?);
            staged = stage::prepare(context, variant, target).await?;
            if variant.cache.prefill {
                prefill::fill(plan, target, context.interrupt).await?;
            }
        }
        self.each.extend(servers.iter().cloned());
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
            self.variants.push(recorded(variant, staged));
        }
        self.all.push(target);
        Ok(())
    }
}

/// Variant in the form of the result.
fn recorded(variant: &VariantPlan, staged: Option<StageState>) -> Variant {
    Variant {
        name: variant.name.clone(),
        tier: variant.tier.kind.clone(),
        origin: match &variant.emulated {
            _ if variant.target.is_some() => "real, an existing server".to_owned(),
            Some(profile) => format!("emulated, {}, over {}", shown(profile), variant.tier.origin),
            None => variant.tier.origin.to_string(),
        },
        emulated: variant.emulated.as_deref().map(shown),
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
fn shown(profile: &str) -> String {
    let file = Path::new(profile).file_name();
    file.map_or_else(|| profile.to_owned(), |name| name.to_string_lossy().into_owned())
}
