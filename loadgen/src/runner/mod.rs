//! The order of a run: for each repeat, for each load, for each target, one step. So a slow minute of the machine falls
//! on every tier alike, and tiers are compared on the same arrivals and keys.
//!
//! Searches (`hunt`) come after the plan's own loads.
//!
//! In: a plan and its targets. Out: a [`Run`]; every step is kept in its folder's journal as soon as it is finished, so
//! that a kill loses the step under way only. Knows neither where a target came from nor how a result is shown.

mod hunt;
mod mixed;
mod naming;
mod place;
mod send;

pub use naming::factors;
pub use place::{new_folder, sha256};
pub use send::{Measured, Senders, measure, route, step};

use naming::{line, name};

use crate::analysis;
use crate::analysis::curves::same_but_rate;
use crate::control::Control;
use crate::environment::rfc3339;
use crate::error::RunError;
use crate::interrupt::Interrupt;
use crate::keys::Population;
use crate::plan::{Load, Plan};
use crate::progress::Progress;
use crate::record::{Carried, Check, ColdStart, Environment, Factors, Point, Pricing, Repeat, Run, SCHEMA_VERSION};
use crate::recorder::{self, Label};
use crate::redact;
use crate::reply::Expected;
use crate::report::{self, Journal, Place, Points};
use crate::resume::Earlier;
use crate::schedule::{host_seed, step_seed};
use reqwest::Url;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tierlab_protocol::tensor::TensorSpec;

/// How often a server that did not answer is asked again.
const ASKED_AGAIN: u32 = 3;
const ASKED_AFTER: Duration = Duration::from_millis(300);

/// What a target's requests are made of.
#[derive(Debug, Clone)]
pub enum Content {
    /// Entities whose rows the server joins.
    Joined(Population),
    /// Tensors sent along.
    Inline(Vec<TensorSpec>),
}

/// One server in one cache state.
#[derive(Debug, Clone)]
pub struct Target {
    /// The tier that its features come from.
    pub tier: String,
    /// The cache state's name.
    pub cache: String,
    /// The cache's capacity as share of the table.
    pub cache_share: f64,
    /// The server.
    pub control: Control,
    /// Where it speaks gRPC; wanted by plans over gRPC.
    pub grpc: Option<Url>,
    /// What it is asked.
    pub content: Content,
    /// What its other models are asked, by name, where a plan's mixes ask for them.
    pub others: BTreeMap<String, Content>,
    /// The outputs that its models declare, by the model's name.
    pub outputs: BTreeMap<String, Vec<TensorSpec>>,
}

impl Target {
    /// What a model of it is asked.
    #[must_use]
    pub fn content_of(&self, model: &str) -> &Content {
        self.others.get(model).unwrap_or(&self.content)
    }

    /// What a model's reply to so many rows must look like.
    #[must_use]
    pub fn expected(&self, model: &str, rows: u32) -> Expected {
        Expected::new(model, self.outputs.get(model).map_or(&[], Vec::as_slice), Some(rows))
    }
}

/// What is done to a target before each of its steps.
pub type Prepare<'a> = Box<dyn FnMut(&Target) -> Result<(), RunError> + Send + 'a>;

/// A run under way.
pub struct Runner<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What is measured.
    pub targets: Vec<Target>,
    /// Where the result goes.
    pub folder: PathBuf,
    /// What is there already, of a run that is gone on with.
    pub earlier: Option<Earlier>,
    /// Raised by Ctrl-C.
    pub interrupt: Interrupt,
    /// Who sends.
    pub senders: Senders,
    /// Whether everything that the lab started still runs; asked before each step.
    pub alive: Box<dyn FnMut() -> Result<(), RunError> + Send + 'a>,
    /// Done to a target before each of its steps.
    pub prepare: Prepare<'a>,
}

/// What is known of the instrument before the first step.
#[derive(Debug)]
pub struct Instrument {
    /// Lines of the self-check, where the run makes its own.
    pub selfcheck: Vec<Check>,
    /// The last certificate of this machine, which may be of this very self-check.
    pub certificate: Carried,
    /// The plan's highest load on a null endpoint.
    pub noise_floor: Option<Point>,
}

/// What stands in the result before the first step.
#[derive(Debug)]
pub struct Preamble {
    /// Where the run is made.
    pub environment: Environment,
    /// Sums of the config files.
    pub config_sha256: BTreeMap<String, String>,
    /// Prices.
    pub pricing: Option<Pricing>,
    /// What measures.
    pub instrument: Instrument,
    /// Cold starts, which come before every step.
    pub cold_starts: Vec<ColdStart>,
}

/// The steps of a run: those finished, and the journal that keeps them.
struct Ledger {
    journal: Journal,
    points: Points,
    progress: Progress,
    unanswered: usize,
}

/// Which repeat of a point a step is.
#[derive(Debug, Clone, Copy)]
struct Take {
    index: u32,
    /// How often it was measured before in vain.
    attempt: u32,
    seed: u64,
}

impl Take {
    const fn first(index: u32, seed: u64) -> Self {
        Self {
            index,
            attempt: 0,
            seed,
        }
    }
}

impl Runner<'_> {
    /// Runs every step that is not in the folder already, writes the result and prints its table.
    ///
    /// # Errors
    /// An interruption, a dead process of the lab, or a server that stopped answering: what was finished is written and
    /// printed all the same. A run to be gone on with whose files or servers are others.
    pub async fn run(mut self, preamble: Preamble) -> Result<Run, RunError> {
        let mut run = match self.earlier.take() {
            Some(earlier) => earlier.go_on(&preamble)?,
            None => begin(self.plan, preamble),
        };
        let (journal, finished) = Journal::open(&self.folder)?;
        let points = Points::of(finished);
        self.check_earlier(&points)?;
        report::begin(&run, &self.folder)?;
        let grid = if self.measures_loads() {
            self.plan.loads.len() + self.plan.mixes.iter().map(|mix| mix.rates.len()).sum::<usize>()
        } else {
            0
        };
        let steps = self.targets.len() * grid * self.plan.repeats as usize;
        let mut ledger = Ledger {
            journal,
            points,
            progress: Progress::new(
                steps as u32,
                self.plan.warmup + self.plan.window,
                self.plan.search.is_some(),
            ),
            unanswered: 0,
        };
        let ended = self.steps(&mut run, &mut ledger).await;
        ledger.progress.clear();
        run.interrupted = ended.is_err();
        if ledger.points.all().is_empty() {
            return match ended {
                Err(RunError::Interrupted(_)) => Err(RunError::InterruptedEarly),
                Err(error) => Err(error),
                Ok(()) => Ok(run),
            };
        }
        self.write(&mut run, &ledger.points)?;
        report::print_table(&run);
        eprintln!("result: {}", self.folder.display());
        ended?;
        ledger.journal.remove()?;
        if ledger.unanswered > 0 {
            return Err(RunError::Unsound(format!(
                "the server's metrics could not be read around {} steps; their stages and counters are not in the result",
                ledger.unanswered
            )));
        }
        self.met_somewhere(&run)?;
        Ok(run)
    }

    /// Whether the plan's loads are measured, or are only where searches begin.
    fn measures_loads(&self) -> bool {
        !self.plan.search.as_ref().is_some_and(|search| search.only)
    }

    /// Steps of another server cannot stand in one result with those to come.
    fn check_earlier(&self, points: &Points) -> Result<(), RunError> {
        let expected: Vec<Factors> = self
            .targets
            .iter()
            .flat_map(|target| {
                let loads = self.plan.loads.iter();
                let loads = loads.map(|&load| factors(self.plan, target, load, &self.plan.model));
                loads.chain(mixed::expected(self.plan, target)).collect::<Vec<_>>()
            })
            .collect();
        // A search chooses its own rates.
        let is_expected = |point: &&Point| {
            expected.iter().any(|factors| {
                *factors == point.factors || (self.plan.search.is_some() && same_but_rate(factors, &point.factors))
            })
        };
        match points.all().iter().find(|point| !is_expected(point)) {
            None => Ok(()),
            Some(point) => Err(RunError::Usage(format!(
                "{}: finished steps were measured as {} (cache share {}), which no server is now; start it as it was, or \
                 leave out --resume",
                self.folder.display(),
                name(&point.factors),
                point.factors.cache_share
            ))),
        }
    }

    async fn steps(&mut self, run: &mut Run, ledger: &mut Ledger) -> Result<(), RunError> {
        if self.measures_loads() {
            self.grid(run, ledger).await?;
        }
        self.search(run, ledger).await
    }

    async fn grid(&mut self, run: &mut Run, ledger: &mut Ledger) -> Result<(), RunError> {
        for repeat in 0..self.plan.repeats {
            for (load_index, &load) in self.plan.loads.iter().enumerate() {
                let seed = step_seed(self.plan.seed, repeat, load_index);
                for target_index in 0..self.targets.len() {
                    let place = (target_index, load_index);
                    self.step(ledger, place, load, Take::first(repeat, seed)).await?;
                }
            }
            self.mixes(repeat, ledger).await?;
            // The views are made anew as often as every point has one more repeat; the journal has every step.
            self.write(run, &ledger.points)?;
        }
        Ok(())
    }

    /// One step, unless it is there already.
    async fn step(
        &mut self,
        ledger: &mut Ledger,
        place: Place,
        load: Load,
        Take { index, attempt, seed }: Take,
    ) -> Result<(), RunError> {
        let target = &self.targets[place.0];
        let factors = factors(self.plan, target, load, &self.plan.model);
        let there = ledger.points.step(&factors, index);
        if there.is_some_and(|repeat| repeat.attempt >= attempt) {
            ledger.progress.skip();
            return Ok(());
        }
        (self.alive)()?;
        (self.prepare)(target)?;
        let watch = ledger.progress.begin(&name(&factors));
        let seed = host_seed(seed, self.senders.host);
        let step = send::measure_with(
            self.senders.crew.as_mut(),
            self.plan,
            (target, load, seed),
            &watch,
            &self.interrupt,
        );
        let Some((finished, schedule, server)) = Box::pin(step).await? else {
            return Err(RunError::Interrupted(self.folder.clone()));
        };
        if server.is_none() {
            self.still_there(place, index, &factors).await?;
            ledger.unanswered += 1;
        }
        let label = Label {
            index,
            seed,
            hdr_file: report::hdr_file_of(&factors, index, attempt),
        };
        let repeat = Repeat {
            attempt,
            ..recorder::record(label, &finished, &schedule, server)
        };
        let line = line(&factors, &repeat);
        let step = report::Step { place, factors, repeat };
        ledger.journal.keep(&step)?;
        // Said once it is kept: whoever reads the line may rely on it.
        ledger.progress.finish(&line);
        ledger.points.add(step);
        Ok(())
    }

    /// A server that is gone ends the run: the step that it left in the middle says nothing of the tier, and the steps
    /// to come would say less. One that is only too busy to be asked does not.
    async fn still_there(&mut self, place: Place, repeat: u32, factors: &Factors) -> Result<(), RunError> {
        let control = self.targets[place.0].control.clone();
        let mut last = None;
        for _ in 0..ASKED_AGAIN {
            // A lab knows more of its own processes.
            (self.alive)()?;
            match control.scrape().await {
                Ok(_) => return Ok(()),
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(ASKED_AFTER).await;
        }
        let Some(error) = last else { return Ok(()) };
        let folder = self.folder.display();
        Err(RunError::Stopped(format!(
            "the server went away during {}, repeat {}: {error}\nThat step is dropped, what was finished before is in {folder}; \
             look at the server's log, start it again as it was, and go on with --resume {folder}",
            name(factors),
            repeat + 1,
        )))
    }

    fn write(&self, run: &mut Run, points: &Points) -> Result<(), RunError> {
        run.points = points.all().to_vec();
        run.finished_at = rfc3339(SystemTime::now());
        analysis::conclude(run);
        report::write_anew(run, &self.folder)?;
        Ok(())
    }
}

fn begin(plan: &Plan, preamble: Preamble) -> Run {
    Run {
        schema_version: SCHEMA_VERSION,
        name: plan.name.clone(),
        started_at: rfc3339(SystemTime::now()),
        finished_at: String::new(),
        // Until the last step is finished.
        interrupted: true,
        resumed: Vec::new(),
        plan_toml: redact::toml(&plan.text),
        protocol: plan.protocol.to_string(),
        config_sha256: preamble.config_sha256,
        environment: preamble.environment,
        noise_floor: preamble.instrument.noise_floor,
        selfcheck: preamble.instrument.selfcheck,
        certificates: vec![preamble.instrument.certificate],
        limits: plan.limits.clone(),
        pricing: preamble.pricing,
        slo: plan.search.as_ref().map(|search| search.slo),
        findings: Vec::new(),
        cold_starts: preamble.cold_starts,
        search_stopped: None,
        points: Vec::new(),
    }
}
