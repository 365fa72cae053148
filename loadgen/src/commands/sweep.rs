//! The `sweep` command: one running server, every load of a plan.
//!
//! In: a plan and an address. Out: a run in its folder. The server itself reports its tier and cache.

use crate::commands::judge::PointChecks;
use crate::commands::options::{self, RunOptions, TargetOptions, plain_name, unless_interrupted};
use crate::environment;
use crate::error::RunError;
use crate::plan::{NO_TIER, Plan, TargetPlan};
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
        let problem = "plan of a lab: run it with `tierlab-loadgen lab`, or remove `[lab]` to sweep one server";
        return Err(RunError::about(&plan.file, problem));
    }
    let mut lists = plan.prices.iter();
    lists.try_for_each(|(file, _)| plan.check_opens("prices", file))?;
    options.checks.check(&plan)?;
    let agents = options.run.open_agents()?;
    let resumed = options.run.resumed(&plan)?;
    let server = options.target.apply_to(plan.target.clone())?;
    if options.target.grpc_url.is_some() && !plan.speaks_grpc() {
        let problem = "no request goes over gRPC: set `protocol = \"grpc\"`, or leave out --grpc-url";
        return Err(RunError::about(&plan.file, problem));
    }
    let (target, scrape) = unless_interrupted(&interrupt, Box::pin(open_target(&plan, &server))).await?;
    let pricing = plan.prices.as_ref().map(|(file, instance)| {
        // Without a named tier, a server whose storage the plan does not price costs as much as its instance.
        let tier = Some(target.tier.as_str()).filter(|tier| *tier != NO_TIER);
        prices::load_server(file, instance, tier, server.price.as_deref(), &target.tier)
    });
    let pricing = pricing.transpose()?;
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
    for model in std::iter::once(plan.model.as_str()).chain(plan.other_models()) {
        options::print_notes(&check_reply(plan, &target, model).await?);
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
    #[arg(long, value_name = "NAME", conflicts_with = "plan", requires = "url", value_parser = plain_name)]
    model: Option<String>,
    /// Requests per second; may be repeated. Rates from 33 on show a p99 within a minute
    #[arg(long = "rate", value_name = "RPS", default_value = "100", requires = "model")]
    #[arg(allow_negative_numbers = true)]
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
        // TOML writes rates that are not numbers in another way than Rust.
        let rates = toml::Value::from(self.rates.clone());
        let text = format!(
            "name = {name:?}\nmodel = {name:?}\nseed = 1\nprotocol = \"{}\"\nrepeats = {REPEATS}\nwarmup_s = 1\n\
             step_s = {window_s}\ndrain_s = 2\nmeasure_once = true\n\n[[load]]\nmode = \"realtime\"\nrates = {rates}\n",
            if is_grpc { "grpc" } else { "http" }
        );
        // The name is checked, so the user's only other value is refused.
        let plan = Plan::parse(Path::new("command line"), &text);
        plan.map_err(|error| RunError::usage(error.fault.of_option("--rate")))
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
    fn rates_that_cannot_be_sent_are_refused_by_their_option() {
        for (rates, says) in [
            (&[-1.0][..], "`--rate`: -1 is not between 0.01 and 100000"),
            (&[0.0], "`--rate`: 0 is not between 0.01 and 100000"),
            (
                &[0.1],
                "`--rate`: 0.1/s sends nothing in a step of 8 s; give 0.125 or more",
            ),
            (
                &[5.0, 5.0],
                "`--rate` has a duplicate entry: realtime × 1 at 5 per second",
            ),
            (&[f64::NAN], "`--rate`: NaN is not between 0.01 and 100000"),
            (&[f64::INFINITY], "`--rate`: inf is not between 0.01 and 100000"),
        ] {
            let error = plan("m", rates).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            assert_eq!(error.to_string(), says);
        }
    }

    #[test]
    fn a_model_that_is_not_a_plain_name_is_refused_by_its_option() {
        let command = SweepOptions::augment_args(clap::Command::new("sweep"));
        for model in ["../m", "a\"\nseed = 2", "a\u{1}"] {
            let arguments = ["sweep", "--url", "http://a:1", "--model", model];
            let error = command.clone().try_get_matches_from(arguments).unwrap_err().to_string();
            assert!(
                error.contains("--model <NAME>") && error.contains("use letters"),
                "{error}"
            );
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
