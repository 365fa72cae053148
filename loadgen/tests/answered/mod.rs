//! Synthetic run with a question: three ways to store the features, and the answer of a lab. The answer's figures are
//! constants, not computed: the tests are about their presentation.

use crate::synthetic;
use tierlab_analysis::record::{
    Answer, AnswerOutcome, Demand, MeetsObjective, Minimise, Mode, Objective, OpenQuestion, Percentile, Question,
    Ranked, Run, StageFill, StageState, Variant,
};

/// Names of the variants, by tier and cache of the synthetic run.
const NAMES: [((&str, &str), &str); 4] = [
    (("nvme", "cold"), "nvme"),
    (("nvme", "warm"), "nvme-cached"),
    (("nfs", "cold"), "nfs"),
    (("s3", "cold"), "s3-standard"),
];

/// The run, with an answer of a kind.
pub(crate) fn run(outcome: AnswerOutcome) -> Run {
    let mut run = synthetic::run(3, 1.0);
    run.name = "synthetic question, not a measurement".to_owned();
    run.points.retain_mut(|point| {
        let factors = &mut point.factors;
        let name = NAMES
            .iter()
            .find(|((tier, cache), _)| (*tier, *cache) == (factors.tier.as_str(), factors.cache.as_str()));
        factors.variant = name.map_or_else(String::new, |(_, name)| (*name).to_owned());
        name.is_some() && factors.mode == Mode::Realtime
    });
    run.variants = variants();
    let origins = run.variants.iter();
    run.environment.origins = origins
        .map(|variant| (variant.name.clone(), variant.origin.clone()))
        .collect();
    tierlab_analysis::conclude(&mut run);
    let question = question(outcome);
    run.question = Some(question.clone());
    run.answer = Some(answer(outcome, question));
    run
}

fn question(outcome: AnswerOutcome) -> Question {
    let limit_us = if outcome == AnswerOutcome::None {
        500.0
    } else {
        20_000.0
    };
    Question {
        objectives: vec![Objective::Percentile {
            percentile: Percentile::P99,
            limit_us,
        }],
        error_share: 0.001,
        demand: Some(Demand {
            average_rps: 120.0,
            peak_rps: 300.0,
        }),
        minimise: Minimise::UsdPerMonth,
        mode: Mode::Realtime,
        batch_size: 1,
        budget_s: 1_800.0,
        confidence: 0.95,
        tie: 0.03,
        utilisation: 0.8,
        least_instances: 1,
        highest_rps: 1_000.0,
    }
}

fn variants() -> Vec<Variant> {
    let variant = |name: &str, tier: &str, origin: &str, cache_share: f64| Variant {
        name: name.to_owned(),
        tier: tier.to_owned(),
        origin: origin.to_owned(),
        emulated: None,
        staged: None,
        layout: None,
        cache: if cache_share > 0.0 { "warm" } else { "cold" }.to_owned(),
        cache_share,
        price: None,
        instance: None,
        servers: 1,
        set: Vec::new(),
    };
    vec![
        variant("nvme", "nvme", "real; O_DIRECT", 0.0),
        variant("nvme-cached", "nvme", "real; O_DIRECT", 0.1),
        variant("nfs", "nfs", "embedded; nfs://127.0.0.1/export", 0.0),
        Variant {
            emulated: Some("s3-standard-2025".to_owned()),
            staged: Some(StageState {
                prepared: StageFill::Empty,
                is_shared: false,
                held_bytes: 0,
                capacity_bytes: 1 << 30,
            }),
            ..variant(
                "s3-standard",
                "s3",
                "embedded, emulated after a published distribution",
                0.0,
            )
        },
    ]
}

fn ranked(variant: &str, tier: &str, why: &str) -> Ranked {
    Ranked {
        variant: variant.to_owned(),
        tier: tier.to_owned(),
        outcome: MeetsObjective::Met,
        at_rps: Some(300.0),
        p99_us: Some(1_830.0),
        p99_us_lo: Some(1_640.0),
        p99_us_hi: Some(2_090.0),
        p99_grade: Some(tierlab_analysis::record::Grade::Solid),
        p99_missing: None,
        highest_rps: Some(812.0),
        highest_rps_lo: Some(780.0),
        highest_rps_hi: Some(850.0),
        highest_is_bound: false,
        instances: Some(1),
        instances_lo: Some(1),
        usd_per_month: Some(132.0),
        usd_per_month_lo: Some(128.0),
        usd_per_month_hi: Some(136.0),
        usd_per_10k: Some(0.004_21),
        usd_parts: [("compute", 110.0), ("capacity", 12.0), ("storage requests", 10.0)]
            .map(|(name, usd)| (name.to_owned(), usd))
            .to_vec(),
        dominant_part: Some("batch".to_owned()),
        dominant_share: Some(0.61),
        why: why.to_owned(),
        steps: 18,
    }
}

fn answer(outcome: AnswerOutcome, question: Question) -> Answer {
    let mut answer = Answer {
        question,
        outcome,
        best: Some("nvme".to_owned()),
        confidence: 0.95,
        confirmed: true,
        spent_s: 1_260.0,
        steps: 61,
        disturbed_steps: 3,
        ranking: ranking(),
        open: Vec::new(),
    };
    match outcome {
        AnswerOutcome::Decided => {}
        AnswerOutcome::Undecided => undecided(&mut answer),
        AnswerOutcome::None => none(&mut answer),
    }
    answer
}

fn ranking() -> Vec<Ranked> {
    vec![
        ranked(
            "nvme",
            "nvme",
            "one instance carries the demand, and nothing is paid for requests",
        ),
        Ranked {
            usd_per_month: Some(158.4),
            usd_per_month_lo: Some(151.0),
            usd_per_month_hi: Some(166.0),
            usd_parts: vec![("compute".to_owned(), 140.0), ("capacity".to_owned(), 18.4)],
            highest_rps: Some(1_000.0),
            highest_rps_hi: None,
            highest_is_bound: true,
            ..ranked(
                "nvme-cached",
                "nvme",
                "the cache's memory costs more than the wait that it saves",
            )
        },
        Ranked {
            outcome: MeetsObjective::Unknown,
            p99_us: None,
            p99_us_lo: None,
            usd_per_month: None,
            usd_per_10k: None,
            usd_parts: Vec::new(),
            highest_rps: None,
            instances: None,
            steps: 3,
            ..ranked("nfs", "nfs", "too few samples for a p99 at 300/s")
        },
        Ranked {
            outcome: MeetsObjective::NotMet,
            p99_us: Some(61_200.0),
            p99_us_lo: Some(57_800.0),
            p99_us_hi: Some(66_000.0),
            p99_grade: Some(tierlab_analysis::record::Grade::Solid),
            highest_rps: None,
            highest_rps_lo: None,
            highest_rps_hi: None,
            instances: None,
            usd_per_month: None,
            usd_per_10k: None,
            dominant_part: Some("tier".to_owned()),
            dominant_share: Some(0.94),
            ..ranked(
                "s3-standard",
                "s3",
                "at 50/s, the lowest rate asked, p99 is 61.2 ms <\"&'> 20 ms",
            )
        },
    ]
}

fn undecided(answer: &mut Answer) {
    answer.confidence = 0.81;
    answer.confirmed = false;
    answer.open = vec![
        OpenQuestion {
            variants: vec!["nvme".to_owned(), "nvme-cached".to_owned()],
            what: "which of them is the cheapest per month".to_owned(),
            more_s: Some(540.0),
        },
        OpenQuestion {
            variants: vec!["nfs".to_owned()],
            what: "whether the objective is met at 300/s is not known".to_owned(),
            more_s: None,
        },
    ];
}

fn none(answer: &mut Answer) {
    answer.best = None;
    answer.disturbed_steps = 0;
    for ranked in &mut answer.ranking {
        ranked.outcome = MeetsObjective::NotMet;
        ranked.why = "p99 stays above 500 us at every rate asked".to_owned();
        (ranked.highest_rps, ranked.highest_rps_lo, ranked.highest_rps_hi) = (None, None, None);
        (ranked.instances, ranked.usd_per_month, ranked.usd_per_10k) = (None, None, None);
    }
}
