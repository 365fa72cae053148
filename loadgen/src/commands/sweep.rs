//! The `sweep` command: one running server, every load of a plan.
//!
//! In: a plan and an address. Out: a run in its folder. The server itself reports its tier and cache.

use crate::commands::judge::PointChecks;
use crate::commands::options::{self, RunOptions, TargetOptions, unless_interrupted};
use crate::environment;
use crate::error::RunError;
use crate::plan::{NO_TIER, Plan, PlanError, TargetPlan};
use crate::runner::check_reply::check_reply;
use crate::runner::target::{Content, Target, until_accepted};
use crate::runner::{Runner, Senders, check_met_rate, new_run};
use crate::selfcheck::prove::prove;
use crate::server::scrape::Scrape;
use crate::store::folder::sha256;
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::Run;
use tierlab_formats::model::is_plain_name;
use tierlab_instrument::prices;
use tierlab_load::interrupt::Interrupt;
use tierlab_protocol::metrics;

/// Options of `sweep`.
#[derive(Debug, Clone, Args)]
pub struct SweepOptions {
    /// Plan, a TOML file without `[lab]`; without one, --url, --model and --rate say what to measure
    #[arg(conflicts_with = "rates")]
    pub plan: Option<PathBuf>,
    /// Options of every run.
    #[command(flatten)]
    pub run: RunOptions,
    /// Requests of a sweep without a plan.
    #[command(flatten)]
    pub inline_plan: InlinePlan,
    /// Server and request settings.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Checks of the result.
    #[command(flatten)]
    pub checks: PointChecks,
}

/// Runs the command and returns the exit code.
///
/// # Errors
/// See [`RunError`].
pub async fn run(options: &SweepOptions, interrupt: Interrupt) -> Result<u8, RunError> {
    let plan = match &options.plan {
        Some(file) => Plan::load(file)?,
        None => options.inline_plan.plan(options.target.grpc_url.is_some())?,
    };
    let plan = options.run.apply_to(plan)?.with_slo(&options.checks.slo)?;
    if plan.lab.is_some() {
        let problem = "has a `[lab]`; run the plan with `tierlab-loadgen lab`, or remove `[lab]` to sweep one server";
        return Err(RunError::about(&plan.file, problem));
    }
    options.checks.check(&plan)?;
    let agents = options.run.open_agents()?;
    let resumed = options.run.resumed(&plan)?;
    let server = options.target.apply_to(plan.target.clone())?;
    if options.target.grpc_url.is_some() && !plan.speaks_grpc() {
        let problem = "no request goes over gRPC: set `protocol = \"grpc\"`, or leave out --grpc-url";
        return Err(RunError::about(&plan.file, problem));
    }
    let (target, scrape) = unless_interrupted(&interrupt, Box::pin(open_target(&plan, &server))).await?;
    let pricing = match &plan.prices {
        Some((file, instance)) => {
            // Without a named tier, a server whose storage the plan does not price costs as much as its instance.
            let tier = Some(target.tier.as_str()).filter(|tier| *tier != NO_TIER);
            let price = server.price.as_deref();
            Some(prices::load_server(file, instance, tier, price, &target.tier)?)
        }
        None => None,
    };
    // The claim is held to the end of the run.
    let (folder, _claim, earlier) = options.run.folder(&plan, resumed)?;
    let mut environment = environment::inspect(&[]);
    let origin = format!("served at {}", target.control.base);
    environment::add_server(&mut environment, &target.tier, &origin, &scrape);
    environment.shared_cores = vec![
        Senders::note(options.run.workers, options.run.agents.len()),
        "other programs on this machine".into(),
    ];
    let instrument = prove(&plan, earlier.as_ref(), &options.run.certificates, &interrupt).await?;
    let run = Run {
        config_sha256: file_hashes(&plan)?,
        pricing,
        ..new_run(&plan, environment, instrument)
    };
    let connecting = Box::pin(Senders::new(&plan, options.run.workers, agents));
    let senders = unless_interrupted(&interrupt, connecting).await?;
    let runner = Runner {
        plan: &plan,
        targets: vec![target],
        folder: folder.clone(),
        earlier,
        interrupt,
        senders,
        verbose: options.run.verbose,
        health_check: Box::new(|| Ok(())),
        prepare: Box::new(|_| Ok(())),
    };
    let run = Box::pin(runner.run(run)).await?;
    let code = options.checks.exit_code(&run, &folder)?;
    check_met_rate(&plan, &run)?;
    Ok(code)
}

/// Opens the target with its label and its other models, and checks a reply of each model.
async fn open_target(plan: &Plan, server: &TargetPlan) -> Result<(Target, Scrape), RunError> {
    let (target, scrape, table_bytes) = options::open(plan, server).await?;
    let target = label_target(target, server, &scrape, table_bytes);
    let target = with_other_models(plan, target).await?;
    options::print_notes(&check_reply(plan, &target, &plan.model).await?);
    for other in plan.other_models() {
        options::print_notes(&check_reply(plan, &target, other).await?);
    }
    Ok((target, scrape))
}

/// Hashes of the plan and of all files that it names.
fn file_hashes(plan: &Plan) -> Result<BTreeMap<String, String>, RunError> {
    let mut files = plan.request_files().map_err(RunError::io(&plan.file))?;
    files.extend(plan.prices.iter().map(|(file, _)| file.clone()));
    files.extend(Some(plan.file.clone()).filter(|file| file.is_file()));
    sha256(&files)
}

/// Names a running server's tier and cache for its results: from the plan, or else from the server's own report.
fn label_target(target: Target, server: &TargetPlan, scrape: &Scrape, table_bytes: u64) -> Target {
    let reported = scrape.label(metrics::BUILD_INFO, "feature_tier");
    // Files, labels and tables use the tier's name, and a foreign server may report any text.
    let tier = server.tier.as_deref().or(reported.filter(|tier| is_plain_name(tier)));
    let capacity = scrape.sum(metrics::CACHE_CAPACITY_BYTES, &[]);
    let share = match table_bytes {
        0 => 0.0,
        bytes => capacity / bytes as f64,
    };
    let is_tierlab = scrape.has(metrics::BUILD_INFO);
    Target {
        tier: tier.unwrap_or(NO_TIER).to_owned(),
        cache: if share > 0.0 || !is_tierlab { "as-is" } else { "off" }.into(),
        cache_share: share,
        ..target
    }
}

/// Adds the requests of the other models of a plan's mixes to a target.
async fn with_other_models(plan: &Plan, mut target: Target) -> Result<Target, RunError> {
    for name in plan.other_models() {
        let model = until_accepted(|| target.control.model(name)).await?;
        target.others.insert(name.to_owned(), Content::new(plan, &model)?);
        target.outputs.insert(name.to_owned(), model.outputs);
    }
    Ok(target)
}

/// Requests per rate: more than a p99 needs, even with the variation of a Poisson schedule.
const REQUESTS: f64 = 1_300.0;
/// Repeats of every rate.
const REPEATS: f64 = 5.0;
/// Shortest and longest window of a repeat, in seconds.
const WINDOW_S: (f64, f64) = (2.0, 8.0);

/// Requests of a sweep without a plan.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Without a plan")]
pub struct InlinePlan {
    /// Model on the server, instead of a plan
    #[arg(long, value_name = "NAME", conflicts_with = "plan", requires = "url")]
    model: Option<String>,
    /// Requests per second; may be repeated. Rates from 33 on show a p99 within a minute
    #[arg(long = "rate", value_name = "RPS", default_value = "100", requires = "model")]
    rates: Vec<f64>,
}

impl InlinePlan {
    /// Returns the plan. Resuming such a run needs the same options.
    ///
    /// # Errors
    /// A name or rate that no plan could have.
    pub fn plan(&self, is_grpc: bool) -> Result<Plan, RunError> {
        let Some(name) = self.model.as_deref() else {
            let problem = "give a plan, or measure without one: sweep --url http://HOST:PORT --model NAME --rate RPS";
            return Err(RunError::Usage(problem.into()));
        };
        let slowest = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let window_s = (REQUESTS / REPEATS / slowest).ceil().clamp(WINDOW_S.0, WINDOW_S.1);
        let text = format!(
            "name = {name:?}\nmodel = {name:?}\nseed = 1\nprotocol = \"{}\"\nrepeats = {REPEATS}\nwarmup_s = 1\n\
             step_s = {window_s}\ndrain_s = 2\nmeasure_once = true\n\n[[load]]\nmode = \"realtime\"\nrates = {:?}\n",
            if is_grpc { "grpc" } else { "http" },
            self.rates
        );
        // The lines of this text are none of the user's.
        let plan = Plan::parse(Path::new("command line"), &text);
        Ok(plan.map_err(|error| PlanError { line: None, ..error })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(model: &str, rates: &[f64]) -> Result<Plan, RunError> {
        let rates = rates.to_vec();
        let model = Some(model.to_owned());
        InlinePlan { model, rates }.plan(false)
    }

    #[test]
    fn every_rate_from_33_on_has_a_p99_within_a_minute() {
        for rate in [33.0, 100.0, 20_000.0] {
            let plan = plan("m", &[rate]).unwrap();
            let measured_s = f64::from(plan.repeats) * plan.window.as_secs_f64();
            let all_s = f64::from(plan.repeats) * plan.step_limit().as_secs_f64();
            assert!(
                rate * measured_s > 1_250.0 && all_s < 60.0 && plan.measure_once,
                "{rate}: {measured_s} of {all_s} s"
            );
        }
        assert_eq!(plan("m", &[50.0, 2_000.0]).unwrap().loads.len(), 2);
    }

    #[test]
    fn names_and_rates_are_checked_as_those_of_a_plan() {
        for (model, rate) in [
            ("a\"\nseed = 2", 10.0),
            ("../m", 10.0),
            ("m", -1.0),
            ("m", f64::NAN),
            ("m", f64::INFINITY),
        ] {
            let error = plan(model, &[rate]).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().starts_with("command line: "), "{error}");
        }
    }

    #[test]
    fn a_rate_beside_a_plan_is_refused() {
        let is_accepted = |arguments: &[&str]| {
            let command = SweepOptions::augment_args(clap::Command::new("sweep"));
            command.try_get_matches_from(arguments).is_ok()
        };
        assert!(is_accepted(&["sweep", "plan.toml"]));
        assert!(is_accepted(&[
            "sweep",
            "--url",
            "http://a:1",
            "--model",
            "m",
            "--rate",
            "5"
        ]));
        assert!(!is_accepted(&["sweep", "plan.toml", "--rate", "5"]));
    }
}
