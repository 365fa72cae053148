//! Several load processes on this host, for rates that one cannot hold. In: a step. Out: its samples, all processes'
//! together, as one process would have left them.
//!
//! Each process takes an interleaved share of the one schedule (of N, process k sends requests k, k + N, k + 2N …), and
//! all start their clocks at one moment. Their samples are put together before anything is calculated, so that a
//! result does not depend on how many processes sent it. Knows nothing of statistics.

pub mod message;

use crate::driver::Finished;
use crate::pacer::Observed;
use message::{Ready, SentSample, Setup, Start, StepDone, StepOrder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The most processes of one run.
pub const MOST: u32 = 64;
/// From the word to start until it: enough for every process to have read it.
const LEAD: Duration = Duration::from_millis(50);
/// How long a process may take to make a step's requests and to start its users.
const PREPARE_LIMIT: Duration = Duration::from_secs(120);
/// Beyond the step itself, how long it may take to hand over its samples.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(60);

/// The plan of a run, as its load processes are told it.
#[derive(Debug, Clone, Copy)]
pub struct PlanText<'a> {
    /// What errors name, and what its paths are relative to.
    pub file: &'a Path,
    /// Its text: the file may be changed while the run goes on.
    pub text: &'a str,
}

/// Why load processes could not do their work.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// One ended, timed out, or sent an unexpected message; the text names it.
    #[error("{0}")]
    Failed(String),
    /// One could not be started.
    #[error("{}: {source}", path.display())]
    Io {
        /// The program.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl WorkerError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// The load processes of a run. They end with it.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
    step_limit: Duration,
}

impl Workers {
    /// Starts `size` processes of this executable.
    ///
    /// # Errors
    /// One cannot be started.
    pub async fn start(size: u32, plan: &PlanText<'_>, step_limit: Duration) -> Result<Self, WorkerError> {
        let mut workers = Vec::new();
        for number in 0..size {
            let mut worker = Worker::start(number, size)?;
            let setup = Setup {
                file: plan.file.to_owned(),
                plan: plan.text.to_owned(),
                share: number,
                of: size,
            };
            worker.say(&setup).await?;
            workers.push(worker);
        }
        Ok(Self { workers, step_limit })
    }

    /// How many they are.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.workers.len()
    }

    /// Runs one step with all of them.
    ///
    /// # Errors
    /// One of them failed, ended or timed out; the error names it.
    pub async fn run(&mut self, order: &StepOrder) -> Result<Finished, WorkerError> {
        for worker in &mut self.workers {
            worker.say(order).await?;
        }
        for worker in &mut self.workers {
            let Ready {} = worker.hear(PREPARE_LIMIT).await?;
        }
        let start = Start::at(SystemTime::now() + LEAD);
        for worker in &mut self.workers {
            worker.say(&start).await?;
        }
        let limit = self.step_limit + HAND_OVER_LIMIT;
        let shares = self.workers.iter_mut().map(|worker| worker.finished(limit));
        Ok(together(futures::future::try_join_all(shares).await?))
    }
}

/// What several processes saw, as one would have seen it.
fn together(shares: Vec<Finished>) -> Finished {
    let mut all = Finished {
        samples: Vec::new(),
        observed: Observed {
            limit_hit: false,
            mean_in_flight: 0.0,
        },
        window_began: UNIX_EPOCH,
        examples: BTreeMap::new(),
    };
    for mut share in shares {
        all.samples.append(&mut share.samples);
        all.observed.limit_hit |= share.observed.limit_hit;
        all.observed.mean_in_flight += share.observed.mean_in_flight;
        all.window_began = all.window_began.max(share.window_began);
        for (failure, says) in share.examples {
            all.examples.entry(failure).or_insert(says);
        }
    }
    all
}

/// One process, as the run sees it.
#[derive(Debug)]
struct Worker {
    name: String,
    process: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(number: u32, of: u32) -> Result<Self, WorkerError> {
        let executable = Path::new("/proc/self/exe");
        let program = std::env::current_exe().map_err(WorkerError::io(executable))?;
        let mut process = Command::new(&program)
            .arg("load-process")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the run, which ends its processes.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(WorkerError::io(&program))?;
        let name = format!(
            "load process {} of {of} (id {})",
            number + 1,
            process.id().unwrap_or_default()
        );
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(WorkerError::Failed(format!("{name} has no pipes")));
        };
        Ok(Self {
            name,
            process,
            stdin,
            lines: BufReader::new(stdout).lines(),
        })
    }

    async fn say(&mut self, message: &impl Serialize) -> Result<(), WorkerError> {
        let mut line = message::line(message);
        line.push('\n');
        match self.stdin.write_all(line.as_bytes()).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended().await),
        }
    }

    async fn hear<M: DeserializeOwned>(&mut self, limit: Duration) -> Result<M, WorkerError> {
        let line = match tokio::time::timeout(limit, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None) | Err(_)) => return Err(self.ended().await),
            Err(_) => {
                return Err(WorkerError::Failed(format!(
                    "{} sent no answer for {} s",
                    self.name,
                    limit.as_secs()
                )));
            }
        };
        message::parse(&line).map_err(|what| WorkerError::Failed(format!("{}: {what}", self.name)))
    }

    async fn finished(&mut self, limit: Duration) -> Result<Finished, WorkerError> {
        let done: StepDone = self.hear(limit).await?;
        let mut samples = Vec::with_capacity(done.samples);
        for _ in 0..done.samples {
            samples.push(SentSample::into(self.hear(limit).await?));
        }
        Ok(Finished {
            samples,
            observed: Observed {
                limit_hit: done.limit_hit,
                mean_in_flight: done.mean_in_flight,
            },
            window_began: UNIX_EPOCH + Duration::from_micros(done.window_began_unix_us),
            examples: done.examples.into_iter().collect(),
        })
    }

    /// Why it is gone. Its own words, if it had any, are on stderr already.
    async fn ended(&mut self) -> WorkerError {
        use std::os::unix::process::ExitStatusExt;
        let how = match tokio::time::timeout(Duration::from_secs(5), self.process.wait()).await {
            Ok(Ok(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("with exit code {code}"),
                (None, Some(signal)) => format!("by signal {signal}"),
                (None, None) => "for an unknown reason".to_owned(),
            },
            _ => "its output, but it still runs".to_owned(),
        };
        WorkerError::Failed(format!(
            "{} ended {how} while it was needed; the step under way is lost, finished ones are kept (resume with --resume)",
            self.name
        ))
    }
}
