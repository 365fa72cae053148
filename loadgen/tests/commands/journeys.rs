//! Journeys through the real binary.

use crate::program::{Workdir, run};
use crate::scripted::{HEAD, JOURNEY, Script, serve, swept};
use std::fs;
use tierlab_analysis::record::{Histograms, Point};
use tierlab_loadgen::store::folder;

fn mean_us(point: &Point) -> f64 {
    let of = |clocks: &Histograms| clocks.latency.clone();
    let blocks: Vec<_> = point.repeats.iter().flat_map(|repeat| of(&repeat.histograms)).collect();
    let all: u64 = blocks.iter().map(hdrhistogram::Histogram::len).sum();
    blocks
        .iter()
        .map(|block| block.mean() * block.len() as f64)
        .sum::<f64>()
        / all as f64
}

#[test]
fn a_journey_hands_values_on_and_its_steps_sum_to_it() {
    let (place, run, stdout) = swept(Script::default(), &format!("{HEAD}{JOURNEY}"));
    let names: Vec<String> = run
        .points
        .iter()
        .map(|point| point.factors.driven.as_ref().unwrap().to_string())
        .collect();
    let step = |name: &str| format!("journey recommend, step {name}");
    assert_eq!(
        names,
        [
            "journey recommend".to_owned(),
            step("fetch"),
            step("embed"),
            step("rank")
        ]
    );
    for point in &run.points {
        for repeat in &point.repeats {
            assert_eq!((repeat.scheduled, repeat.completed), (100, 100), "{:?}", repeat.errors);
        }
    }
    let [whole, steps @ ..] = &run.points[..] else {
        panic!("points")
    };
    let sum: f64 = steps.iter().map(mean_us).sum();
    // Equal up to the three digits of a histogram.
    assert!(
        (sum / mean_us(whole) - 1.0).abs() < 0.01,
        "{sum} is not {}",
        mean_us(whole)
    );
    // goose's own times exclude the time before and between requests.
    let goose = whole.repeats[0].driver.goose().unwrap();
    assert!(
        goose.p50_us > 0.0
            && goose.p99_us
                <= whole.repeats[0]
                    .histograms
                    .latency
                    .iter()
                    .map(hdrhistogram::Histogram::max)
                    .max()
                    .unwrap() as f64
    );
    let rows = fs::read_to_string(place.path("results/r/summary.csv")).unwrap();
    assert!(
        rows.contains(",recommend,whole") && rows.contains(",recommend,rank"),
        "{rows}"
    );
    assert!(
        stdout.contains("recommend at 100/s, whole") && stdout.contains("by goose's own clock"),
        "{stdout}"
    );
}

/// Returns the counter of calls over gRPC from the server's metrics.
fn over_grpc(runtime: &tokio::runtime::Runtime, url: &str) -> u64 {
    let asked = async { reqwest::get(format!("{url}/metrics")).await.unwrap().text().await };
    let text = runtime.block_on(asked).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("over_grpc "));
    line.unwrap().parse().unwrap()
}

#[test]
fn steps_over_grpc_take_and_hand_on_the_same_values() {
    let over_grpc_alone = format!("protocol = \"grpc\"\n{HEAD}{JOURNEY}");
    let model = "model = \"rank\"\n";
    let one_step = format!("{HEAD}{JOURNEY}").replace(model, &format!("{model}protocol = \"grpc\"\n"));
    // A hundred journeys in each of two repeats, with their warm-up and the try before.
    for (plan, steps) in [(over_grpc_alone, 2), (one_step, 1)] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let url = runtime.block_on(serve(Script::default()));
        let place = Workdir::new(&plan);
        let mut sweep = place.sweep(&url);
        sweep.args(["--grpc-url", &url]);
        let ended = run(sweep);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let run = folder::load(&place.path("results/r")).unwrap();
        assert_eq!(run.points.len(), 4);
        let mut requests = 0;
        for repeat in run.points.iter().flat_map(|point| &point.repeats) {
            assert_eq!((repeat.scheduled, repeat.completed), (100, 100), "{:?}", repeat.errors);
            // goose has no times of requests that it did not send.
            assert!(repeat.driver.goose().is_none());
            requests += repeat.driver.journeys().map_or(0, |journeys| journeys.requests);
        }
        let calls = over_grpc(&runtime, &url);
        assert!(
            calls >= steps * requests / 3 && calls <= steps * (requests / 3 + 8),
            "{calls} calls of {requests} requests"
        );
        assert!(!ended.stdout.contains("by goose's own clock"), "{}", ended.stdout);
    }
}

#[test]
fn a_step_over_grpc_that_fails_is_named_by_its_status() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script {
        fails_every: 4,
        ..Script::default()
    }));
    let plan = format!("protocol = \"grpc\"\n{HEAD}{JOURNEY}").replace("repeats = 2", "repeats = 1");
    let place = Workdir::new(&plan);
    // A plan over gRPC without the server's gRPC address.
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--grpc-url"), "{}", ended.stderr);
    let mut sweep = place.sweep(&url);
    sweep.args(["--grpc-url", &url]);
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let run = folder::load(&place.path("results/r")).unwrap();
    let errors = &run.points[0].repeats[0].errors;
    let [(reason, failed)] = &errors.iter().collect::<Vec<_>>()[..] else {
        panic!("{errors:?}")
    };
    assert!(
        reason.contains("UNAVAILABLE") && reason.ends_with(" at rank") && (20..=30).contains(*failed),
        "{errors:?}"
    );
}

#[test]
fn a_grpc_address_without_a_server_is_named_by_the_step_that_needs_it() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script::default()));
    let model = "model = \"rank\"\n";
    let plan = format!("{HEAD}{JOURNEY}").replace(model, &format!("{model}protocol = \"grpc\"\n"));
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let place = Workdir::new(&plan);
    let mut sweep = place.sweep(&url);
    sweep.arg("--grpc-url").arg(format!("http://{closed}"));
    let ended = run(sweep);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let named = format!("http://{closed}: journey ");
    assert!(ended.stderr.contains(&named), "{}", ended.stderr);
    assert!(ended.stderr.contains(": step `rank` failed with "), "{}", ended.stderr);
}

#[test]
fn a_step_that_fails_ends_its_journey_and_is_named() {
    let script = Script {
        fails_every: 4,
        ..Script::default()
    };
    let (_, run, stdout) = swept(
        script,
        &format!("{HEAD}{JOURNEY}").replace("repeats = 2", "repeats = 1"),
    );
    let [whole, _, embed, rank] = &run.points[..] else {
        panic!("points")
    };
    let [whole, embed, rank] = [whole, embed, rank].map(|point| &point.repeats[0]);
    assert_eq!(embed.errors.len(), 0);
    let failed = rank.errors["503"];
    assert!((20..=30).contains(&failed), "{failed}");
    assert_eq!(
        whole.errors,
        std::collections::BTreeMap::from([("503 at rank".to_owned(), failed)])
    );
    assert_eq!(whole.completed + failed, 100);
    assert!(stdout.contains("503 at rank"), "{stdout}");
}

#[test]
fn a_journey_that_cannot_be_made_is_named_before_anything_is_measured() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script {
        lacks_vector: true,
        ..Script::default()
    }));
    let plan = format!("{HEAD}{JOURNEY}");
    // The reply lacks the values, so the server refuses the body built from it.
    let place = Workdir::new(&plan);
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("step `embed`") && ended.stderr.contains("wrong-reply"),
        "{}",
        ended.stderr
    );
    // A missing value for a later step is a wrong reply too.
    let place = Workdir::new(&plan.replace("\"/name\"", "\"/nome\""));
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("step `fetch`") && ended.stderr.contains("/nome"),
        "{}",
        ended.stderr
    );
    // An input that the model lacks, and a model that needs more than an entity.
    for (from, to, says) in [
        ("{ text = ", "{ test = ", "no input `test`"),
        ("inputs = { text = \"about {who}\" }\n", "", "`embed` joins no rows"),
    ] {
        let place = Workdir::new(&plan.replace(from, to));
        let ended = run(place.sweep(&url));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
}

#[test]
fn a_server_that_refuses_the_first_requests_is_measured() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for protocol in ["http", "grpc"] {
        let url = runtime.block_on(serve(Script {
            refuses_first: 2,
            ..Script::default()
        }));
        let plan = format!("protocol = \"{protocol}\"\n{HEAD}{JOURNEY}").replace("repeats = 2", "repeats = 1");
        let place = Workdir::new(&plan);
        let mut sweep = place.sweep(&url);
        if protocol == "grpc" {
            sweep.args(["--grpc-url", &url]);
        }
        let ended = run(sweep);
        assert_eq!(ended.code, Some(0), "{protocol}: {}", ended.stderr);
        let run = folder::load(&place.path("results/r")).unwrap();
        assert!(run.points[0].repeats[0].errors.is_empty(), "{protocol}");
    }
}

#[test]
fn journeys_of_several_processes_are_those_of_one() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script {
        fails_every: 4,
        ..Script::default()
    }));
    for protocol in ["http", "grpc"] {
        let plan = format!("protocol = \"{protocol}\"\n{HEAD}{JOURNEY}").replace("repeats = 2", "repeats = 1");
        let place = Workdir::new(&plan);
        let mut sweep = place.sweep(&url);
        sweep.args(["--workers", "2"]);
        if protocol == "grpc" {
            sweep.args(["--grpc-url", &url]);
        }
        let ended = run(sweep);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let run = folder::load(&place.path("results/r")).unwrap();
        let [whole, fetch, embed, rank] = &run.points[..] else {
            panic!("points")
        };
        let [whole_once, fetch, embed, rank_once] = [whole, fetch, embed, rank].map(|point| &point.repeats[0]);
        for repeat in [fetch, embed] {
            assert_eq!((repeat.scheduled, repeat.completed), (100, 100), "{:?}", repeat.errors);
        }
        let (reason, failed) = rank_once.errors.first_key_value().unwrap();
        assert!((20..=30).contains(failed), "{failed}");
        assert_eq!(
            whole_once.errors,
            std::collections::BTreeMap::from([(format!("{reason} at rank"), *failed)])
        );
        assert_eq!(whole_once.completed + failed, 100);
        // Journeys of the warm-up are counted too.
        let journeys = whole_once.driver.journeys().unwrap();
        assert!(
            journeys.requests > 300 && journeys.requests.is_multiple_of(3),
            "{journeys:?}"
        );
        assert!(
            journeys.completed < journeys.requests / 3 && journeys.completed >= whole_once.completed,
            "{journeys:?}"
        );
        // The first steps of a failed journey count, and the journey does not: the two populations differ by a quarter.
        let steps: f64 = run.points[1..].iter().map(mean_us).sum();
        assert!(
            (steps / mean_us(whole) - 1.0).abs() < 0.1,
            "{steps} of {}",
            mean_us(whole)
        );
        assert!(whole_once.driver.goose().is_none());
    }
}
