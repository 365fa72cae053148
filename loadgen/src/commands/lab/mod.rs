//! The `lab` command: every tier in every cache state, from nothing to a report.
//!
//! In: a plan with `[lab]`. Out: a run in its folder, and no process left behind. It makes the data, starts origins,
//! publishes, starts one server for each tier and cache state, proves each with a checked reply, fills warm caches, and
//! hands the targets to the [`runner`](crate::runner).

mod answerable;
mod cold_start;
mod context;
mod data;
mod doctor;
mod locations;
mod place;
mod prefill;
mod prices;
mod running;
mod servers;
mod stage;
mod work;

use crate::commands::agents_options::AgentsOptions;
use crate::commands::foreign;
use crate::error::RunError;
use crate::plan::{LabPlan, Origin, Plan, PlanError, VariantPlan};
use crate::runner::check_reply::check_reply;
use crate::runner::target::Target;
use crate::runner::{Runner, Senders};
use crate::selfcheck::certificate::CertificateStore;
use crate::selfcheck::prove::prove;
use crate::store::new_folder::{claim, new_folder, sha256};
use crate::store::preamble::Preamble;
use crate::store::resume::StoppedRun;
use crate::{environment, page_cache};
use context::{LabContext, programs};
use place::Purpose;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::{Environment, PageCache, Run, StageState, Variant};
use tierlab_load::interrupt::Interrupt;

/// What `lab` is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The plan's file.
    pub plan: PathBuf,
    /// Where results go.
    pub out: PathBuf,
    /// The result's folder there; made from plan and time when absent.
    pub name: Option<String>,
    /// Folder to work in, in place of the plan's.
    pub work: Option<PathBuf>,
    /// The folder of a run to resume, instead of both.
    pub resume: Option<PathBuf>,
    /// Where the project's other programs are; beside this one when absent.
    pub bin_dir: Option<PathBuf>,
    /// Seconds that searches may take, in location of the plan's.
    pub search_limit_s: Option<u32>,
    /// Load processes on this host.
    pub workers: u32,
    /// If true, everything is printed, and not only the answer.
    pub verbose: bool,
    /// Agents that send in their place.
    pub agents: AgentsOptions,
    /// Whether to run the self-check whatever the plan says.
    pub selfcheck: bool,
    /// Where the self-check's certificate is kept.
    pub certificates: CertificateStore,
}

/// Runs the command.
///
/// # Errors
/// See [`RunError`].
pub async fn run(options: &Options, interrupt: Interrupt) -> Result<Run, RunError> {
    let mut plan = Plan::load(&options.plan)?.with_search_limit(options.search_limit_s);
    plan.selfcheck |= options.selfcheck;
    let Some(mut lab) = plan.lab.clone() else {
        return Err(RunError::Usage(format!(
            "{} has no `[lab]`; run it with `tierlab-loadgen sweep --url`, or add one",
            plan.file.display()
        )));
    };
    let agents = options.agents.open()?;
    lab.work = work::folder(options.work.as_deref(), &lab.work, &plan.name, |name| {
        std::env::var_os(name)
    })?;
    let resumed = options.resume.as_deref().map(claim).transpose()?;
    let earlier = options
        .resume
        .as_deref()
        .map(|folder| StoppedRun::open(folder, &plan))
        .transpose()?;
    if let Some(other) = plan.other_models().first() {
        return Err(plan
            .refuse(format!(
                "`mix`: a part asks for the model `{other}`, but a lab makes and serves one model, `{}`; sweep a server that \
                 has both",
                plan.model
            ))
            .into());
    }
    let context = LabContext {
        plan: &plan,
        lab: &lab,
        programs: programs(&lab, options.bin_dir.as_deref())?,
        interrupt: &interrupt,
    };
    let configs = config_files(&plan, &lab)?;
    // Before the lab's own work, which would count as that of others.
    let warnings = doctor::warnings(options.bin_dir.as_deref()).await;
    let mut prepared = data::prepare(&context)?;
    // What is missing in the price list is said before anything runs; what layouts store is known once they are written.
    prices::of_variants(&plan, &lab, &prepared)?;
    let instrument = prove(&plan, earlier.as_ref(), &options.certificates, &interrupt).await?;
    if let Some(question) = &plan.question {
        answerable::check(&plan, question, lab.variants.len(), &instrument)?;
    }
    let locations = locations::open(&context)?;
    data::publish(&context, &mut prepared, &locations)?;
    let pricing = prices::of_variants(&plan, &lab, &prepared)?;
    let mut environment = environment::inspect(&locations.folders);
    environment.shared_cores = shared_cores(&lab, options);
    environment.machine_warnings = warnings;
    let mut running = servers::Servers::new(locations);
    let mut targets = Vec::new();
    // The servers of all fleets by themselves.
    let mut each = Vec::new();
    let mut variants = Vec::new();
    for variant in &lab.variants {
        if let Some(server) = &variant.target {
            eprintln!("asking the {} server, which runs already", variant.label());
            let found = running::target(&plan, variant, server).await?;
            found.add_to(&mut environment, variant);
            variants.push(recorded(variant, None));
            targets.push(found.target);
            continue;
        }
        let what = match variant.servers {
            1 => "server".to_owned(),
            servers => format!("{servers} servers"),
        };
        eprintln!("starting the {} {what}, {} cache", variant.label(), variant.cache.name);
        stage::empty(&context, variant, Purpose::Loads)?;
        let mut staged = None;
        let servers = running.start(&context, &prepared, variant).await?;
        for target in &servers {
            foreign::say(&check_reply(&plan, target, &plan.model).await?);
            staged = stage::prepare(&context, &prepared, variant, target).await?;
            if variant.cache.prefill {
                prefill::fill(&plan, target, &interrupt).await?;
            }
        }
        each.extend(servers.iter().cloned());
        let Some(target) = Target::fleet(servers) else { continue };
        let scrape = target.control.scrape().await?;
        environment::add_server(
            &mut environment,
            variant.label(),
            &origin_note(variant.tier.origin),
            &scrape,
        );
        if !variant.name.is_empty() {
            variants.push(recorded(variant, staged));
        }
        targets.push(target);
    }
    let cold_starts = match (&earlier, &lab.cold_start) {
        (Some(earlier), _) => earlier.run.cold_starts.clone(),
        (None, Some(plan)) => Box::pin(cold_start::measure(&context, plan, &prepared, &running, &each)).await?,
        (None, None) => Vec::new(),
    };
    let dropped = pages_to_drop(&lab, &running)?;
    note_drops(&lab, &mut environment);
    // Held to the end of the run.
    let (folder, _claim) = match &earlier {
        Some(earlier) => (earlier.folder.clone(), resumed),
        None => {
            let (folder, claim) = new_folder(&options.out, options.name.as_deref(), &plan)?;
            (folder, Some(claim))
        }
    };
    let preamble = Preamble {
        environment,
        config_sha256: sha256(&configs.iter().map(PathBuf::as_path).collect::<Vec<_>>())?,
        pricing,
        instrument,
        variants,
        cold_starts,
    };
    let senders = Senders::new(&plan, options.workers, agents).await?;
    let ended = {
        let runner = Runner {
            plan: &plan,
            targets,
            folder,
            earlier,
            interrupt: interrupt.clone(),
            senders,
            verbose: options.verbose,
            alive: Box::new(|| running.check()),
            prepare: Box::new(
                |target| match dropped.get(&(target.label().to_owned(), target.cache.clone())) {
                    Some(folder) => page_cache::drop_below(folder).map(|_| ()).map_err(RunError::io(folder)),
                    None => Ok(()),
                },
            ),
        };
        Box::pin(runner.run(preamble)).await
    };
    running.stop();
    ended
}

/// A variant as the result keeps it.
fn recorded(variant: &VariantPlan, staged: Option<StageState>) -> Variant {
    Variant {
        name: variant.name.clone(),
        tier: variant.tier.kind.clone(),
        origin: match &variant.emulated {
            _ if variant.target.is_some() => "real, a server that ran already".to_owned(),
            Some(profile) => format!("emulated, {}, over {}", shown(profile), variant.tier.origin),
            None => variant.tier.origin.to_string(),
        },
        emulated: variant.emulated.as_deref().map(shown),
        staged,
        layout: variant.laid_out().map(str::to_owned),
        batching: variant.batching,
        cache: variant.cache.name.clone(),
        cache_share: variant.cache.share,
        price: variant.price.clone(),
        instance: variant.instance.clone(),
        servers: variant.servers,
        set: variant.set.clone(),
    }
}

/// A profile as results name it: of a file its name, wherever it lies here; what it was recorded of stands in the tier's notes.
fn shown(profile: &str) -> String {
    let file = Path::new(profile)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    file.unwrap_or_else(|| profile.to_owned())
}

/// Folders whose page cache is dropped before a step, by label and cache state.
fn pages_to_drop(lab: &LabPlan, running: &servers::Servers) -> Result<BTreeMap<(String, String), PathBuf>, RunError> {
    let mut folders = BTreeMap::new();
    for variant in lab.variants.iter().filter(|variant| drops(variant)) {
        let key = (variant.label().to_owned(), variant.cache.name.clone());
        folders.insert(key, running.folder(&variant.tier)?);
    }
    Ok(folders)
}

fn drops(variant: &VariantPlan) -> bool {
    variant.cache.page_cache == PageCache::Dropped
}

/// Says in the result which states were measured with the page cache dropped.
fn note_drops(lab: &LabPlan, environment: &mut Environment) {
    let mut states: Vec<&str> = Vec::new();
    for variant in lab.variants.iter().filter(|variant| drops(variant)) {
        if !states.contains(&variant.cache.name.as_str()) {
            states.push(&variant.cache.name);
        }
    }
    if states.is_empty() {
        return;
    }
    for origin in environment.origins.values_mut() {
        *origin += &format!("; page cache dropped before each step of: {}", states.join(", "));
    }
}

/// Every file that decides what is measured, each of which must be there.
fn config_files(plan: &Plan, lab: &LabPlan) -> Result<Vec<PathBuf>, RunError> {
    for tier in &lab.tiers {
        let file = lab.tier_file(&tier.name);
        if !file.is_file() {
            return Err(no_such_tier(plan, &tier.name, &file).into());
        }
    }
    let mut files = vec![plan.file.clone()];
    let is_started = |variant: &VariantPlan| variant.target.is_none();
    if lab.variants.iter().any(is_started) {
        files.push(lab.server_config.clone());
    }
    for variant in &lab.variants {
        files.extend(variant.target.iter().flat_map(|target| target.files()));
    }
    files.extend(lab.tiers.iter().map(|tier| lab.tier_file(&tier.name)));
    files.extend(plan.prices.iter().map(|(file, _)| file.clone()));
    files.extend(plan.input_files.iter().filter(|path| !path.is_dir()).cloned());
    match files.iter().find(|file| !file.is_file()) {
        Some(missing) => Err(RunError::Usage(format!(
            "{}: {} is not there",
            plan.file.display(),
            missing.display()
        ))),
        None => Ok(files),
    }
}

/// Names the tiers that there are, each a file beside the one that is missing.
fn no_such_tier(plan: &Plan, tier: &str, file: &Path) -> PlanError {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = std::fs::read_dir(folder.unwrap_or_else(|| Path::new(".")))
        .into_iter()
        .flatten();
    let is_tier = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "toml");
    let mut there: Vec<String> = folder
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(is_tier)
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    there.sort();
    let there = if there.is_empty() {
        "none".to_owned()
    } else {
        there.join(", ")
    };
    plan.refuse(format!(
        "`lab.tiers`: no such tier `{tier}`: {} is not there; there are: {there}",
        file.display()
    ))
}

fn origin_note(origin: Origin) -> String {
    match origin {
        // Its reads are neither direct nor cold: the data were written a moment ago.
        Origin::Embedded => "embedded; origin reads through the page cache".into(),
        other => other.to_string(),
    }
}

fn shared_cores(lab: &LabPlan, options: &Options) -> Vec<String> {
    let started = lab.variants.iter().filter(|variant| variant.target.is_none());
    let (variants, servers) = (
        started.clone().count(),
        started.map(|variant| variant.servers).sum::<u32>(),
    );
    let mut shared = vec![Senders::note(options.workers, options.agents.len())];
    if servers > 0 {
        let measured = match variants == servers as usize {
            true => "the one measured",
            false => "those measured, a fleet on the same cores,",
        };
        shared.push(format!("{servers} servers, all but {measured} idle"));
    }
    if variants < lab.variants.len() {
        shared.push("whatever else runs on this machine".into());
    }
    let embedded: Vec<&str> = lab
        .tiers
        .iter()
        .filter(|tier| tier.origin == Origin::Embedded)
        .map(|tier| tier.name.as_str())
        .collect();
    if !embedded.is_empty() {
        shared.push(format!("embedded origins: {}", embedded.join(", ")));
    }
    shared
}
