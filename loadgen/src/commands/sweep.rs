//! The `sweep` command: one server that already runs, every load of a plan.
//!
//! In: a plan and an address. Out: a run in its folder. What the server is (tier, cache) is asked of the server.

use crate::certificate::{self, Shelf};
use crate::control::{self, Control, ControlError};
use crate::driver::Route;
use crate::environment;
use crate::error::RunError;
use crate::interrupt::Interrupt;
use crate::keys::Population;
use crate::null_endpoint;
use crate::payload;
use crate::plan::{KeyDistribution, Load, Plan, Protocol};
use crate::pricing;
use crate::record::{Mode, Point};
use crate::recorder::{self, Label};
use crate::reply::{Expected, Limit};
use crate::resume::Earlier;
use crate::runner::{self, Content, Instrument, Preamble, Runner, Senders, Target};
use crate::scrape::Scrape;
use crate::selfcheck::{self, NullEndpoint};
use reqwest::Url;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_protocol::metadata::ModelMetadata;
use tierlab_protocol::metrics;

/// Samples that a p99 asks for; the noise floor is repeated until it has them.
const P99_SAMPLES: f64 = 368.0;

/// What `sweep` is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The plan's file.
    pub plan: PathBuf,
    /// The server's address.
    pub url: String,
    /// Where it speaks gRPC.
    pub grpc_url: Option<Url>,
    /// Where results go.
    pub out: PathBuf,
    /// The result's folder there; made from plan and time when absent.
    pub name: Option<String>,
    /// The folder of a run to go on with, instead of both.
    pub resume: Option<PathBuf>,
    /// Seconds that searches may take, in place of the plan's.
    pub search_limit_s: Option<u32>,
    /// Load processes on this host.
    pub workers: u32,
    /// Which of several hosts this is, from 0.
    pub host: u32,
    /// Where the self-check's certificate is kept.
    pub shelf: Shelf,
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
    let earlier = options
        .resume
        .as_deref()
        .map(|folder| Earlier::open(folder, &plan))
        .transpose()?;
    let control = Control::new(&options.url).map_err(|error| RunError::Usage(error.to_string()))?;
    let model = control.model(&plan.model).await?;
    let scrape = control.scrape().await?;
    let target = Target {
        grpc: options.grpc_url.clone(),
        ..target(&plan, control, &model, &scrape)
    };
    let target = with_others(&plan, target).await?;
    check_reply(&plan, &target, &plan.model).await?;
    for model in target.others.keys() {
        check_reply(&plan, &target, model).await?;
    }
    let pricing = match &plan.prices {
        Some((file, instance)) => Some(pricing::load(file, instance, std::slice::from_ref(&target.tier))?),
        None => None,
    };
    let folder = match &earlier {
        Some(earlier) => earlier.folder.clone(),
        None => runner::new_folder(&options.out, options.name.as_deref(), &plan)?,
    };
    let mut environment = environment::inspect(&[]);
    environment::add_server(
        &mut environment,
        &target.tier,
        &format!("served at {}", options.url),
        &scrape,
    );
    environment.shared_cores = vec![
        Senders::note(options.workers),
        "whatever else runs on this machine".into(),
    ];
    let mut configs = vec![plan.file.as_path()];
    configs.extend(plan.prices.iter().map(|(file, _)| file.as_path()));
    let instrument = prove(&plan, earlier.as_ref(), &options.shelf, &interrupt).await?;
    let preamble = Preamble {
        environment,
        config_sha256: runner::sha256(&configs)?,
        pricing,
        instrument,
        cold_starts: Vec::new(),
    };
    let senders = Senders::new(&plan, options.workers, options.host).await?;
    let runner = Runner {
        plan: &plan,
        targets: vec![target],
        folder,
        earlier,
        interrupt,
        senders,
        alive: Box::new(|| Ok(())),
        prepare: Box::new(|_| Ok(())),
    };
    Box::pin(runner.run(preamble)).await.map(|_| ())
}

/// What a running server is, from its own words.
fn target(plan: &Plan, control: Control, model: &ModelMetadata, scrape: &Scrape) -> Target {
    let tier = scrape
        .label(metrics::BUILD_INFO, "feature_tier")
        .filter(|tier| !tier.is_empty())
        .unwrap_or("unknown");
    let table_bytes = model
        .joined
        .as_ref()
        .map_or(0, |joined| joined.rows * u64::from(joined.row_bytes));
    let capacity = scrape.sum(metrics::CACHE_CAPACITY_BYTES, &[]);
    let share = if table_bytes > 0 {
        capacity / table_bytes as f64
    } else {
        0.0
    };
    Target {
        tier: tier.to_owned(),
        cache: if share > 0.0 { "as-is" } else { "off" }.into(),
        cache_share: share,
        control,
        grpc: None,
        content: content(plan, model),
        others: BTreeMap::new(),
        outputs: BTreeMap::from([(plan.model.clone(), model.outputs.clone())]),
    }
}

/// A target with what the other models of a plan's mixes are asked.
async fn with_others(plan: &Plan, mut target: Target) -> Result<Target, RunError> {
    for name in plan.other_models() {
        let model = target.control.model(name).await?;
        target.others.insert(name.to_owned(), content(plan, &model));
        target.outputs.insert(name.to_owned(), model.outputs);
    }
    Ok(target)
}

/// What a model is asked: entities where it joins, else its own inputs.
#[must_use]
pub fn content(plan: &Plan, model: &ModelMetadata) -> Content {
    match &model.joined {
        // The plan's seed, not the step's: the popular entities stay the same throughout a run, as a cache expects.
        Some(joined) if joined.rows > 0 => Content::Joined(Population::new(
            joined.first_id,
            joined.rows,
            plan.keys.clone(),
            plan.seed,
        )),
        _ => Content::Inline(model.inputs.clone()),
    }
}

/// Sends one request and looks at every part of the reply, which steps have no time for.
///
/// # Errors
/// No server, an error reply, or outputs without a row for the row asked for.
pub async fn check_reply(plan: &Plan, target: &Target, model: &str) -> Result<(), RunError> {
    let body = match target.content_of(model) {
        Content::Joined(population) if population.stranger().is_some() => {
            return Err(RunError::Usage(format!(
                "{}: `keys.file` asks for entity {}, which the table of `{}` does not have",
                plan.file.display(),
                population.stranger().unwrap_or_default(),
                plan.model
            )));
        }
        Content::Joined(population) => payload::joined(&[population.by_rank(0)], plan.form(model)),
        Content::Inline(specs) => payload::inline(specs, 1, plan.form(model), plan.seed)
            .map_err(RunError::Usage)?
            .swap_remove(0),
    };
    // Its rows are looked at below, with a word on what they should be.
    let expected = Expected::new(model, target.outputs.get(model).map_or(&[], Vec::as_slice), None);
    let limit = Limit::of_replies(plan.reply_limit_bytes, &target.expected(model, 1));
    let reply = match runner::route(plan, target, model)? {
        Route::Http(_) => target.control.infer(model, &body, (&expected, &limit)).await?,
        Route::Grpc(connections) => control::infer_over_grpc(&connections, body, (&expected, &limit)).await?,
    };
    let refuse = |what: String| {
        let url = match &target.grpc {
            Some(url) if plan.protocol == Protocol::Grpc => url.to_string(),
            _ => target.control.infer_url(model).to_string(),
        };
        Err(ControlError { url, what }.into())
    };
    if reply.outputs.is_empty() {
        return refuse("the reply to a checked request has no outputs".into());
    }
    match reply.outputs.iter().find(|output| output.shape.first() != Some(&1)) {
        Some(output) => refuse(format!(
            "asked for one row, output `{}` came with shape {:?}",
            output.name, output.shape
        )),
        None => Ok(()),
    }
}

/// Self-check and noise floor, where the plan asks for them; of a run that is gone on with, those that it has. A self-check
/// is kept for later runs too.
///
/// # Errors
/// The null endpoint could not be started or measured, or the run was interrupted.
pub async fn prove(
    plan: &Plan,
    earlier: Option<&Earlier>,
    shelf: &Shelf,
    interrupt: &Interrupt,
) -> Result<Instrument, RunError> {
    if let Some(Earlier { run, .. }) = earlier {
        return Ok(Instrument {
            selfcheck: run.selfcheck.clone(),
            certificate: shelf.carried(),
            noise_floor: run.noise_floor.clone(),
        });
    }
    let mut checks = Vec::new();
    let fresh = if plan.selfcheck {
        eprintln!("self-check: about {} s on a null endpoint", selfcheck::SECONDS);
        checks = selfcheck::checks(interrupt).await?;
        for check in checks.iter().filter(|check| !check.passed) {
            eprintln!(
                "self-check: {} should be {}, is {}: figures of this run carry that error",
                check.name, check.expected, check.measured
            );
        }
        let made = certificate::made(checks.clone())?;
        if let Err(error) = shelf.keep(&made) {
            eprintln!("self-check: its certificate is not kept for later runs: {error}");
        }
        Some(certificate::judged(made))
    } else {
        None
    };
    let noise_floor = if plan.noise_floor {
        eprintln!("noise floor: the plan's highest real-time load on a null endpoint");
        Some(noise_floor(plan, interrupt).await?)
    } else {
        None
    };
    Ok(Instrument {
        selfcheck: checks,
        certificate: fresh.unwrap_or_else(|| shelf.carried()),
        noise_floor,
    })
}

/// The plan's highest load on a null endpoint, real-time where the plan has it.
async fn noise_floor(plan: &Plan, interrupt: &Interrupt) -> Result<Point, RunError> {
    let shares = plan.mixes.iter().flat_map(|mix| {
        let all = mix
            .rates
            .iter()
            .flat_map(move |&rate| mix.parts.iter().map(move |part| mix.load(part, rate)));
        all.collect::<Vec<_>>()
    });
    let loads: Vec<Load> = plan.loads.iter().copied().chain(shares).collect();
    let highest = |mode| {
        loads
            .iter()
            .filter(|load| load.mode == mode)
            .max_by(|a, b| a.rate.total_cmp(&b.rate))
    };
    let Some(&load) = highest(Mode::Realtime).or_else(|| highest(Mode::Batch)) else {
        return Err(RunError::Usage(format!("{} has no load", plan.file.display())));
    };
    let endpoint = NullEndpoint::start(None, interrupt)?;
    let target = Target {
        tier: "null".into(),
        cache: "off".into(),
        cache_share: 0.0,
        control: endpoint.control()?,
        grpc: endpoint.grpc_url(),
        content: Content::Joined(Population::new(0, null_endpoint::ROWS, floor_keys(plan), plan.seed)),
        others: BTreeMap::new(),
        outputs: BTreeMap::from([(plan.model.clone(), null_endpoint::outputs())]),
    };
    let mut point = Point {
        factors: runner::factors(plan, &target, load, &plan.model),
        repeats: Vec::new(),
        summary: None,
    };
    for index in 0..repeats_for_p99(load, plan) {
        let seed = crate::schedule::step_seed(plan.seed, index, u32::MAX as usize);
        let step = runner::measure(plan, &target, load, seed, interrupt);
        let Some((finished, schedule, server)) = Box::pin(step).await? else {
            return Err(RunError::InterruptedEarly);
        };
        let label = Label {
            index,
            seed,
            hdr_file: crate::report::hdr_file(&point.factors, index),
        };
        point
            .repeats
            .push(recorder::record(label, &finished, &schedule, server));
    }
    crate::analysis::summarise(std::slice::from_mut(&mut point), &plan.limits, None);
    Ok(point)
}

/// The null endpoint has its own entities, not those of a file.
fn floor_keys(plan: &Plan) -> KeyDistribution {
    match &plan.keys {
        KeyDistribution::File { .. } => KeyDistribution::Uniform,
        keys => keys.clone(),
    }
}

/// As many repeats as give the samples of a p99, and no more than the plan has.
fn repeats_for_p99(load: Load, plan: &Plan) -> u32 {
    let per_repeat = (load.rate * plan.window.as_secs_f64()).max(1.0);
    ((P99_SAMPLES / per_repeat).ceil() as u32).clamp(1, plan.repeats)
}
