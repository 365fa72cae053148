//! The `sweep` command: one server that already runs, every load of a plan.
//!
//! In: a plan and an address. Out: a run in its folder. What the server is (tier, cache) is asked of the server.

use crate::commands::agents_options::AgentsOptions;
use crate::commands::foreign;
use crate::commands::target_options::TargetOptions;
use crate::error::RunError;
use crate::plan::{NO_TIER, Plan, TargetPlan};
use crate::runner::check_reply::check_reply;
use crate::runner::target::{Content, Target};
use crate::runner::{Runner, Senders};
use crate::selfcheck::certificate::CertificateStore;
use crate::selfcheck::prove::prove;
use crate::server::scrape::Scrape;
use crate::store::new_folder::{claim, new_folder, sha256};
use crate::store::preamble::Preamble;
use crate::store::resume::StoppedRun;
use crate::{environment, pricing};
use std::path::{Path, PathBuf};
use tierlab_analysis::record::Pricing;
use tierlab_formats::model::is_plain_name;
use tierlab_load::interrupt::Interrupt;
use tierlab_protocol::metrics;

/// What `sweep` is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The plan's file.
    pub plan: PathBuf,
    /// The server, and how it is asked.
    pub target: TargetOptions,
    /// Where results go.
    pub out: PathBuf,
    /// The result's folder there; made from plan and time when absent.
    pub name: Option<String>,
    /// The folder of a run to resume, instead of both.
    pub resume: Option<PathBuf>,
    /// Seconds that searches may take, in place of the plan's.
    pub search_limit_s: Option<u32>,
    /// Load processes on this host.
    pub workers: u32,
    /// If true, everything is printed, and not only the answer.
    pub verbose: bool,
    /// Agents that send in their place.
    pub agents: AgentsOptions,
    /// Where the self-check's certificate is kept.
    pub certificates: CertificateStore,
}

/// Runs the command.
///
/// # Errors
/// See [`RunError`].
pub async fn run(options: &Options, interrupt: Interrupt) -> Result<(), RunError> {
    let plan = Plan::load(&options.plan)?.with_search_limit(options.search_limit_s);
    if plan.lab.is_some() {
        return Err(RunError::Usage(format!(
            "{} is a lab's plan; run it with `tierlab-loadgen lab`, or remove `[lab]` to sweep one server",
            plan.file.display()
        )));
    }
    let agents = options.agents.open()?;
    let resumed = options.resume.as_deref().map(claim).transpose()?;
    let earlier = options
        .resume
        .as_deref()
        .map(|folder| StoppedRun::open(folder, &plan))
        .transpose()?;
    let server = options.target.over(plan.target.clone())?;
    let found = foreign::open(&plan, &server).await?;
    foreign::say(&found.notes);
    let (table_bytes, scrape) = (found.table_bytes, found.scrape);
    let target = named(found.target, &server, &scrape, table_bytes);
    let target = with_others(&plan, target).await?;
    foreign::say(&check_reply(&plan, &target, &plan.model).await?);
    for other in plan.other_models() {
        foreign::say(&check_reply(&plan, &target, other).await?);
    }
    let pricing = match &plan.prices {
        Some((file, instance)) => Some(prices(file, instance, &server, &target)?),
        None => None,
    };
    // Held to the end of the run.
    let (folder, _claim) = match &earlier {
        Some(earlier) => (earlier.folder.clone(), resumed),
        None => {
            let (folder, claim) = new_folder(&options.out, options.name.as_deref(), &plan)?;
            (folder, Some(claim))
        }
    };
    let mut environment = environment::inspect(&[]);
    environment::add_server(
        &mut environment,
        &target.tier,
        &format!("served at {}", target.control.base()),
        &scrape,
    );
    environment.shared_cores = vec![
        Senders::note(options.workers, options.agents.len()),
        "whatever else runs on this machine".into(),
    ];
    let mut configs = vec![plan.file.as_path()];
    configs.extend(plan.prices.iter().map(|(file, _)| file.as_path()));
    configs.extend(
        plan.input_files
            .iter()
            .map(PathBuf::as_path)
            .filter(|file| file.is_file()),
    );
    let bodies = server.files();
    configs.extend(bodies.iter().map(PathBuf::as_path));
    let instrument = prove(&plan, earlier.as_ref(), &options.certificates, &interrupt).await?;
    let preamble = Preamble {
        environment,
        config_sha256: sha256(&configs)?,
        pricing,
        instrument,
        variants: Vec::new(),
        cold_starts: Vec::new(),
    };
    let senders = Senders::new(&plan, options.workers, agents).await?;
    let runner = Runner {
        plan: &plan,
        targets: vec![target],
        folder,
        earlier,
        interrupt,
        senders,
        verbose: options.verbose,
        alive: Box::new(|| Ok(())),
        prepare: Box::new(|_| Ok(())),
    };
    Box::pin(runner.run(preamble)).await.map(|_| ())
}

/// A running server with the names that its results are kept by: the plan's, or its own words.
fn named(target: Target, server: &TargetPlan, scrape: &Scrape, table_bytes: u64) -> Target {
    let own = scrape.label(metrics::BUILD_INFO, "feature_tier");
    // Files, labels and tables are named after it, and another server may say anything.
    let tier = server.tier.as_deref().or(own.filter(|tier| is_plain_name(tier)));
    let capacity = scrape.sum(metrics::CACHE_CAPACITY_BYTES, &[]);
    let share = if table_bytes > 0 {
        capacity / table_bytes as f64
    } else {
        0.0
    };
    let is_own = scrape.has(metrics::BUILD_INFO);
    Target {
        tier: tier.unwrap_or(NO_TIER).to_owned(),
        cache: if share > 0.0 || !is_own { "as-is" } else { "off" }.into(),
        cache_share: share,
        ..target
    }
}

/// The prices of a run. A server that names no tier, and whose storage the plan does not price, is paid by its instance.
fn prices(file: &Path, instance: &str, server: &TargetPlan, target: &Target) -> Result<Pricing, RunError> {
    let tier = Some(target.tier.as_str()).filter(|tier| *tier != NO_TIER);
    let priced = pricing::load_server(file, instance, tier, server.price.as_deref(), &target.tier)?;
    Ok(priced)
}

/// A target with what the other models of a plan's mixes are asked.
async fn with_others(plan: &Plan, mut target: Target) -> Result<Target, RunError> {
    for name in plan.other_models() {
        let model = target.control.model(name).await?;
        target.others.insert(name.to_owned(), Content::of(plan, &model)?);
        target.outputs.insert(name.to_owned(), model.outputs);
    }
    Ok(target)
}
