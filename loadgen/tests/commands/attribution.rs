//! Attribution of time, with a server whose stages, cache and tier are scripted.

use crate::program::{Ended, Workdir, run};
use axum::Router;
use axum::extract::State;
use axum::http::HeaderName;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tierlab_analysis::curves::is_valid;
use tierlab_protocol::timing::{Stage, StageTimings};

/// Every tenth request misses the cache and waits this long for the tier.
const TIER: Duration = Duration::from_millis(300);
const DEVICE: Duration = Duration::from_millis(250);
const INFER: Duration = Duration::from_millis(1);
const EVERY: u64 = 10;
/// Latency below that of a miss, and above any hit on an undisturbed machine.
const SLOW_US: u64 = 250_000;

/// Number of answered requests; the counters of its metrics follow from it.
#[derive(Default)]
struct Script(AtomicU64);

async fn infer(State(script): State<Arc<Script>>, request: String) -> impl IntoResponse {
    let misses = script.0.fetch_add(1, Ordering::Relaxed) % EVERY == 0;
    let mut timings = StageTimings::default();
    timings.add(Stage::Infer, INFER);
    if misses {
        timings.add(Stage::Tier, TIER);
        timings.tier_split.device = DEVICE;
        timings.cache_misses = 1;
        timings.tier_requests = 1;
    } else {
        timings.cache_hits = 1;
    }
    tokio::time::sleep(timings.total()).await;
    let timing = (HeaderName::from_static("server-timing"), timings.to_header());
    let rows = if request.contains("\"shape\":[16,") { 16 } else { 1 };
    let data = ["0.5"].repeat(rows).join(",");
    let body = format!(
        r#"{{"model_name":"m","model_version":"1","outputs":[{{"name":"y","datatype":"FP32","shape":[{rows},1],"data":[{data}]}}]}}"#
    );
    ([timing], body)
}

async fn metrics(State(script): State<Arc<Script>>) -> String {
    let requests = script.0.load(Ordering::Relaxed);
    let misses = requests.div_ceil(EVERY);
    let hits = requests - misses;
    format!(
        "tierlab_build_info{{feature_tier=\"s3\"}} 1\n\
         tierlab_inferences_total{{model=\"m\"}} {requests}\n\
         tierlab_tier_requests_total{{role=\"feature\",tier=\"s3\"}} {misses}\n\
         tierlab_tier_requests_total{{role=\"model\",tier=\"s3\"}} 77\n\
         tierlab_cache_hits_total {hits}\ntierlab_cache_misses_total {misses}\n\
         tierlab_session_seconds_total{{model=\"m\",state=\"compute\"}} {}\n\
         tierlab_session_seconds_total{{model=\"m\",state=\"no_requests\"}} {}\n",
        requests as f64 * 0.25,
        requests as f64 * 0.75,
    )
}

/// Prices of an instance of $3.6 per hour and of a tier at $1 per 1,000 requests.
const PRICES: &str = "[instances.box]\nusd_per_hour = 3.6\nprovider = \"p\"\nregion = \"r\"\nas_of = \"2026-01\"\n\
    checked = true\nsource = \"https://example.org\"\n[storage.blobs]\nusd_per_1000_get_requests = 1.0\nprovider = \"p\"\n\
    region = \"r\"\nas_of = \"2026-01\"\nchecked = true\nsource = \"https://example.org\"\n[tiers]\ns3 = \"blobs\"\n";

async fn model() -> &'static str {
    r#"{"name":"m","versions":["1"],"platform":"scripted","inputs":[{"name":"x","datatype":"FP32","shape":[-1,1]}],
        "outputs":[{"name":"y","datatype":"FP32","shape":[-1,1]}]}"#
}

/// Serves until the runtime is dropped; its address.
async fn serve() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new()
        .route("/v2/models/m", get(model))
        .route("/v2/models/m/infer", post(infer))
        .route("/metrics", get(metrics))
        .with_state(Arc::default());
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// Mean microseconds of a part, times the requests of its band.
fn total_us(bands: &[Value], part: &str) -> f64 {
    let of = |band: &Value| {
        let parts = band["parts_us"].as_array().unwrap();
        let us = parts.iter().find(|entry| entry[0] == part).unwrap()[1]
            .as_f64()
            .unwrap();
        us * band["count"].as_f64().unwrap()
    };
    bands.iter().map(of).sum()
}

/// Maximum measurements of the script if other activity delayed its fast requests.
const ATTEMPTS: usize = 6;

/// Returns a run in which exactly the script's requests are slow, so that every figure is known.
fn calm_run() -> (Workdir, Ended) {
    for _ in 0..ATTEMPTS {
        let (place, ended) = attempt();
        let run = tierlab_loadgen::store::folder::load(&place.path("results/r")).unwrap();
        let point = &run.points[0];
        let histograms = point.repeats.iter().flat_map(|repeat| &repeat.histograms.latency);
        let slow: u64 = histograms.map(|block| block.count_between(SLOW_US, u64::MAX)).sum();
        let failed = point.repeats.iter().any(|repeat| !repeat.errors.is_empty());
        // Of 1,000, which are whole tens in a row, exactly 100 miss.
        if slow == 100 && !failed && is_valid(point) {
            return (place, ended);
        }
        eprintln!("{slow} slow requests, failed: {failed}: measured anew");
    }
    panic!("the machine held up requests in each of {ATTEMPTS} runs; leave it less to do meanwhile");
}

fn attempt() -> (Workdir, Ended) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve());
    // 200 and 1,000 requests of warm-up and window: a tenth of either misses.
    let place = Workdir::new(
        "name = \"scripted\"\nmodel = \"m\"\nseed = 3\nrepeats = 2\nwarmup_s = 0.4\nstep_s = 2\ndrain_s = 2\n\
         max_in_flight = 256\narrivals = \"constant\"\n[limits]\nforeign_cpu_share = 1\nsteal_share = 1\n\
    foreign_disk_bytes_per_s = 1e12\nforeign_network_bytes_per_s = 1e12\nforeign_io_pressure = 1\nforeign_memory_pressure = 1\n\
         [[load]]\nmode = \"realtime\"\nrates = [250]\n",
    );
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    (place, ended)
}

#[test]
fn a_scripted_tier_is_found_in_the_tail_and_its_counters_in_the_summary() {
    let (place, ended) = calm_run();
    let result = place.run_json();
    let point = &result["points"][0];
    let summary = &point["summary"];

    // From /metrics, warm-up included: 600 requests a repeat, of which every tenth missed.
    assert_eq!(summary["cache_hit_ratio"], 0.9);
    assert_eq!(summary["tier_requests_per_inference"], 0.1);
    assert_eq!(
        summary["session_shares"],
        serde_json::json!([["compute", 0.25], ["no_requests", 0.75]])
    );

    let bands = summary["bands"].as_array().unwrap();
    let names: Vec<&str> = bands.iter().map(|band| band["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["p0-50", "p50-90", "p90-99", "p99-100"]);
    // From Server-Timing, over all bands: the script's values, on any machine. The missing requests of the schedule
    // depend on the counts of the warm-up and the check; of 1,000 in a row, exactly 100 miss.
    assert!((total_us(bands, "tier") - 100.0 * TIER.as_micros() as f64).abs() < 1.0);
    assert!((total_us(bands, "infer") - 1_000.0 * INFER.as_micros() as f64).abs() < 1.0);
    for band in bands {
        let sum: f64 = band["parts_us"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part[1].as_f64().unwrap())
            .sum();
        assert!((sum - band["mean_us"].as_f64().unwrap()).abs() < 1e-3, "{band}");
    }
    let slowest = &bands[3];
    assert_eq!(slowest["reads"]["cache_misses"], 1.0);
    assert_eq!(slowest["reads"]["device_us"], DEVICE.as_micros() as f64);
    assert_eq!(summary["tail"]["parts"][0][0], "tier");
    assert_eq!(bands[0]["reads"]["cache_hits"], 1.0);

    // Both sides of Little's law, which share no measurement: 0.1 × 300 ms + 1 ms at 250/s are 7.75 in flight, except
    // for stays cut by the window.
    let (counted, by_stays) = (&summary["in_flight"][0], &summary["in_flight"][1]);
    let (counted, by_stays) = (counted.as_f64().unwrap(), by_stays.as_f64().unwrap());
    assert!(counted > 7.2 && by_stays > 7.2, "{counted} {by_stays}");
    assert!((counted - by_stays).abs() < 0.2 * by_stays, "{counted} {by_stays}");

    assert!(ended.stdout.contains("tier wait"), "{}", ended.stdout);
    assert!(
        ended
            .stdout
            .contains("0 % of their blocks came from the cache, 90 % of all"),
        "{}",
        ended.stdout
    );
}

#[test]
fn the_parts_of_a_mix_share_the_hour_and_the_tier_by_what_replies_tell() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve());
    let place = Workdir::new(
        "name = \"mixed\"\nmodel = \"m\"\nseed = 3\nrepeats = 2\nwarmup_s = 0.2\nstep_s = 1\ndrain_s = 2\n\
         max_in_flight = 64\narrivals = \"constant\"\nprices = \"prices.toml\"\ninstance = \"box\"\n[limits]\nforeign_cpu_share = 1\nsteal_share = 1\n\
    foreign_disk_bytes_per_s = 1e12\nforeign_network_bytes_per_s = 1e12\nforeign_io_pressure = 1\nforeign_memory_pressure = 1\n\
         [[mix]]\nrates = [100]\n\
         [[mix.part]]\nweight = 4\nmode = \"realtime\"\n[[mix.part]]\nweight = 1\nmode = \"batch\"\nbatch_size = 16\n",
    );
    std::fs::write(place.path("prices.toml"), PRICES).unwrap();
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = place.run_json();
    let summaries: Vec<&Value> = result["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| &point["summary"])
        .collect();
    assert_eq!(summaries.len(), 2);
    // Every request takes a millisecond of inference, for any number of rows: four of five requests, four fifths of the
    // hour.
    let share = |part: usize, of: &str| summaries[part]["mix_share"][of].as_f64().unwrap();
    assert!(
        (share(0, "hour") - 0.8).abs() < 1e-9 && (share(1, "hour") - 0.2).abs() < 1e-9,
        "{result}"
    );
    assert!((share(1, "inferences") - 0.8).abs() < 1e-9);
    assert!((share(0, "tier") + share(1, "tier") - 1.0).abs() < 1e-9);
    assert_eq!(summaries[0]["mix_share"]["hour_by"], "inference-time");
    // A tenth of the requests goes to the tier, at a thousandth of a dollar; the hour is $0.001 a second.
    let paid: f64 = summaries
        .iter()
        .zip([80.0, 20.0 * 16.0])
        .map(|(summary, per_s)| summary["usd_per_10k"]["value"].as_f64().unwrap() * per_s / 1e4)
        .sum();
    let counted = 100.0 * 16.0 / 4.0 * 0.1 / 1e3;
    assert!((paid - (0.001 + counted)).abs() < 0.05 * counted, "{paid} {counted}");
    for said in [
        ended.stdout,
        std::fs::read_to_string(place.path("results/r/report.md")).unwrap(),
        std::fs::read_to_string(place.path("results/r/report.html")).unwrap(),
    ] {
        assert!(said.contains("The parts of a mix share the costs"), "{said}");
    }
    let csv = std::fs::read_to_string(place.path("results/r/summary.csv")).unwrap();
    assert_eq!(csv.matches(",0.8,").count() + csv.matches(",0.2,").count(), 2, "{csv}");
}
