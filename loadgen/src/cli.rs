//! The command line. In: arguments. Out: an exit code, after the command has run. Parses, hands over, prints errors.

use crate::commands::agents_options::AgentsOptions;
use crate::commands::target_options::TargetOptions;
use crate::commands::{
    advise, agent, answer, coverage, lab, report, selfcheck, simulate_agents, simulate_lab, sweep, trace,
};
use crate::environment::BUILD_COMMIT;
use crate::error::RunError;
use crate::runner::load_process;
use crate::selfcheck::certificate::CertificateStore;
use crate::selfcheck::null_endpoint::{self, OneByOne, Script, Stalls};
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_analysis::curves::comparison;
use tierlab_analysis::record::Run;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::workers;
use tierlab_report::{Comparison, Outcome};

/// Measures what a storage tier does to latency and cost.
///
/// Latency runs from the scheduled send time to the last byte of the reply (open loop, no coordinated omission).
/// Exit codes: 0 success, 1 failure or regression, 2 bad usage or plan, 3 undecided (compare; lab with --baseline or --fail-on undecided), 4 no
/// variant meets the objective (lab with --fail-on unmet), 5 an agent was lost and
/// did not come back, 130 interrupted (with both, what was finished is written).
#[derive(Debug, Parser)]
#[command(
    name = "tierlab-loadgen",
    version = tierlab_program::version(Some(BUILD_COMMIT)),
    after_help = "Examples:\n  \
        tierlab-loadgen lab configs/labs/quick.toml\n  \
        tierlab-loadgen sweep configs/sweeps/quick.toml --url http://127.0.0.1:8000\n  \
        tierlab-loadgen report results/quick-20261101T120000Z\n  \
        tierlab-loadgen compare results/before results/after\n  \
        tierlab-loadgen selfcheck"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Where the certificate of the self-check is.
#[derive(Debug, Args)]
struct CertificateOption {
    /// The file of the self-check's certificate [default: tierlab/certificate.json in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "FILE", env = "TIERLAB_CERTIFICATE")]
    certificate: Option<PathBuf>,
}

impl CertificateOption {
    fn store(self) -> CertificateStore {
        CertificateStore::new(self.certificate, |name| std::env::var_os(name))
    }
}

/// What an answer means to who called.
#[derive(Debug, Args)]
struct JudgedAnswer {
    /// Outcomes of the question that end with a code of their own: `unmet` (no variant meets the objective) with 4, `undecided`
    /// with 3
    #[arg(long, value_name = "OUTCOMES", value_delimiter = ',')]
    fail_on: Vec<answer::FailOn>,
    /// Also writes the answer as JUnit XML, a case for each variant, to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// A run of the same question to compare the answer with: ends with 1 if the p99, highest rate or $/month of a variant is
    /// certainly worse, with 3 if anything cannot be compared
    #[arg(long, value_name = "RUN_FOLDER")]
    baseline: Option<PathBuf>,
}

impl JudgedAnswer {
    /// A question is needed; said before anything is measured.
    fn check(&self, plan: &Path) -> Result<(), RunError> {
        if self.fail_on.is_empty() && self.junit.is_none() && self.baseline.is_none() {
            return Ok(());
        }
        answer::needs_question(plan)?;
        self.junit.as_deref().map_or(Ok(()), answer::can_write)?;
        self.baseline
            .as_deref()
            .map_or(Ok(()), |baseline| answer::baseline(baseline).map(|_| ()))
    }

    fn exit_code(&self, run: &Run) -> Result<u8, RunError> {
        if let Some(file) = &self.junit {
            answer::write_junit(run, file)?;
        }
        let compared = match &self.baseline {
            Some(baseline) => answer::against(&answer::baseline(baseline)?, run),
            None => 0,
        };
        Ok(match (compared, answer::exit_code(run, &self.fail_on)) {
            (1, _) => 1,
            (compared, 0) => compared,
            (_, answered) => answered,
        })
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures one running server over every load of a plan
    ///
    /// Any server of the Open Inference Protocol v2 over HTTP or gRPC (Triton, KServe, MLServer, tierlab-server), and with
    /// `[target] kind = "http"` in the plan any HTTP endpoint.
    #[command(
        after_help = "Examples:\n  tierlab-loadgen sweep configs/sweeps/quick.toml --url http://127.0.0.1:8000 --name first\n  \
            tierlab-loadgen sweep configs/sweeps/quick.toml --url http://127.0.0.1:8000 --resume results/first\n  \
            tierlab-loadgen sweep plan.toml --url http://triton:8000 --metrics-url http://triton:8002/metrics\n  \
            tierlab-loadgen sweep plan.toml --url https://models.example/serving --token-env TOKEN --ca ca.pem \\\n    \
            --metrics-url http://replica-a:8002 --metrics-url http://replica-b:8002\n  \
            tierlab-loadgen sweep plan.toml --url http://server:8000 --agents host-a:7070,host-b:7070 \\\n    \
            --agents-token-env AGENTS_TOKEN"
    )]
    Sweep {
        /// The plan, a TOML file without `[lab]`
        plan: PathBuf,
        #[command(flatten)]
        target: TargetOptions,
        /// The folder that results go to
        #[arg(long, default_value = "results")]
        out: PathBuf,
        /// The result's own folder there [default: the plan's name and the time]
        #[arg(long)]
        name: Option<String>,
        /// Goes on with a run that stopped: its folder, with the same plan and files; takes no --out or --name
        #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = ["out", "name"])]
        resume: Option<PathBuf>,
        /// Seconds that searches may take, in place of the plan's `search.limit_s`
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=604_800))]
        search_limit_s: Option<u32>,
        /// Load processes on this host, each of which sends an interleaved share of every step
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(workers::MOST)))]
        workers: u32,
        /// Prints every table and remark before the answer
        #[arg(long, short)]
        verbose: bool,
        #[command(flatten)]
        agents: AgentsOptions,
        #[command(flatten)]
        certificate: CertificateOption,
    },
    /// Starts origins and a server for every tier and cache state, measures them in turn, and ends them
    #[command(after_help = "Examples:\n  tierlab-loadgen lab configs/labs/quick.toml\n  \
        tierlab-loadgen lab configs/labs/full.toml --out /data/results --bin-dir target/release\n  \
        tierlab-loadgen lab configs/labs/full.toml --resume results/full-20261101T120000Z\n  \
        tierlab-loadgen lab configs/labs/quick.toml --fail-on unmet,undecided --junit answer.xml --baseline results/last")]
    Lab {
        /// The plan, a TOML file with `[lab]`
        plan: PathBuf,
        /// The folder that results go to
        #[arg(long, default_value = "results")]
        out: PathBuf,
        /// The result's own folder there [default: the plan's name and the time]
        #[arg(long)]
        name: Option<String>,
        /// Folder to work in: data, stages, logs [default: the plan's `lab.work`, or below $XDG_STATE_HOME if that cannot be written]
        #[arg(long, value_name = "FOLDER")]
        work: Option<PathBuf>,
        /// Goes on with a run that stopped: its folder, with the same plan and files; takes no --out or --name
        #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = ["out", "name"])]
        resume: Option<PathBuf>,
        /// Where tierlab-server, tierlab-origin and tierlab-models are [default: beside this program]
        #[arg(long)]
        bin_dir: Option<PathBuf>,
        /// Seconds that searches may take, in place of the plan's `search.limit_s`
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=604_800))]
        search_limit_s: Option<u32>,
        /// Load processes, each of which sends an interleaved share of every step
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(workers::MOST)))]
        workers: u32,
        /// Prints every table and remark before the answer
        #[arg(long, short)]
        verbose: bool,
        #[command(flatten)]
        agents: AgentsOptions,
        /// Runs the self-check first and keeps its lines in the result, whatever the plan says
        #[arg(long)]
        selfcheck: bool,
        #[command(flatten)]
        judged: JudgedAnswer,
        #[command(flatten)]
        certificate: CertificateOption,
    },
    /// Makes summary and report of finished runs anew, and prints their answers
    #[command(
        after_help = "Examples:\n  tierlab-loadgen report results/quick-20261101T120000Z\n  \
        tierlab-loadgen report results/a results/b --out /tmp/views --combined both.html"
    )]
    Report {
        /// Folders of runs
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// The folder for summary.csv, report.md and report.html, of several runs one below it for each; without it they
        /// go to the run's own folder, unless that is under version control
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
        /// One report over all of them, to this file
        #[arg(long)]
        combined: Option<PathBuf>,
        /// Prints every table and remark before the answer
        #[arg(long, short)]
        verbose: bool,
    },
    /// Compares two runs: every figure is worse, better, equivalent or undecided
    ///
    /// Exits with 0 if everything is certainly equivalent or better, with 1 if anything is certainly worse, with 2 if a run is
    /// missing or cannot be read, and with 3 if nothing is worse and anything is undecided or cannot be compared.
    #[command(
        after_help = "Examples:\n  tierlab-loadgen compare results/before results/after --markdown\n  \
        tierlab-loadgen compare results/before results/after --json"
    )]
    Compare {
        /// Folder of the run to compare with
        a: PathBuf,
        /// Folder of the run that may have got worse
        b: PathBuf,
        /// The share by which two figures may differ and be equivalent
        #[arg(long, value_name = "SHARE", default_value_t = comparison::WITHIN, value_parser = share)]
        within: f64,
        /// Prints a Markdown table
        #[arg(long)]
        markdown: bool,
        /// Prints JSON: every figure with its values, interval and decision
        #[arg(long, conflicts_with = "markdown")]
        json: bool,
    },
    /// Asks runs of labs another question: another objective, demand or price list, without measuring
    ///
    /// Says what was measured and what was not. Exits with 3 where that does not decide the question, with 4 where no variant
    /// meets the objective.
    #[command(
        after_help = "Examples:\n  tierlab-loadgen advise results/quick-20261122T120000Z --demand-rps 900\n  \
        tierlab-loadgen advise results/a results/b --slo 'p99 < 20 ms' --slo 'errors < 0.1 %' --minimise usd_per_10k --json\n  \
        tierlab-loadgen advise results/quick-20261122T120000Z --prices my-prices.toml --instance aws/c7i.xlarge"
    )]
    Advise {
        /// Folders of runs that were asked a question, of one model and one kind of request; their variants are put together
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        #[command(flatten)]
        asked: advise::Asked,
        /// Prints answer.json
        #[arg(long)]
        json: bool,
    },
    /// Measures the instrument: clock, pacer, histograms, noise floor, and stalls with a known answer
    ///
    /// Keeps its certificate, which every sweep and lab of this build on this machine carries for 7 days.
    #[command(after_help = "Examples:\n  tierlab-loadgen selfcheck\n  \
        tierlab-loadgen selfcheck --certificate here.json --json lines.json")]
    Selfcheck {
        /// Also writes the lines to this file
        #[arg(long)]
        json: Option<PathBuf>,
        #[command(flatten)]
        certificate: CertificateOption,
    },
    /// Simulates how often intervals contain the truth, drifts are found and changes are; exits with 1 where they do not as
    /// they should
    #[command(after_help = "Example:\n  tierlab-loadgen coverage --out results/coverage")]
    Coverage {
        /// The folder that coverage.md and the CSV files beside it go to
        #[arg(long, default_value = "results/coverage")]
        out: PathBuf,
        /// Points simulated for each row
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
        trials: u32,
        /// What all random numbers derive from
        #[arg(long, default_value_t = 20_261_121)]
        seed: u64,
    },
    /// Simulates how often a lab's answer is right, and what it takes beside a fixed design; exits with 1 where it is right less
    /// often than promised
    #[command(after_help = "Example:\n  tierlab-loadgen simulate-lab --out results/decisions")]
    SimulateLab {
        /// The folder that decisions.md and decisions.csv go to
        #[arg(long, default_value = "results/decisions")]
        out: PathBuf,
        /// Labs simulated for each family
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        labs: u32,
        /// What all random numbers derive from
        #[arg(long, default_value_t = 20_261_122)]
        seed: u64,
    },
    /// Simulates a step by up to ten thousand agents: messages, bytes, the time to its start, how far from together they begin, what gives way
    /// first
    #[command(after_help = "Example:\n  tierlab-loadgen simulate-agents --way-us 5000 --start-skew-us 10000")]
    SimulateAgents(simulate_agents::Options),
    /// Sends shares of the steps of runs that other hosts conduct (`--agents`), one run at a time
    ///
    /// It is sent the plan and the files that requests are made of. Tokens and certificates for the server it reads itself, from the
    /// variables and files that the run names. To other hosts it is open only with a token or with mutual TLS.
    #[command(
        after_help = "Examples:\n  tierlab-loadgen agent --listen 0.0.0.0:7070 --token-env AGENTS_TOKEN\n  \
            tierlab-loadgen agent --listen 0.0.0.0:7070 --cert agent.pem --key agent.key --client-ca ca.pem"
    )]
    Agent(agent::Options),
    /// One of several load processes; started by `--workers`
    #[command(hide = true)]
    LoadProcess,
    /// Makes a trace that plans replay out of a log of requests in CSV
    #[command(
        after_help = "Examples:\n  tierlab-loadgen trace access.csv --time ts --unit ms --ids user_id --out trace.csv\n  \
            tierlab-loadgen trace access.csv --time at --unit rfc3339 --batch rows --round-batches --out trace.csv"
    )]
    Trace {
        /// The log: CSV with a header
        log: PathBuf,
        /// Where the trace goes
        #[arg(long)]
        out: PathBuf,
        /// The column of times
        #[arg(long, default_value = "timestamp")]
        time: String,
        /// What times are written in
        #[arg(long, value_enum, default_value_t = trace::Unit::S)]
        unit: trace::Unit,
        /// The column of entity ids, several apart by spaces or semicolons
        #[arg(long)]
        ids: Option<String>,
        /// The column of batch sizes; without it a request has as many as it has ids
        #[arg(long)]
        batch: Option<String>,
        /// Rounds batch sizes up to powers of two: a mix has at most 32 of them
        #[arg(long)]
        round_batches: bool,
    },
    /// A server that does nothing, for noise floors and tests
    #[command(hide = true)]
    NullEndpoint {
        /// The address; port 0 takes a free one
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Length of a stall at the start of every period
        #[arg(long, requires = "stall_every_ms")]
        stall_ms: Option<u64>,
        /// The period
        #[arg(long, requires = "stall_ms", value_parser = clap::value_parser!(u64).range(1..))]
        stall_every_ms: Option<u64>,
        /// Serves one request at a time, each in so many microseconds
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        service_us: Option<u64>,
        /// Draws service times from an exponential distribution with that mean
        #[arg(long, requires = "service_us")]
        exponential: bool,
        /// Ends when stdin does
        #[arg(long)]
        until_stdin_closes: bool,
    },
}

impl Cli {
    /// Runs the command, says on stderr what went wrong, and returns the exit code.
    pub async fn run(self) -> u8 {
        match self.command.run().await {
            Ok(code) => code,
            Err(error) => {
                eprintln!("tierlab-loadgen: {error}");
                error.exit_code()
            }
        }
    }
}

impl Command {
    async fn run(self) -> Result<u8, RunError> {
        match self {
            Self::Sweep {
                plan,
                target,
                out,
                name,
                resume,
                search_limit_s,
                workers,
                verbose,
                agents,
                certificate,
            } => {
                let options = sweep::Options {
                    plan,
                    target,
                    out,
                    name,
                    resume,
                    search_limit_s,
                    workers,
                    verbose,
                    agents,
                    certificates: certificate.store(),
                };
                Box::pin(sweep::run(&options, interrupt()?)).await.map(|()| 0)
            }
            Self::Lab {
                plan,
                out,
                name,
                work,
                resume,
                bin_dir,
                search_limit_s,
                workers,
                verbose,
                agents,
                selfcheck,
                judged,
                certificate,
            } => {
                judged.check(&plan)?;
                let options = lab::Options {
                    plan,
                    out,
                    name,
                    work,
                    resume,
                    bin_dir,
                    search_limit_s,
                    workers,
                    verbose,
                    agents,
                    selfcheck,
                    certificates: certificate.store(),
                };
                let run = Box::pin(lab::run(&options, interrupt()?)).await?;
                judged.exit_code(&run)
            }
            Self::LoadProcess => Box::pin(load_process::serve_here()).await.map(|()| 0),
            Self::Agent(options) => Box::pin(agent::run(&options, interrupt()?)).await.map(|()| 0),
            Self::Report {
                runs,
                out,
                combined,
                verbose,
            } => {
                let to = report::Destination {
                    out: out.as_deref(),
                    combined: combined.as_deref(),
                    verbose,
                };
                report::rewrite(&runs, to)?;
                Ok(0)
            }
            Self::Compare {
                a,
                b,
                within,
                markdown,
                json,
            } => {
                let form = match (markdown, json) {
                    (_, true) => Comparison::json,
                    (true, _) => Comparison::markdown,
                    _ => Comparison::text,
                };
                match report::compare(&a, &b, within, form)? {
                    Outcome::NoRegression => Ok(0),
                    Outcome::Regression => Ok(1),
                    Outcome::Undecided | Outcome::NothingInCommon => Ok(3),
                }
            }
            Self::Advise { runs, asked, json } => advise::run(&runs, &asked, json),
            Self::Selfcheck { json, certificate } => {
                selfcheck::run(json.as_deref(), &certificate.store(), &interrupt()?).await
            }
            Self::Coverage { out, trials, seed } => coverage::run(&out, trials as usize, seed).map(|()| 0),
            Self::SimulateAgents(options) => simulate_agents::run(&options).map(|()| 0),
            Self::SimulateLab { out, labs, seed } => simulate_lab::run(&out, labs as usize, seed).map(|()| 0),
            Self::Trace {
                log,
                out,
                time,
                unit,
                ids,
                batch,
                round_batches,
            } => {
                let options = trace::Options {
                    log,
                    out,
                    time: (time, unit),
                    ids,
                    batch,
                    round_batches,
                };
                trace::run(&options).map(|()| 0)
            }
            Self::NullEndpoint {
                listen,
                stall_ms,
                stall_every_ms,
                service_us,
                exponential,
                until_stdin_closes,
            } => {
                let stalls = stall_ms.zip(stall_every_ms).map(|(length, every)| Stalls {
                    length: Duration::from_millis(length),
                    every: Duration::from_millis(every),
                });
                let one_by_one = service_us.map(|us| OneByOne::new(Duration::from_micros(us), exponential));
                null_endpoint::serve(listen, Script { stalls, one_by_one }, until_stdin_closes)
                    .await
                    .map_err(RunError::io(Path::new(&listen.to_string())))?;
                Ok(0)
            }
        }
    }
}

/// A share above 0 and below 1.
fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if share > 0.0 && share < 1.0 {
        Ok(share)
    } else {
        Err("a share above 0 and below 1 is wanted, as 0.05".to_owned())
    }
}

fn interrupt() -> Result<Interrupt, RunError> {
    Interrupt::install().map_err(|error| RunError::Usage(format!("Ctrl-C cannot be caught: {error}")))
}
