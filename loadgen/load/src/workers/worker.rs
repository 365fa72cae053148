//! One load process from the run's view, on any host. In: a link, or a number on this host. Out: the process's time, and
//! samples of its share, checked.

use super::clock::{self, Offset, TRIPS, Trip, WallClock};
use super::link::{Link, LinkError};
use super::message::{self, MOST_TO_RUN, StepOrder, ToRun, ToWorker, printable};
use crate::pacer::Observed;
use crate::schedule::Schedule;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tierlab_analysis::record::{Failure, Sample};
use tokio::process::{Child, Command};

/// Time limit for the answer to a ping.
const TRIP_LIMIT: Duration = Duration::from_secs(10);
/// Time to wait for the last output of a process that ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Failure of a load process.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// One ended, timed out, refused, or sent an unexpected message; the text names it.
    #[error("{0}")]
    Failed(String),
    /// The connection to an agent is lost; the text names it.
    #[error("{0}")]
    Lost(String),
    /// A process could not be started, or a file could not be sent.
    #[error("{}: {source}", path.display())]
    Io {
        /// Program or file.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
}

impl WorkerError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Results of one process.
pub(super) struct Share {
    pub(super) samples: Vec<Sample>,
    /// For journeys, the results of each step.
    pub(super) steps: Vec<StepShare>,
    pub(super) observed: Observed,
    pub(super) late_us: u64,
    pub(super) examples: Vec<(Failure, String)>,
}

/// Results of one step of journeys.
#[derive(Debug, Default)]
pub struct StepShare {
    /// Samples, one for each journey that reached the step, due with the journey.
    pub samples: Vec<Sample>,
    /// Examples of failures.
    pub examples: BTreeMap<Failure, String>,
}

/// Estimate of a process's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) offset: Offset,
    /// Duration of the longest trip.
    pub(super) slowest: Duration,
}

/// One process from the run's view.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) link: Link,
    /// Child process, if it runs on this host.
    pub(super) process: Option<Child>,
}

impl Worker {
    /// Starts process `number` of `of` on this host, one of this executable, with a link over its pipes.
    pub(super) fn start(number: u32, of: u32) -> Result<Self, WorkerError> {
        let executable = Path::new("/proc/self/exe");
        let program = std::env::current_exe().map_err(WorkerError::io(executable))?;
        let mut process = Command::new(&program)
            .arg("load-process")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is handled by the run, which ends its processes.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(WorkerError::io(&program))?;
        let id = process.id().unwrap_or_default();
        let name = format!("load process {} of {of} (id {id})", number + 1);
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(WorkerError::Failed(format!("{name} has no pipes")));
        };
        Ok(Self {
            link: Link::new(name, true, tokio::io::join(stdout, stdin)).admitted(MOST_TO_RUN),
            process: Some(process),
        })
    }

    /// Adds the process's name and end to an error of its link.
    pub(super) async fn check<T>(&mut self, heard: Result<T, LinkError>) -> Result<T, WorkerError> {
        let error = match heard {
            Ok(message) => return Ok(message),
            Err(error) => error,
        };
        // The peer may have sent the reason before it closed the connection.
        if error.is_gone()
            && let Err(LinkError::Says(what)) = self.link.answer(LAST_WORDS).await
        {
            return Err(WorkerError::Failed(format!("{}: {what}", self.link.name)));
        }
        let name = &self.link.name;
        Err(match &mut self.process {
            Some(process) if error.is_closed() => {
                let how = how_it_ended(process).await;
                WorkerError::Failed(format!(
                    "{name} ended {how} while it was needed; the step under way is lost, finished ones are kept (resume with --resume)"
                ))
            }
            None if error.is_gone() => WorkerError::Lost(format!("{name} is lost: {error}")),
            _ => WorkerError::Failed(format!("{name}: {error}")),
        })
    }

    /// Refuses to send an order with headers over a connection that is not private, because their values may be secret.
    pub(super) fn may_be_told(&self, order: &StepOrder) -> Result<(), WorkerError> {
        if self.link.is_private || order.target.access.headers.is_empty() {
            return Ok(());
        }
        Err(WorkerError::Failed(format!(
            "{}: requests carry headers, whose values may be secret, and the way to the agent can be read by others: speak to agents \
             over TLS (--agents-ca FILE), or leave the headers out; a token is read by each agent from its own variable or file",
            self.link.name
        )))
    }

    pub(super) async fn ask_the_time(&mut self, clock: &WallClock) -> Result<Known, WorkerError> {
        let mut trips = Vec::with_capacity(TRIPS);
        for _ in 0..TRIPS {
            let asked_ns = clock.now_ns();
            let said = self.link.say(&ToWorker::Ping).await;
            self.check(said).await?;
            let heard = match self.link.answer(TRIP_LIMIT).await {
                Ok(ToRun::Pong(there_ns)) => Ok((there_ns, clock.now_ns())),
                Ok(_) => Err(LinkError::Unexpected("Pong")),
                Err(error) => Err(error),
            };
            let (there_ns, back_ns) = self.check(heard).await?;
            trips.push(Trip {
                asked_ns,
                there_ns,
                back_ns,
            });
        }
        let slowest = trips.iter().map(Trip::took_ns).max().unwrap_or_default();
        let offset = clock::offset(&trips).unwrap_or(Offset {
            ns: 0,
            uncertainty_ns: u64::MAX,
        });
        Ok(Known {
            offset,
            slowest: Duration::from_nanos(slowest),
        })
    }

    /// Receives the process's share of a step, for journeys with `steps` steps.
    pub(super) async fn finished(
        &mut self,
        schedule: Schedule,
        steps: usize,
        limit: Duration,
    ) -> Result<Share, WorkerError> {
        let heard = match tokio::time::timeout(limit, self.hear_samples(&schedule, steps, limit)).await {
            Ok(heard) => heard,
            Err(_) => Err(LinkError::Silent(limit)),
        };
        let share = self.check(heard).await?;
        check_share(&share, &schedule, limit)
            .map_err(|what| WorkerError::Failed(format!("{}: {what}", self.link.name)))?;
        Ok(share)
    }

    async fn hear_samples(&mut self, schedule: &Schedule, steps: usize, limit: Duration) -> Result<Share, LinkError> {
        let ToRun::Done(done) = self.link.answer(limit).await? else {
            return Err(LinkError::Unexpected("Done"));
        };
        let most = schedule.due_us.len();
        if done.samples != most {
            return Err(LinkError::Says(format!(
                "it has {} samples where its share of the schedule has {most}: its files or its build are others",
                done.samples
            )));
        }
        // A journey reaches each step at most once.
        if done.steps.len() != steps || done.steps.iter().any(|step| step.samples > most) {
            return Err(LinkError::Says(
                "its journeys have other steps: its plan or its build is another".to_owned(),
            ));
        }
        let whole = most + done.steps.iter().map(|step| step.samples).sum::<usize>();
        let mut all = Vec::with_capacity(whole);
        while all.len() < whole {
            match self.link.answer(limit).await? {
                ToRun::Samples(some) if (1..=whole - all.len()).contains(&some.len()) => {
                    all.extend(some.into_iter().map(message::sample));
                }
                ToRun::Samples(_) => {
                    let what = "it has none, or more samples than the share of the schedule has";
                    return Err(LinkError::Says(what.to_owned()));
                }
                _ => return Err(LinkError::Unexpected("Samples")),
            }
        }
        let mut rest = all.split_off(most);
        let steps = done.steps.into_iter().map(|step| {
            let later = rest.split_off(step.samples);
            StepShare {
                samples: std::mem::replace(&mut rest, later),
                examples: step.example.into_iter().map(shown).collect(),
            }
        });
        Ok(Share {
            steps: steps.collect(),
            samples: all,
            observed: Observed {
                limit_hit: done.limit_hit,
                mean_in_flight: done.mean_in_flight,
                stopped_us: None,
            },
            late_us: done.late_us,
            examples: done.examples.into_iter().map(shown).collect(),
        })
    }
}

/// Makes an example of a failure printable.
fn shown((failure, says): (Failure, String)) -> (Failure, String) {
    (failure, printable(&says))
}

/// Checks that samples belong to a share: due times of the schedule, and ends within the limit.
fn check_share(share: &Share, schedule: &Schedule, limit: Duration) -> Result<(), String> {
    let mut due_us: Vec<u64> = share.samples.iter().map(|sample| sample.due_us).collect();
    due_us.sort_unstable();
    if due_us != schedule.due_us {
        return Err("its samples are of another schedule: its files or its build are others".to_owned());
    }
    let of_steps = || share.steps.iter().flat_map(|step| &step.samples);
    if of_steps().any(|sample| due_us.binary_search(&sample.due_us).is_err()) {
        return Err("its samples are of journeys that the schedule does not have".to_owned());
    }
    let failed = share.samples.iter().filter(|sample| !sample.is_ok()).count();
    if !share.steps.is_empty() && of_steps().filter(|sample| !sample.is_ok()).count() != failed {
        return Err("its journeys failed at none of their steps, or at several".to_owned());
    }
    let last_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
    if share
        .samples
        .iter()
        .chain(of_steps())
        .any(|sample| sample.done_us.max(sample.sent_us) > last_us)
    {
        return Err("its samples say of requests that they ended after the step".to_owned());
    }
    if !share.observed.mean_in_flight.is_finite() || share.observed.mean_in_flight < 0.0 {
        return Err("it says that a number of requests was in flight that is none".to_owned());
    }
    Ok(())
}

/// Description of how a needed process ended.
async fn how_it_ended(process: &mut Child) -> String {
    use std::os::unix::process::ExitStatusExt;
    match tokio::time::timeout(Duration::from_secs(5), process.wait()).await {
        Ok(Ok(status)) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("with exit code {code}"),
            (None, Some(signal)) => format!("by signal {signal}"),
            (None, None) => "for an unknown reason".to_owned(),
        },
        _ => "its output, but it still runs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::Outcome;

    #[test]
    fn journeys_of_a_share_are_due_when_it_says_and_fail_at_one_step() {
        let sample = |due_us: u64, outcome| Sample {
            due_us,
            sent_us: due_us,
            done_us: due_us + 100,
            outcome,
            timings: None,
        };
        let failed = Outcome::Failed(Failure::Timeout);
        let schedule = Schedule {
            due_us: vec![0, 1_000],
            window_start_us: 0,
            window_end_us: 2_000,
            window_requests: 2,
            stops: false,
        };
        let share = |first: Vec<Sample>, second: Vec<Sample>| {
            let share = Share {
                samples: vec![sample(1_000, failed), sample(0, Outcome::Ok)],
                steps: [first, second]
                    .map(|samples| StepShare {
                        samples,
                        ..StepShare::default()
                    })
                    .into(),
                observed: Observed {
                    limit_hit: false,
                    mean_in_flight: 0.1,
                    stopped_us: None,
                },
                late_us: 0,
                examples: Vec::new(),
            };
            check_share(&share, &schedule, Duration::from_secs(1))
        };
        let begun = |second| vec![sample(0, Outcome::Ok), sample(1_000, second)];
        let ended = vec![sample(0, Outcome::Ok)];
        assert_eq!(share(begun(failed), ended.clone()), Ok(()));
        for (first, second, says) in [
            (begun(failed), vec![sample(5, Outcome::Ok)], "does not have"),
            (begun(Outcome::Ok), ended.clone(), "none of their steps"),
            (begun(failed), vec![sample(0, failed)], "or at several"),
        ] {
            let refused = share(first, second).unwrap_err();
            assert!(refused.contains(says), "{refused}");
        }
    }
}
