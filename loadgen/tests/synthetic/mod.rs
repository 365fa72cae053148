//! Synthetic run for testing the report. Its latencies are drawn from distributions; nothing in it is a measurement,
//! and its name says so.

use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tierlab_analysis::record::{
    Check, Environment, Factors, Failure, Histograms, InstancePrice, Interval, Limits, Mode, Objective, Outcome,
    Percentile, Point, Pricing, Repeat, Run, SCHEMA_VERSION, Sample, ServerDelta, Slo,
};
use tierlab_loadgen::error::StoreError;
use tierlab_loadgen::store::folder;
use tierlab_loadgen::store::histograms::hdr_file;
use tierlab_loadgen::store::journal::{FinishedStep, Journal};
use tierlab_protocol::timing::{Stage, StageTimings};

const WINDOW_S: f64 = 4.0;
const BLOCK_S: f64 = 0.5;

/// Behaviour of a tier: median wait and its spread, and the requests per second of the whole server.
struct Tier {
    name: &'static str,
    wait_us: f64,
    sigma: f64,
    capacity_rps: f64,
}

const TIERS: [Tier; 3] = [
    Tier {
        name: "nvme",
        wait_us: 140.0,
        sigma: 0.25,
        capacity_rps: 2_400.0,
    },
    Tier {
        name: "nfs",
        wait_us: 900.0,
        sigma: 0.45,
        capacity_rps: 1_100.0,
    },
    Tier {
        name: "s3",
        wait_us: 14_000.0,
        sigma: 0.6,
        capacity_rps: 500.0,
    },
];

/// A run over three tiers, two cache states and two modes. `slowdown` multiplies the wait of the `s3` tier.
#[allow(clippy::too_many_lines, reason = "a record")]
pub(crate) fn run(repeats: u32, slowdown: f64) -> Run {
    let mut points = Vec::new();
    for (mode, batch_size, rates) in [
        (Mode::Realtime, 1, &[100.0, 400.0, 800.0][..]),
        (Mode::Batch, 32, &[20.0, 80.0][..]),
    ] {
        for tier in &TIERS {
            for (cache, cache_share) in [("cold", 0.0), ("warm", 0.1)] {
                for &offered_rps in rates {
                    let factors = Factors {
                        variant: String::new(),
                        tier: tier.name.to_owned(),
                        cache: cache.to_owned(),
                        cache_share,
                        model: "ctr".to_owned(),
                        mode,
                        batch_size,
                        offered_rps,
                        arrivals: "poisson".to_owned(),
                        keys: "zipf(1.10)".to_owned(),
                        mix: None,
                        driven: None,
                    };
                    let wait = if tier.name == "s3" { slowdown } else { 1.0 };
                    points.push(point(factors, tier, wait, repeats));
                }
            }
        }
    }
    let limits = Limits::default();
    let pricing = pricing();
    let slo = Slo {
        objective: Objective::Percentile {
            percentile: Percentile::P99,
            limit_us: 20_000.0,
        },
        error_share: limits.error_share,
        lowest_rps: 20.0,
        highest_rps: 800.0,
        resolution: 0.05,
    };
    let mut noise_floor = floor(repeats);
    tierlab_analysis::summarise(std::slice::from_mut(&mut noise_floor), &limits, None);
    let mut run = Run {
        schema_version: SCHEMA_VERSION,
        name: "synthetic, not a measurement <&\">".to_owned(),
        started_at: "2026-11-20T12:00:00Z".to_owned(),
        finished_at: "2026-11-20T12:06:40Z".to_owned(),
        interrupted: false,
        resumed: Vec::new(),
        plan_toml: "# synthetic\nname = \"</script><b>not bold</b>\"\n".to_owned(),
        protocol: "http".to_owned(),
        config_sha256: BTreeMap::from([("labs/synthetic.toml".to_owned(), "00".repeat(32))]),
        environment: environment(),
        noise_floor: Some(noise_floor),
        selfcheck: checks(),
        certificates: Vec::new(),
        limits,
        pricing: Some(pricing),
        slo: Some(slo),
        findings: Vec::new(),
        search_stopped: None,
        left_out: Vec::new(),
        question: None,
        question_spent_s: None,
        variants: Vec::new(),
        answer: None,
        cold_starts: Vec::new(),
        points,
    };
    tierlab_analysis::conclude(&mut run);
    run
}

/// Writes a result folder in the way of a finished run.
pub(crate) fn write(run: &Run, dir: &Path) -> Result<(), StoreError> {
    folder::begin(run, dir)?;
    let (mut journal, _) = Journal::open(dir)?;
    for point in &run.points {
        for repeat in &point.repeats {
            journal.append(&FinishedStep {
                position: (0, 0),
                factors: point.factors.clone(),
                repeat: repeat.clone(),
            })?;
        }
    }
    folder::rewrite(run, dir)?;
    journal.remove()
}

fn environment() -> Environment {
    Environment {
        cpu: "Imaginary CPU @ 3.00GHz".to_owned(),
        cores: 2,
        memory_bytes: 16 << 30,
        kernel: "6.1.0-synthetic".to_owned(),
        filesystems: BTreeMap::from([("/data".to_owned(), "ext4 rw,relatime".to_owned())]),
        gpus: Vec::new(),
        onnxruntime: "1.31.1 (CPUExecutionProvider)".to_owned(),
        git_commit: "0123456789abcdef-dirty".to_owned(),
        version: "0.1.0".to_owned(),
        machine_warnings: Vec::new(),
        shared_cores: vec!["load generator".to_owned(), "server".to_owned(), "origins".to_owned()],
        origins: BTreeMap::from([
            ("nvme".to_owned(), "real; O_DIRECT".to_owned()),
            ("nfs".to_owned(), "embedded; nfs://127.0.0.1/export".to_owned()),
            ("s3".to_owned(), "embedded; emulated cloud latency, seed 7".to_owned()),
        ]),
    }
}

fn pricing() -> Pricing {
    Pricing {
        instance: "imaginary.xlarge".to_owned(),
        usd_per_hour: 0.2,
        usd_per_gib_hour: 0.004,
        instances: [("imaginary.xlarge", 0.2), ("imaginary.disk", 0.3)]
            .map(|(name, usd_per_hour)| InstancePrice {
                name: name.to_owned(),
                usd_per_hour,
                checked: false,
            })
            .to_vec(),
        instances_by_tier: [
            ("nvme", &["imaginary.disk"][..]),
            ("nfs", &["imaginary.xlarge", "imaginary.disk"]),
            ("s3", &["imaginary.xlarge", "imaginary.disk"]),
        ]
        .into_iter()
        .map(|(tier, names)| (tier.to_owned(), names.iter().map(|name| (*name).to_owned()).collect()))
        .collect(),
        usd_per_hour_by_tier: BTreeMap::new(),
        usd_per_request: BTreeMap::from([("s3".to_owned(), 4e-7)]),
        usd_per_byte: BTreeMap::from([("nfs".to_owned(), 2.8e-11)]),
        terms_by_variant: BTreeMap::new(),
        servers_by_variant: BTreeMap::new(),
        usd_per_month_by_instance: BTreeMap::new(),
        priced: None,
        sources: vec![
            "imaginary.xlarge: $0.2/h, Nobody, as of 2026-11, https://example.org/price?a=1&b=2".to_owned(),
            "s3: blobs: $0.0004 per 1,000 GET requests, Nobody, as of 2026-11, https://example.org/blobs".to_owned(),
        ],
    }
}

fn checks() -> Vec<Check> {
    let check = |name: &str, expected: &str, measured: &str, passed| Check {
        name: name.to_owned(),
        expected: expected.to_owned(),
        measured: measured.to_owned(),
        passed,
    };
    vec![
        check("p95 under a scripted stall", "320 ms ± 5 %", "318 ms", true),
        check("p99 under a scripted stall", "544 ms ± 5 %", "541 ms", true),
        check("send lag p99 at 2,000 rps", "< 1 ms", "2.4 ms", false),
    ]
}

fn floor(repeats: u32) -> Point {
    let tier = Tier {
        name: "null",
        wait_us: 0.0,
        sigma: 0.0,
        capacity_rps: 40_000.0,
    };
    let factors = Factors {
        variant: String::new(),
        tier: "null".to_owned(),
        cache: "none".to_owned(),
        cache_share: 0.0,
        model: "none".to_owned(),
        mode: Mode::Realtime,
        batch_size: 1,
        offered_rps: 200.0,
        arrivals: "poisson".to_owned(),
        keys: "uniform".to_owned(),
        mix: None,
        driven: None,
    };
    point(factors, &tier, 1.0, repeats)
}

fn point(factors: Factors, tier: &Tier, slowdown: f64, repeats: u32) -> Point {
    let repeats = (0..repeats)
        .map(|index| repeat(&factors, tier, slowdown, index))
        .collect();
    Point {
        factors,
        repeats,
        summary: None,
    }
}

fn seed(factors: &Factors, index: u32) -> u64 {
    // By the fields that matter here: the data must not change when factors get another one.
    let text = format!(
        "{} {} {} {} {index}",
        factors.tier, factors.cache, factors.batch_size, factors.offered_rps
    );
    text.bytes().fold(17, |hash: u64, byte| {
        hash.wrapping_mul(31).wrapping_add(u64::from(byte))
    })
}

/// One step: Poisson arrivals through a single queue of exponential service, then the tier's lognormal wait.
#[allow(clippy::too_many_lines, reason = "a record")]
fn repeat(factors: &Factors, tier: &Tier, slowdown: f64, index: u32) -> Repeat {
    let seed = seed(factors, index);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let weather: f64 = StandardNormal.sample(&mut rng);
    let weather = (0.04 * weather).exp();
    let rows = f64::from(factors.batch_size);
    let hit_ratio = if factors.cache_share > 0.0 { 0.72 } else { 0.0 };
    let service_s = rows.powf(0.6) / tier.capacity_rps * if hit_ratio > 0.0 { 0.6 } else { 1.0 };
    let (mut at, mut free, mut samples) = (0.0_f64, 0.0_f64, Vec::new());
    while at < WINDOW_S {
        let gap: f64 = Exp1.sample(&mut rng);
        at += gap / factors.offered_rps;
        let hit = rng.random_bool(hit_ratio);
        samples.extend(one(
            &mut rng,
            tier,
            weather * slowdown,
            (at, &mut free, service_s),
            (hit, rows),
        ));
    }
    samples.retain(|sample| (sample.due_us as f64) < WINDOW_S * 1e6);
    let errors = if factors.tier == "nfs" && factors.offered_rps == 800.0 {
        samples.len() as u64 / 50
    } else {
        0
    };
    for sample in samples.iter_mut().take(usize::try_from(errors).unwrap()) {
        (sample.outcome, sample.timings) = (Outcome::Failed(Failure::Status(503)), None);
    }
    let done_in_window = samples
        .iter()
        .filter(|s| s.is_ok() && (s.done_us as f64) < WINDOW_S * 1e6)
        .count() as f64;
    let good = samples.len() as u64 - errors;
    let replies: Vec<Sample> = samples.iter().filter(|sample| sample.is_ok()).copied().collect();
    let latencies: Vec<u64> = replies.iter().map(Sample::latency_us).collect();
    let dependence = tierlab_analysis::statistics::dependence::Dependence::of(&latencies);
    Repeat {
        index,
        seed,
        started_at: format!("2026-11-20T12:0{index}:00Z"),
        window_s: WINDOW_S,
        scheduled: samples.len() as u64,
        completed: good,
        errors: if errors > 0 {
            BTreeMap::from([("503".to_owned(), errors)])
        } else {
            BTreeMap::new()
        },
        achieved_rps: done_in_window / WINDOW_S,
        mean_in_flight: tierlab_analysis::validity::laws::by_stays(&samples, &(0..(WINDOW_S * 1e6) as u64)),
        in_flight_by_stays: Some(tierlab_analysis::validity::laws::by_stays(
            &samples,
            &(0..(WINDOW_S * 1e6) as u64),
        )),
        autocorrelation_time: dependence.body,
        tail_autocorrelation_time: Some(dependence.tail),
        backlog_slope: if tier.name == "null" {
            Interval::default()
        } else {
            tierlab_analysis::backlog_slope(&replies)
        },
        bands: tierlab_analysis::bands(&replies),
        server: Some(ServerDelta {
            inferences: good as f64 * rows,
            tier_requests: good as f64 * rows * (1.0 - hit_ratio),
            tier_wire_bytes: good as f64 * rows * (1.0 - hit_ratio) * 4_096.0,
            cache_hits: good as f64 * rows * hit_ratio,
            cache_misses: if hit_ratio > 0.0 {
                good as f64 * rows * (1.0 - hit_ratio)
            } else {
                0.0
            },
            cache_capacity_bytes: if hit_ratio > 0.0 { 2e9 } else { 0.0 },
            ..ServerDelta::default()
        }),
        hdr_file: hdr_file(factors, index),
        histograms: histograms(&samples),
        ..Repeat::empty()
    }
}

fn one(
    rng: &mut ChaCha8Rng,
    tier: &Tier,
    slowdown: f64,
    (at, free, service_s): (f64, &mut f64, f64),
    (hit, rows): (bool, f64),
) -> Option<Sample> {
    let (lag_us, jitter): (f64, f64) = (60.0 + rng.random_range(0.0..120.0), Exp1.sample(rng));
    let normal: f64 = StandardNormal.sample(rng);
    let tier_us = if hit {
        0.0
    } else {
        tier.wait_us * slowdown * rows.powf(0.25) * (tier.sigma * normal).exp()
    };
    let start = free.max(at);
    *free = start + service_s * jitter;
    let parts = [
        (Stage::Decode, 18.0 * rows.powf(0.5)),
        (Stage::Admit, 4.0),
        (Stage::Cache, if hit { 12.0 } else { 3.0 }),
        (Stage::Tier, tier_us),
        (Stage::Join, 9.0 * rows.powf(0.7)),
        (Stage::Batch, (start - at) * 1e6),
        (Stage::Infer, service_s * jitter * 1e6),
        (Stage::Encode, 11.0),
    ];
    let mut timings = StageTimings::default();
    for (stage, us) in parts {
        timings.add(stage, Duration::from_micros(us as u64));
    }
    timings.tier_split.device = Duration::from_micros((0.9 * tier_us) as u64);
    (timings.cache_hits, timings.cache_misses) = if hit { (rows as u32, 0) } else { (0, rows as u32) };
    let due_us = (at * 1e6) as u64;
    let sent_us = due_us + lag_us as u64;
    let done_us = sent_us + timings.total().as_micros() as u64 + 90 + (60.0 * jitter) as u64;
    Some(Sample {
        due_us,
        sent_us,
        done_us,
        outcome: Outcome::Ok,
        timings: Some(timings),
    })
}

fn histograms(samples: &[Sample]) -> Histograms {
    let blocks = (WINDOW_S / BLOCK_S) as usize;
    let clock = |value: fn(&Sample) -> u64, counts: fn(&&Sample) -> bool| {
        // No larger than the slowest sample needs: a run has thousands of them.
        let most = samples.iter().map(value).max().unwrap_or_default().max(2);
        let mut histograms = vec![Histogram::new_with_bounds(1, most, 3).unwrap(); blocks];
        for sample in samples.iter().filter(counts) {
            histograms[(sample.due_us as f64 / 1e6 / BLOCK_S) as usize].saturating_record(value(sample));
        }
        histograms
    };
    Histograms {
        block_s: BLOCK_S,
        latency: clock(Sample::latency_us, |sample| sample.is_ok()),
        service: clock(Sample::service_us, |sample| sample.is_ok()),
        lag: clock(Sample::lag_us, |_| true),
        failed: if samples.iter().all(Sample::is_ok) {
            Vec::new()
        } else {
            clock(Sample::latency_us, |sample| !sample.is_ok())
        },
        ..Histograms::default()
    }
}
