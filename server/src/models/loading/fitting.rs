//! Opening a model's sessions: as its config states them, or fitted to the cores and to the model where it does not.
//!
//! In: what a session is made of, and what the config says. Out: sessions in their groups, warm and waiting for a queue.
//! [`layout`] says which groups to try and which to keep; here sessions are opened and their runs are timed, one model
//! after the other, so that none measures another one's runs. Time is bounded: a few runs in each group, within
//! `runtime.instances.measure_ms` but for the first one of each. The log says what was chosen and why.

use crate::inference::runtime::Threads;
use crate::host::cores::Cores;
use crate::inference::session::layout::{self, FitConfig, SessionGroup, TimedGroup};
use crate::inference::session::open::SessionReport;
use crate::inference::session::spawn::SpawnedSession;
use crate::models::loading::opening::{Opener, WarmGroup, WarmSession, warm, with_reports};
use std::time::Duration;
use tierlab_formats::model::InstanceConfig;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Resources that sessions are sized for.
pub(crate) struct Fitting {
    config: FitConfig,
    cores: Cores,
    /// Held by the model whose runs are measured.
    measuring: Mutex<()>,
}

/// Sessions to open.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Sessions stated in the config.
    Stated(SessionGroup),
    /// Some of these, at least one; those with the fewest threads first.
    Fitted {
        first: SessionGroup,
        wider: Vec<SessionGroup>,
        why: &'static str,
    },
}

impl Plan {
    /// The group of the session that is opened first.
    pub(super) fn first(&self) -> SessionGroup {
        match self {
            Self::Stated(group) | Self::Fitted { first: group, .. } => *group,
        }
    }
}

/// Sessions that are warm.
pub(super) struct OpenSessions {
    /// The widest first.
    pub(super) groups: Vec<SessionGroup>,
    pub(super) sessions: Vec<GroupedSession>,
    pub(super) reports: Vec<SessionReport>,
}

/// A session, and the index of its group.
pub(super) struct GroupedSession {
    pub(super) group: usize,
    pub(super) session: SpawnedSession,
}

/// The groups that were opened, and why these.
struct Chosen {
    groups: Vec<WarmGroup>,
    why: String,
}

impl Fitting {
    /// For the cores of this process, or those that the configuration says.
    pub(crate) fn new(config: FitConfig) -> Self {
        let cores = Cores::of_this_process(config.cores);
        tracing::info!(%cores, "sessions are fitted to these where a model's config states none");
        Self {
            config,
            cores,
            measuring: Mutex::new(()),
        }
    }

    /// Cores that sessions are fitted to.
    pub(super) const fn cores(&self) -> usize {
        self.cores.count as usize
    }

    /// Sessions for a model with `weight_bytes` bytes of weights. On a GPU the default is one session.
    pub(super) fn plan(&self, stated: Option<&InstanceConfig>, weight_bytes: u64, on_cpu: bool) -> Plan {
        if let Some(instances) = stated {
            return Plan::Stated(SessionGroup::stated(instances));
        }
        if !on_cpu {
            return Plan::Stated(SessionGroup::stated(&InstanceConfig::default()));
        }
        let cores = self.cores.count;
        let mut groups = layout::candidates(cores, weight_bytes, self.config.max_weight_bytes);
        let why = match groups.len() {
            1 if cores == 1 => "there is one core",
            1 => "its weights are too large for another session (`runtime.instances.max_weight_bytes`)",
            _ if self.config.measure.is_zero() => {
                groups = layout::unmeasured(&groups);
                groups.reverse();
                "nothing is measured (`runtime.instances.measure_ms`)"
            }
            _ => "",
        };
        let first = groups.remove(0);
        Plan::Fitted {
            first,
            wider: groups,
            why,
        }
    }

    /// Opens the sessions of a plan.
    ///
    /// # Errors
    /// The error of the first session that cannot be opened, or an exceeded limit. A session that was opened only to be
    /// measured is left out if it cannot be opened.
    pub(super) async fn open(&self, plan: &Plan, opener: Opener<'_>) -> Result<OpenSessions, String> {
        let (first, wider, why) = match plan {
            Plan::Stated(group) => return Ok(gather(opener.open_all(&[*group], Vec::new()).await?)),
            Plan::Fitted { first, wider, why } => (*first, wider, *why),
        };
        let model = opener.model;
        let Chosen { groups, why } = if why.is_empty() {
            self.open_fitted(first, wider, opener).await?
        } else {
            let groups = layout::unmeasured(&candidates(first, wider));
            Chosen {
                groups: opener.open_all(&groups, Vec::new()).await?,
                why: why.to_owned(),
            }
        };
        let opened = gather(groups);
        let sessions = opened.groups.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (sessions, cores) = (sessions.join(", "), self.cores);
        tracing::info!(model, sessions, why, %cores, "its config states no instances: they are fitted");
        Ok(opened)
    }

    /// Opens one session of each candidate group, and then the others of the groups that are worth having.
    async fn open_fitted(
        &self,
        first: SessionGroup,
        wider: &[SessionGroup],
        mut opener: Opener<'_>,
    ) -> Result<Chosen, String> {
        let budget = self.config.measure / (1 + wider.len() as u32);
        let mut built = opener.build(1, first.threads, Some(budget)).await?;
        // Its warm-up, and then the runs that are measured. One that takes longer does not delay other loads.
        let reports = timeout(self.config.measure * 2, warm(opener.limits, &mut built)).await;
        let reports = match reports {
            Ok(reports) => reports?,
            Err(_) => Vec::new(),
        };
        let alone = reports.first().map(|report| report.run_time);
        let why = match alone {
            Some(Some(alone)) if alone <= budget => {
                let first = WarmGroup {
                    group: first,
                    sessions: with_reports(built, reports).collect(),
                };
                return Ok(self.open_measured(first, alone, wider, &mut opener).await);
            }
            Some(None) => "it does not run on zeros: nothing is measured",
            _ => "one run takes longer than all that are measured may (`runtime.instances.measure_ms`)",
        };
        let groups = layout::unmeasured(&candidates(first, wider));
        if reports.is_empty() {
            return Ok(Chosen {
                groups: opener.open_all(&groups, built).await?,
                why: why.to_owned(),
            });
        }
        let mut groups = opener.open_all(&without_one(&groups), Vec::new()).await?;
        if let Some(last) = groups.last_mut() {
            last.group.sessions += 1;
            last.sessions.extend(with_reports(built, reports));
        }
        Ok(Chosen {
            groups,
            why: why.to_owned(),
        })
    }

    /// Opens the rest beside a session whose run was measured.
    async fn open_measured(
        &self,
        mut first: WarmGroup,
        alone: Duration,
        wider: &[SessionGroup],
        opener: &mut Opener<'_>,
    ) -> Chosen {
        let short = layout::of_short_runs(self.cores.count, alone).filter(|_| first.group.threads.intra_op == 1);
        let mut chosen = match short {
            Some(group) => {
                first.group = group;
                Chosen {
                    groups: vec![first],
                    why: format!("a run takes {}, too little for several threads", format_time(alone)),
                }
            }
            None => self.measure(first, wider, opener).await,
        };
        for WarmGroup { group, sessions } in &mut chosen.groups {
            match try_open(opener, group.sessions - 1, group.threads, None).await {
                Some(others) => sessions.extend(others),
                None => group.sessions = 1,
            }
        }
        chosen
    }

    /// Times a run in each group, and keeps those that are worth having; the widest first.
    async fn measure(&self, first: WarmGroup, wider: &[SessionGroup], opener: &mut Opener<'_>) -> Chosen {
        let _measuring = self.measuring.lock().await;
        let budget = self.config.measure / (1 + wider.len() as u32);
        let mut tried = vec![first];
        for &group in wider {
            if let Some(sessions) = try_open(opener, 1, group.threads, Some(budget)).await {
                tried.push(WarmGroup { group, sessions });
            }
        }
        let timed: Vec<TimedGroup> = tried
            .iter()
            .map(|tried| TimedGroup {
                group: tried.group,
                run_time: tried.sessions.first().and_then(|first| first.report.run_time),
            })
            .collect();
        let times = timed.iter().filter_map(|timed| {
            let threads = timed.group.threads.intra_op;
            Some(format!(
                "{} with {threads} thread{}",
                format_time(timed.run_time?),
                if threads == 1 { "" } else { "s" }
            ))
        });
        let why = format!("a run takes {}", times.collect::<Vec<_>>().join(", "));
        let groups = layout::worth_having(&timed);
        // Sessions of the others end with their threads.
        tried.retain(|tried| groups.contains(&tried.group));
        tried.reverse();
        Chosen { groups: tried, why }
    }
}

/// Optional sessions; none where one of them cannot be opened.
async fn try_open(
    opener: &mut Opener<'_>,
    count: u32,
    threads: Threads,
    measure: Option<Duration>,
) -> Option<Vec<WarmSession>> {
    let opened = opener.open(count, threads, measure).await;
    let without = |error: &String| {
        tracing::warn!(
            model = opener.model,
            error,
            "more sessions cannot be opened: the model is served without them"
        );
    };
    opened.inspect_err(without).ok()
}

/// The candidate groups; those with the fewest threads first.
fn candidates(first: SessionGroup, wider: &[SessionGroup]) -> Vec<SessionGroup> {
    std::iter::once(first).chain(wider.iter().copied()).collect()
}

/// The same groups where one session of the last is there already.
fn without_one(groups: &[SessionGroup]) -> Vec<SessionGroup> {
    let mut groups = groups.to_vec();
    if let Some(last) = groups.last_mut() {
        last.sessions -= 1;
    }
    groups
}

/// Puts the sessions of all groups together.
fn gather(opened: Vec<WarmGroup>) -> OpenSessions {
    let mut all = OpenSessions {
        groups: Vec::new(),
        sessions: Vec::new(),
        reports: Vec::new(),
    };
    for (index, opened) in opened.into_iter().enumerate() {
        all.groups.push(opened.group);
        for WarmSession { session, report } in opened.sessions {
            all.sessions.push(GroupedSession { group: index, session });
            all.reports.push(report);
        }
    }
    all
}

/// `7 us`, `56.2 ms`.
fn format_time(time: Duration) -> String {
    match time.as_micros() {
        us @ ..1000 => format!("{us} us"),
        _ => format!("{:.1} ms", time.as_secs_f64() * 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitting(cores: u32, measure_ms: u64) -> Fitting {
        Fitting::new(FitConfig {
            cores,
            measure: Duration::from_millis(measure_ms),
            max_weight_bytes: 1000,
        })
    }

    fn planned(plan: &Plan) -> (u32, u32, Vec<u32>) {
        let wider = match plan {
            Plan::Fitted { wider, .. } => wider.iter().map(|group| group.threads.intra_op).collect(),
            Plan::Stated(_) => Vec::new(),
        };
        let first = plan.first();
        (first.sessions, first.threads.intra_op, wider)
    }

    #[test]
    fn what_is_stated_is_opened_as_it_is() {
        let stated = InstanceConfig {
            count: 3,
            intra_op_threads: 4,
            ..InstanceConfig::default()
        };
        let plan = fitting(8, 1000).plan(Some(&stated), 10, true);
        assert_eq!(plan, Plan::Stated(SessionGroup::stated(&stated)));
        assert!(!plan.first().threads.spinning);
        let bare = fitting(8, 1000).plan(Some(&InstanceConfig::default()), 10, true);
        assert_eq!(planned(&bare), (1, 1, vec![]));
        let gpu = fitting(8, 1000).plan(None, 10, false);
        assert_eq!(gpu, Plan::Stated(SessionGroup::stated(&InstanceConfig::default())));
    }

    #[test]
    fn what_is_not_stated_is_fitted() {
        let plan = |cores, measure_ms, bytes| fitting(cores, measure_ms).plan(None, bytes, true);
        assert_eq!(planned(&plan(4, 1000, 10)), (4, 1, vec![2, 4]));
        assert_eq!(planned(&plan(4, 0, 10)), (4, 1, vec![4]));
        assert_eq!(planned(&plan(4, 1000, 900)), (1, 4, vec![]));
        assert_eq!(planned(&plan(1, 1000, 10)), (1, 1, vec![]));
        for (cores, measure_ms, bytes, part) in [
            (1, 1000, 10, "one core"),
            (4, 1000, 900, "max_weight_bytes"),
            (4, 0, 10, "measure_ms"),
        ] {
            let Plan::Fitted { why, .. } = plan(cores, measure_ms, bytes) else {
                panic!("not fitted");
            };
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn times_read_well() {
        assert_eq!(format_time(Duration::from_nanos(7_400)), "7 us");
        assert_eq!(format_time(Duration::from_micros(56_170)), "56.2 ms");
    }
}
