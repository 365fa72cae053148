//! Share of one load process in a step, from the run's view. In: a process. Out: the samples of its share, checked.

use super::message::{ToRun, WorkerReply};
use crate::pacer::Observed;
use crate::schedule::Schedule;
use anyhow::{bail, ensure};
use std::collections::BTreeMap;
use std::time::Duration;
use tierlab_agents::link::{Link, LinkError};
use tierlab_agents::message::printable;
use tierlab_agents::worker::{Worker, WorkerError};
use tierlab_analysis::record::{Failure, Sample};

/// Results of one process.
pub(super) struct Share {
    /// Requests, or whole journeys.
    pub(super) whole: StepShare,
    /// For journeys, the results of each step.
    pub(super) steps: Vec<StepShare>,
    pub(super) observed: Observed,
    pub(super) late_us: u64,
}

/// Results of requests, or of one step of journeys.
#[derive(Debug, Default)]
pub struct StepShare {
    /// Samples; of a step one for each journey that reached it, due with the journey.
    pub samples: Vec<Sample>,
    /// First example of each kind of failure.
    pub examples: BTreeMap<Failure, String>,
}

impl StepShare {
    /// Adds the results of another process.
    pub(super) fn add(&mut self, mut other: Self) {
        self.samples.append(&mut other.samples);
        for (failure, message) in other.examples {
            self.examples.entry(failure).or_insert(message);
        }
    }
}

/// Refuses to send headers and other values that may be secret over a connection that is not private.
pub(super) fn check_privacy(link: &Link, has_secrets: bool) -> Result<(), WorkerError> {
    if link.is_private || !has_secrets {
        return Ok(());
    }
    Err(WorkerError::Failed(format!(
        "{}: the values of headers and of secret keys in the plan would be sent over a connection that others can read: connect to \
         agents over TLS (--agents-ca FILE), or remove them; each agent reads a token from its own variable or file",
        link.name
    )))
}

/// Receives the process's share of a step, for journeys with `steps` steps.
pub(super) async fn finished(
    worker: &mut Worker,
    schedule: Schedule,
    steps: usize,
    limit: Duration,
) -> Result<Share, WorkerError> {
    let received = tokio::time::timeout(limit, read_samples(&mut worker.link, &schedule, steps, limit)).await;
    let share = worker.check(received.unwrap_or(Err(LinkError::Silent(limit)))).await?;
    check_share(&share, &schedule, limit)
        .map_err(|what| WorkerError::Failed(format!("{}: {what}", worker.link.name)))?;
    Ok(share)
}

async fn read_samples(link: &mut Link, schedule: &Schedule, steps: usize, limit: Duration) -> Result<Share, LinkError> {
    let ToRun::Reply(WorkerReply::Done(done)) = link.answer(limit).await? else {
        return Err(LinkError::Unexpected("Done"));
    };
    let requests = schedule.due_us.len();
    if done.samples != requests {
        return Err(LinkError::Reported(format!(
            "it reported {} samples instead of {requests}: its files or its build differ",
            done.samples
        )));
    }
    // A journey reaches each step at most once.
    if done.steps.len() != steps || done.steps.iter().any(|step| step.samples > requests) {
        return Err(LinkError::Reported(
            "its journeys have other steps: its plan or its build differs".to_owned(),
        ));
    }
    let whole = requests + done.steps.iter().map(|step| step.samples).sum::<usize>();
    let mut all = Vec::with_capacity(whole);
    while all.len() < whole {
        match link.answer(limit).await? {
            ToRun::Reply(WorkerReply::Samples(some)) if (1..=whole - all.len()).contains(&some.len()) => {
                all.extend(some);
            }
            ToRun::Reply(WorkerReply::Samples(_)) => {
                let what = "it sent no samples, or more than its share of the schedule";
                return Err(LinkError::Reported(what.to_owned()));
            }
            _ => return Err(LinkError::Unexpected("Samples")),
        }
    }
    let mut rest = all.split_off(requests);
    let steps = done.steps.into_iter().map(|step| {
        let later = rest.split_off(step.samples);
        StepShare {
            samples: std::mem::replace(&mut rest, later),
            examples: step.example.into_iter().map(shown).collect(),
        }
    });
    Ok(Share {
        steps: steps.collect(),
        whole: StepShare {
            samples: all,
            examples: done.examples.into_iter().map(shown).collect(),
        },
        observed: done.observed,
        late_us: done.late_us,
    })
}

/// Makes an example of a failure printable.
fn shown((failure, message): (Failure, String)) -> (Failure, String) {
    (failure, printable(&message))
}

/// Checks that samples belong to a share: due times of the schedule, and ends within the limit.
fn check_share(share: &Share, schedule: &Schedule, limit: Duration) -> anyhow::Result<()> {
    let samples = &share.whole.samples;
    let mut due_us: Vec<u64> = samples.iter().map(|sample| sample.due_us).collect();
    due_us.sort_unstable();
    if due_us != schedule.due_us {
        bail!("its samples belong to another schedule: its files or its build differ");
    }
    let by_step = || share.steps.iter().flat_map(|step| &step.samples);
    let is_known = |sample: &Sample| due_us.binary_search(&sample.due_us).is_ok();
    ensure!(by_step().all(is_known), "its samples belong to unknown journeys");
    let failed = samples.iter().filter(|sample| !sample.is_ok()).count();
    if !share.steps.is_empty() && by_step().filter(|sample| !sample.is_ok()).count() != failed {
        bail!("a failed journey must fail at exactly one step");
    }
    let last_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
    let is_late = |sample: &Sample| sample.done_us.max(sample.sent_us) > last_us;
    let has_late = samples.iter().chain(by_step()).any(is_late);
    ensure!(!has_late, "some of its samples end after the step");
    if !share.observed.mean_in_flight.is_finite() || share.observed.mean_in_flight < 0.0 {
        bail!("it reported an invalid number of requests in flight");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::message::Done;
    use super::*;
    use tierlab_agents::message::MAX_TO_RUN;
    use tierlab_analysis::record::Outcome;

    #[tokio::test]
    async fn secrets_are_refused_to_a_link_that_others_can_read() {
        let link = |is_private| Link::new("host-a:7070".into(), is_private, tokio::io::duplex(64).0);
        let refused = check_privacy(&link(false), true).unwrap_err().to_string();
        for part in ["host-a:7070", "others can read", "--agents-ca"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        check_privacy(&link(false), false).unwrap();
        check_privacy(&link(true), true).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_is_late_with_its_share_is_given_up_by_name() {
        let limit = Duration::from_secs(3);
        let schedule = Schedule {
            due_us: vec![0; 10],
            window_start_us: 0,
            window_end_us: 10,
            window_requests: 10,
            stops: false,
        };
        // Silent at first, and then in time with each message but not with all.
        for silent_s in [3_600, 0] {
            let (near, far) = tokio::io::duplex(1 << 16);
            let link = Link::new("agent a:7070".into(), true, near).admitted(MAX_TO_RUN);
            let mut worker = Worker { link, process: None };
            let mut agent = Link::new("run".into(), true, far);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(silent_s)).await;
                let done = Done {
                    samples: 10,
                    ..Done::default()
                };
                let _ = agent.send(&ToRun::Reply(WorkerReply::Done(done))).await;
                for _ in 0..10 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let sample = Sample {
                        due_us: 0,
                        sent_us: 0,
                        done_us: 1,
                        outcome: Outcome::Ok,
                        timings: None,
                    };
                    let _ = agent.send(&ToRun::Reply(WorkerReply::Samples(vec![sample]))).await;
                }
            });
            let Err(error) = finished(&mut worker, schedule.clone(), 0, limit).await else {
                panic!("the share came after {limit:?}");
            };
            assert!(matches!(error, WorkerError::Lost(_)), "{error}");
            assert_eq!(error.to_string(), "agent a:7070 is lost: no answer for 3 s");
        }
    }

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
            let of = |samples| StepShare {
                samples,
                ..StepShare::default()
            };
            let share = Share {
                whole: of(vec![sample(1_000, failed), sample(0, Outcome::Ok)]),
                steps: [first, second].map(of).into(),
                observed: Observed::default(),
                late_us: 0,
            };
            check_share(&share, &schedule, Duration::from_secs(1))
        };
        let begun = |second| vec![sample(0, Outcome::Ok), sample(1_000, second)];
        let ended = vec![sample(0, Outcome::Ok)];
        share(begun(failed), ended.clone()).unwrap();
        for (first, second, message) in [
            (begun(failed), vec![sample(5, Outcome::Ok)], "unknown journeys"),
            (begun(Outcome::Ok), ended.clone(), "exactly one step"),
            (begun(failed), vec![sample(0, failed)], "exactly one step"),
        ] {
            let refused = share(first, second).unwrap_err().to_string();
            assert!(refused.contains(message), "{refused}");
        }
    }
}
