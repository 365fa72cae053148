//! A run as its reader meets it: facts, groups of curves, what to beware of, and what it all rests on.

use super::answer::AnswerText;
use super::brief::Brief;
use super::cautions::cautions;
use super::gpus::{self, GpuRow};
use super::group::Group;
use super::instrument::Instrument;
use super::point_row::PointRow;
use super::side_tables::{SideTable, side_tables};
use super::{percentiles, reach, requests, words};
use crate::units::bytes;
use std::collections::BTreeMap;
use tierlab_analysis::record::Run;
use tierlab_protocol::timing::Stage;

/// What a report says of a run.
pub(crate) struct Report<'a> {
    /// The plan's name.
    pub(crate) name: &'a str,
    /// When it began.
    pub(crate) started_at: &'a str,
    /// The run in a few lines.
    pub(crate) brief: Brief,
    /// The answer, where a question was asked.
    pub(crate) answer: Option<AnswerText>,
    /// How much was measured.
    pub(crate) amount: Amount,
    /// What was sent: a sentence for each kind of request.
    pub(crate) requests: Vec<String>,
    /// The machine's processor.
    pub(crate) cpu: &'a str,
    /// Its logical cores.
    pub(crate) cores: u32,
    /// The commit that measured.
    pub(crate) commit: &'a str,
    /// How many points have each verdict; none with none.
    pub(crate) verdicts: Vec<(&'static str, usize)>,
    /// Lines of the run's own self-check that failed.
    pub(crate) failed_checks: usize,
    /// Whether the run was stopped before its end.
    pub(crate) is_interrupted: bool,
    /// Whether the latencies of any tier were drawn from a distribution.
    pub(crate) is_emulated: bool,
    /// What is compared with each other, by rising rate.
    pub(crate) groups: Vec<Group<'a>>,
    /// A sentence for every curve under the run's objective.
    pub(crate) reached: Vec<String>,
    /// Every point, in the order of the run.
    pub(crate) points: Vec<PointRow<'a>>,
    /// Why points have no p99, and what would give them one.
    pub(crate) missing_p99: Option<String>,
    /// Parts that any band of latency has.
    pub(crate) parts: Vec<&'static str>,
    /// What is no curve over a rate.
    pub(crate) side_tables: Vec<SideTable>,
    /// What the GPUs did; empty where there was none.
    pub(crate) gpus: Vec<GpuRow<'a>>,
    /// What to know before using the numbers.
    pub(crate) cautions: Vec<String>,
    /// How good the instrument is.
    pub(crate) instrument: Instrument<'a>,
    /// Machine and software by name.
    pub(crate) environment: Vec<(String, String)>,
    /// Where prices come from; absent without prices.
    pub(crate) price_sources: Option<&'a [String]>,
    /// The plan as read.
    pub(crate) plan: &'a str,
    /// SHA-256 of the files used, by path.
    pub(crate) config_sha256: &'a BTreeMap<String, String>,
}

/// How much was measured.
pub(crate) struct Amount {
    /// Points.
    pub(crate) points: usize,
    /// Repeats of the point that has most.
    pub(crate) repeats: usize,
    /// Requests in the percentiles.
    pub(crate) requests: u64,
}

impl<'a> Report<'a> {
    /// All that is to be said of a run.
    pub(crate) fn of(run: &'a Run) -> Self {
        let environment = &run.environment;
        let instrument = Instrument::of(run);
        let answer = AnswerText::of(run);
        let groups: Vec<Group<'_>> = words::groups(run)
            .into_iter()
            .map(|(name, curves)| Group::of(run, name, curves))
            .collect();
        Self {
            name: &run.name,
            started_at: &run.started_at,
            brief: Brief::of(run, answer.as_ref(), &groups, &instrument),
            answer,
            amount: Amount {
                points: run.points.len(),
                repeats: run.points.iter().map(|point| point.repeats.len()).max().unwrap_or(0),
                requests: words::requests(run),
            },
            requests: requests::sentences(run),
            cpu: &environment.cpu,
            cores: environment.cores,
            commit: &environment.git_commit,
            verdicts: verdicts(run),
            failed_checks: run.selfcheck.iter().filter(|check| !check.passed).count(),
            is_interrupted: run.interrupted,
            is_emulated: words::tiers(run).iter().any(|tier| words::is_emulated(run, tier)),
            groups,
            reached: run
                .findings
                .iter()
                .filter_map(|finding| reach::reach(run, finding))
                .collect(),
            points: run.points.iter().map(|point| PointRow::of(run, point)).collect(),
            missing_p99: percentiles::missing_p99(run),
            parts: parts(run),
            side_tables: side_tables(run),
            gpus: gpus::rows(run),
            cautions: cautions(run, &instrument),
            instrument,
            environment: facts(run),
            price_sources: run.pricing.as_ref().map(|pricing| &pricing.sources[..]),
            plan: &run.plan_toml,
            config_sha256: &run.config_sha256,
        }
    }
}

fn verdicts(run: &Run) -> Vec<(&'static str, usize)> {
    let summaries = || run.points.iter().filter_map(|point| point.summary.as_ref());
    ["valid", "saturated", "invalid"]
        .into_iter()
        .map(|word| {
            let of_word = summaries().filter(|summary| words::verdict(&summary.verdict) == word);
            (word, of_word.count())
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn parts(run: &Run) -> Vec<&'static str> {
    let summaries = || run.points.iter().filter_map(|point| point.summary.as_ref());
    let has = |name: &str| {
        summaries()
            .flat_map(|summary| &summary.bands)
            .flat_map(|band| &band.parts_us)
            .any(|(part, us)| part == name && *us > 0.0)
    };
    ["send_lag", "network"]
        .into_iter()
        .chain(Stage::ALL.map(Stage::as_str))
        .chain(["unattributed", "untold"])
        .filter(|name| has(name))
        .collect()
}

fn facts(run: &Run) -> Vec<(String, String)> {
    let environment = &run.environment;
    let mut facts: Vec<(String, String)> = vec![
        (
            "CPU".to_owned(),
            format!("{}, {} logical cores", environment.cpu, environment.cores),
        ),
        ("memory".to_owned(), bytes(environment.memory_bytes)),
        ("kernel".to_owned(), environment.kernel.clone()),
        ("ONNX Runtime".to_owned(), environment.onnxruntime.clone()),
        (
            "GPUs".to_owned(),
            if environment.gpus.is_empty() {
                "none".to_owned()
            } else {
                environment.gpus.join(", ")
            },
        ),
        (
            "Tierlab".to_owned(),
            format!("{}, commit {}", environment.version, environment.git_commit),
        ),
        ("on the same cores".to_owned(), environment.shared_cores.join(", ")),
    ];
    let filesystems = environment.filesystems.iter();
    facts.extend(filesystems.map(|(path, what)| (format!("file system of {path}"), what.clone())));
    let origins = environment.origins.iter();
    facts.extend(origins.map(|(tier, what)| (format!("tier {tier}"), what.clone())));
    facts.retain(|(_, value)| !value.is_empty());
    facts
}
