//! Command line. In: arguments. Out: an exit code, after the command has run. Parses arguments, calls the command and
//! prints its errors.

use crate::commands::{advise, init, judge, lab, report, sweep};
use crate::environment::build_commit;
use crate::error::RunError;
use crate::plan;
use crate::runner::load_process::{self, Secrets};
use crate::selfcheck::certificate::CertificateStore;
use crate::selfcheck::{self, null_endpoint};
use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use tierlab_agents::options::AgentOptions;
use tierlab_analysis::record::Run;
use tierlab_load::interrupt::{EXIT_CODE, Interrupt};

/// Measures the effect of a storage tier on latency and cost.
///
/// Latency runs from the scheduled send time to the last byte of the reply (open loop, no coordinated omission). Exit
/// codes: 0 success, 1 failure or regression, 2 bad usage, plan or missing input, 3 undecided (compare; --baseline;
/// lab --fail-on undecided; sweep --fail-on invalid,slo), 4 objective not met (lab --fail-on unmet; sweep --fail-on
/// slo), 5 an agent was lost and did not come back, 130 interrupted (5 and 130 keep the finished steps).
#[derive(Debug, Parser)]
#[command(
    name = "tierlab-loadgen",
    version = tierlab_program::version(Some(build_commit())),
    after_help = "Examples:\n  \
        tierlab-loadgen lab configs/labs/quick.toml\n  \
        tierlab-loadgen sweep configs/sweeps/quick.toml --url http://127.0.0.1:8000\n  \
        tierlab-loadgen report results/quick-20261101T120000Z\n  \
        tierlab-loadgen compare results/before results/after\n  \
        tierlab-loadgen selfcheck"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures one running server over every load of a plan
    ///
    /// Works with any server of the Open Inference Protocol v2 over HTTP or gRPC (Triton, KServe, MLServer,
    /// tierlab-server), and with any HTTP endpoint if the plan has `[target] kind = "http"`.
    #[command(
        after_help = "Examples:\n  tierlab-loadgen sweep --url http://127.0.0.1:8000 --model my-model --rate 200\n  \
            tierlab-loadgen sweep configs/sweeps/quick.toml --url http://127.0.0.1:8000 --name first\n  \
            tierlab-loadgen sweep plan.toml --url http://server:8000 --slo 'p99 < 50 ms' --fail-on invalid,slo --junit points.xml\n  \
            tierlab-loadgen sweep configs/sweeps/quick.toml --url http://127.0.0.1:8000 --resume results/first\n  \
            tierlab-loadgen sweep plan.toml --url http://triton:8000 --metrics-url http://triton:8002/metrics\n  \
            tierlab-loadgen sweep plan.toml --url https://models.example/serving --token-env TOKEN --ca ca.pem \\\n    \
            --metrics-url http://replica-a:8002 --metrics-url http://replica-b:8002\n  \
            tierlab-loadgen sweep plan.toml --url http://server:8000 --agents host-a:7070,host-b:7070 \\\n    \
            --agents-token-env AGENTS_TOKEN"
    )]
    Sweep(Box<sweep::SweepOptions>),
    /// Writes a commented plan to edit
    #[command(
        after_help = "Examples:\n  tierlab-loadgen init lab my-lab\n  tierlab-loadgen init sweep mine.toml\n  \
        tierlab-loadgen init endpoint mine.toml"
    )]
    Init(init::InitOptions),
    /// Prints the JSON Schema of a file, for editors
    #[command(after_help = "Example:\n  tierlab-loadgen schema plan > plan.schema.json")]
    Schema { file: SchemaFile },
    /// Starts origins and a server for every tier and cache state, measures all of them interleaved, and stops them
    #[command(after_help = "Examples:\n  tierlab-loadgen lab configs/labs/quick.toml\n  \
        tierlab-loadgen lab configs/labs/full.toml --out /data/results --bin-dir target/release\n  \
        tierlab-loadgen lab configs/labs/full.toml --resume results/full-20261101T120000Z\n  \
        tierlab-loadgen lab configs/labs/quick.toml --fail-on unmet,undecided --junit answer.xml --baseline results/last")]
    Lab {
        #[command(flatten)]
        options: lab::LabOptions,
        #[command(flatten)]
        checks: judge::AnswerChecks,
    },
    /// Rewrites summary and report of finished runs, and prints their answers
    #[command(
        after_help = "Examples:\n  tierlab-loadgen report results/quick-20261101T120000Z\n  \
        tierlab-loadgen report results/a results/b --out /tmp/views --combined both.html"
    )]
    Report(report::ReportOptions),
    /// Compares two runs: every figure is worse, better, equivalent or undecided
    ///
    /// Exits with 0 if everything is certainly equivalent or better, with 1 if anything is certainly worse, with 2 if a
    /// run is missing or cannot be read, and with 3 if nothing is worse and anything is undecided or cannot be
    /// compared.
    #[command(
        after_help = "Examples:\n  tierlab-loadgen compare results/before results/after --markdown\n  \
        tierlab-loadgen compare results/before results/after --json"
    )]
    Compare(report::CompareOptions),
    /// Answers another question from finished labs: another objective, demand or price list, without measuring
    ///
    /// Shows which steps were measured and which are missing. Exits with 3 if they do not decide the question, with 4
    /// if no variant meets the objective.
    #[command(
        after_help = "Examples:\n  tierlab-loadgen advise results/quick-20261122T120000Z --demand-rps 900\n  \
        tierlab-loadgen advise results/a results/b --slo 'p99 < 20 ms' --slo 'errors < 0.1 %' --minimise usd_per_10k --json\n  \
        tierlab-loadgen advise results/quick-20261122T120000Z --prices my-prices.toml --instance aws/c7i.xlarge"
    )]
    Advise(advise::AdviseOptions),
    /// Measures the instrument: clock, pacer, histograms, noise floor, and stalls with a known answer
    ///
    /// Stores a certificate, which every sweep and lab of this build on this machine carries for 7 days.
    #[command(after_help = "Examples:\n  tierlab-loadgen selfcheck\n  \
        tierlab-loadgen selfcheck --certificate here.json --json lines.json")]
    Selfcheck {
        /// Also writes the lines to this file as JSON
        #[arg(long)]
        json: Option<PathBuf>,
        #[command(flatten)]
        certificates: CertificateStore,
    },
    /// Sends shares of the steps of runs that other hosts conduct (`--agents`), one run at a time
    ///
    /// The run sends the plan and its input files to the agent. The agent reads tokens and certificates for the server
    /// itself, from the variables and files that the run names. Other hosts can only connect with a token or with
    /// mutual TLS.
    #[command(
        after_help = "Examples:\n  tierlab-loadgen agent --listen 0.0.0.0:7070 --token-env AGENTS_TOKEN\n  \
            tierlab-loadgen agent --listen 0.0.0.0:7070 --cert agent.pem --key agent.key --client-ca ca.pem"
    )]
    Agent {
        #[command(flatten)]
        agent: AgentOptions,
        #[command(flatten)]
        allowed: Secrets,
    },
    /// One of several load processes; started by `--workers`
    #[command(hide = true)]
    LoadProcess,
    /// Runs a server that does nothing, for noise floors and tests
    #[command(hide = true)]
    NullEndpoint(null_endpoint::NullEndpointOptions),
}

/// File with a schema.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SchemaFile {
    /// Plan of a sweep or lab
    Plan,
    /// `run.json` of a run's results
    Run,
}

/// Runs the program with the arguments of the process. Part of the library, so that its futures are compiled once.
///
/// # Errors
/// The runtime cannot start.
pub fn main() -> anyhow::Result<ExitCode> {
    let cli: Cli = tierlab_program::start();
    tierlab_program::can_start_workers(0).context("tierlab-loadgen")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(cli.command.run()).unwrap_or_else(|error| {
        eprintln!("tierlab-loadgen: {error}");
        error.exit_code()
    });
    // Requests of a dropped step are not waited for.
    runtime.shutdown_background();
    Ok(ExitCode::from(code))
}

impl Command {
    async fn run(self) -> Result<u8, RunError> {
        match self {
            Self::Sweep(options) => Box::pin(sweep::run(&options, interrupt()?)).await,
            Self::Init(options) => init::run(&options).map(|()| 0),
            Self::Schema { file } => {
                let schema = match file {
                    SchemaFile::Plan => plan::schema(),
                    SchemaFile::Run => tierlab_program::schema::of_json::<Run>(),
                };
                println!("{:#}", schema.as_value());
                Ok(0)
            }
            Self::Lab { options, checks } => {
                checks.check(&options.plan)?;
                let run = Box::pin(lab::run(&options, interrupt()?)).await?;
                checks.exit_code(&run)
            }
            Self::LoadProcess => Box::pin(load_process::serve_parent()).await.map(|()| 0),
            Self::Agent { agent, allowed } => {
                let serving = load_process::serve_remote(&agent, &allowed, interrupt()?);
                Box::pin(serving).await.map(|()| 0)
            }
            Self::Report(options) => report::rewrite(&options).map(|()| 0),
            Self::Compare(options) => report::compare(&options),
            Self::Advise(options) => advise::run(&options),
            Self::Selfcheck { json, certificates } => {
                selfcheck::run(json.as_deref(), &certificates, &interrupt()?).await
            }
            Self::NullEndpoint(options) => null_endpoint::run(&options).await.map(|()| 0),
        }
    }
}

/// Handles signals: the first requests an orderly end, a later one ends the process at once. Installed before goose, which
/// then cannot install its own handler.
fn interrupt() -> Result<Interrupt, RunError> {
    let (raise, interrupt) = Interrupt::new();
    let first = move || {
        raise();
        eprintln!("interrupted: dropping the step, writing finished ones; interrupt again to end at once");
    };
    let again = || {
        eprintln!("interrupted again: ending at once");
        std::process::exit(i32::from(EXIT_CODE));
    };
    let handled = tierlab_program::on_interrupt(first, again);
    handled.map_err(|error| RunError::Usage(format!("cannot handle Ctrl-C: {error}")))?;
    Ok(interrupt)
}
