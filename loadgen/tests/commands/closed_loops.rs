//! Closed loops through the real binary, and those beside journeys.

use crate::program::{NullEndpoint, Workdir, interrupt, run, run_until};
use crate::scripted::{JOURNEY, Script, closed, serve, swept};
use hdrhistogram::Histogram;
use std::fs;
use tierlab_analysis::record::{Driven, Point};
use tierlab_loadgen::store::folder;

/// Latency above that of requests without a stall, and below that of stalled ones.
const SLOW_US: u64 = 60_000;

#[test]
fn a_closed_loop_over_grpc_keeps_its_law_beside_an_open_loop_over_grpc() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!("protocol = \"grpc\"\n{}", closed("3", "")));
    let mut sweep = place.sweep(&endpoint.url);
    sweep.args(["--grpc-url", &endpoint.url]);
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let run = folder::load(&place.path("results/r")).unwrap();
    let [closed, open] = &run.points[..] else {
        panic!("{} points", run.points.len());
    };
    for point in [closed, open] {
        for repeat in &point.repeats {
            assert!(
                repeat.completed > 100 && repeat.errors.is_empty(),
                "{:?}",
                repeat.errors
            );
        }
    }
    for repeat in &closed.repeats {
        let by_law = repeat.driver.closed_loop().unwrap().users_by_law();
        assert!((by_law - 3.0).abs() < 0.3, "{by_law}");
    }
}

/// Returns the share of a point's requests that took longer than [`SLOW_US`].
fn slow_share(point: &Point) -> f64 {
    let blocks = point.repeats.iter().flat_map(|repeat| &repeat.histograms.latency);
    let (slow, all) = blocks.fold((0, 0), |(slow, all), block| {
        let fast = block.count_between(0, SLOW_US);
        (slow + block.len() - fast, all + block.len())
    });
    slow as f64 / all as f64
}

#[test]
fn a_closed_loop_obeys_its_law_and_stands_beside_an_open_loop() {
    let (place, run, stdout) = swept(Script::default(), &closed("1, 3", "think_time_ms = [2, 6]"));
    assert_eq!(run.points.len(), 4);
    for (pair, users) in run.points.chunks(2).zip([1_u32, 3]) {
        let [closed, open] = pair else { panic!("pairs") };
        let think_time = "2 to 6 ms".to_owned();
        assert_eq!(
            closed.factors.driven,
            Some(Driven::ClosedLoop {
                users,
                think_time: think_time.clone()
            })
        );
        assert_eq!(
            open.factors.driven,
            Some(Driven::BesideClosedLoop { users, think_time })
        );
        assert_eq!(closed.factors.offered_rps, 0.0);
        assert_eq!((closed.repeats.len(), open.repeats.len()), (2, 2));
        for repeat in &closed.repeats {
            let figures = repeat.driver.closed_loop().unwrap();
            // At each edge of the window a cycle of each user is cut.
            let cut = f64::from(users) / (figures.ended_rps * repeat.window_s);
            let off = (figures.users_by_law() / f64::from(users) - 1.0).abs();
            assert!(off < 0.03 + cut, "{figures:?}");
            assert!(figures.mean_response_us > 5_000.0 && figures.mean_pause_us >= figures.mean_think_us);
            // goose's clock stops no later than ours, and its metrics saw no more than there were.
            let goose = repeat.driver.goose().unwrap();
            let slowest_us = repeat.histograms.latency.iter().map(Histogram::max).max().unwrap();
            assert!(
                goose.p50_us > 0.0 && goose.p50_us <= slowest_us as f64 * 2.0,
                "{goose:?}, slowest {slowest_us} us"
            );
            assert!(goose.counted.unwrap() > 0);
        }
        // The rate of the open loop is the first throughput, in four digits, and stays.
        let throughput = closed.repeats[0].achieved_rps;
        assert!((open.factors.offered_rps / throughput - 1.0).abs() < 1e-3);
    }
    let rows = fs::read_to_string(place.path("results/r/summary.csv")).unwrap();
    assert_eq!(rows.matches(",closed,").count(), 2, "{rows}");
    assert_eq!(rows.matches(",open beside closed,").count(), 2, "{rows}");
    let markdown = fs::read_to_string(place.path("results/r/report.md")).unwrap();
    let page = fs::read_to_string(place.path("results/r/report.html")).unwrap();
    for text in [&stdout, &page] {
        assert!(
            text.contains("coordinated omission") && text.contains("by the law"),
            "{text}"
        );
    }
    assert!(markdown.contains("coordinated omission"));
    // The rate of a closed loop is a result, and no offered one.
    assert!(
        markdown.contains("closed loop of 3, think time 2 to 6 ms | n/a | "),
        "{markdown}"
    );
    assert!(
        run.findings.is_empty(),
        "a closed loop says nothing of how far a server goes"
    );
}

#[test]
fn a_stall_is_seen_by_the_open_loop_and_not_by_the_closed_one() {
    let script = Script {
        stalls: true,
        ..Script::default()
    };
    let (_, run, stdout) = swept(script, &closed("1", ""));
    // A user meets the stall once per period, in about a hundred requests; of open-loop arrivals four in ten meet it.
    let [closed, open] = [&run.points[0], &run.points[1]].map(slow_share);
    assert!(
        closed < 0.1 && open > 0.2,
        "{closed} of the closed loop's, {open} of the open loop's\n{stdout}"
    );
}

/// Prices of an instance of $3.6 per hour, and of storage at $1 per 1,000 requests.
const PRICES: &str = "[instances.box]\nusd_per_hour = 3.6\nprovider = \"p\"\nregion = \"r\"\nas_of = \"2026-01\"\n\
    checked = true\nsource = \"https://example.org\"\n[storage.blobs]\nusd_per_1000_get_requests = 1.0\nprovider = \"p\"\n\
    region = \"r\"\nas_of = \"2026-01\"\nchecked = true\nsource = \"https://example.org\"\n[tiers]\nnull = \"blobs\"\n";

#[test]
fn closed_loops_and_journeys_have_a_price_by_the_rules_of_the_open_loop() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script::default()));
    let priced = "prices = \"prices.toml\"\ninstance = \"box\"\n";
    let journey = JOURNEY.replace("repeats = 2\nstep_s = 1.0\n", "");
    let place = Workdir::new(&format!("{priced}{}{journey}", closed("2", "batch_sizes = [4]")));
    fs::write(place.path("prices.toml"), PRICES).unwrap();
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let run = folder::load(&place.path("results/r")).unwrap();
    let [closed, open, whole, steps @ ..] = &run.points[..] else {
        panic!("{} points", run.points.len())
    };
    let paid = |point: &Point| point.summary.as_ref().unwrap().usd_per_10k.unwrap();
    let hour = |point: &Point, inferences: f64| {
        let each = |rps: f64| 10.0 / rps / inferences;
        let rates = point.repeats.iter().map(|repeat| match repeat.driver.closed_loop() {
            Some(_) => repeat.achieved_rps,
            None => repeat.achieved_rps * repeat.window_s / repeat.scheduled as f64 * point.factors.offered_rps,
        });
        rates.map(each).sum::<f64>() / point.repeats.len() as f64
    };
    // Two storage requests for four rows, so four for two infer requests. Requests cut by a window's edges are not
    // counted again.
    for (point, inferences, storage) in [(closed, 4.0, 5.0), (open, 4.0, 5.0), (whole, 1.0, 40.0)] {
        let usd = paid(point);
        let expected = hour(point, inferences) + storage;
        assert!(
            (usd.value / expected - 1.0).abs() < 1e-6 && usd.lo <= usd.value && usd.value <= usd.hi,
            "{usd:?} is not {expected}: {}",
            point.factors.driven.as_ref().unwrap()
        );
    }
    // The steps of a journey share the hour.
    assert!(
        steps
            .iter()
            .all(|step| step.summary.as_ref().unwrap().usd_per_10k.is_none())
    );
    assert!(
        ended.stdout.contains("$/10k is the cost of 10,000 whole journeys")
            && ended.stdout.contains("at the throughput of these users"),
        "{}",
        ended.stdout
    );
}

#[test]
fn what_several_cannot_send_together_is_refused_by_name() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script::default()));
    let place = Workdir::new(&closed("1", ""));
    let mut sweep = place.sweep(&url);
    sweep.args(["--workers", "2"]);
    let ended = run(sweep);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("`load`: a closed loop") && ended.stderr.contains("--workers"),
        "{}",
        ended.stderr
    );
}

#[test]
fn what_was_finished_is_kept_and_gone_on_with() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script::default()));
    let journey = JOURNEY.replace("repeats = 2\nstep_s = 1.0\n", "");
    let place = Workdir::new(&format!(
        "{}{journey}",
        closed("2", "think_time_ms = { exponential = 3 }")
    ));
    // Closed and open are finished, and the journey is under way.
    let ended = run_until(place.sweep(&url), "[2/6]", interrupt);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let kept = folder::load(&place.path("results/r")).unwrap();
    assert_eq!(kept.points.len(), 2, "{}", ended.stderr);
    let mut sweep = std::process::Command::new(crate::program::BINARY);
    sweep.arg("sweep").arg(place.path("plan.toml")).args(["--url", &url]);
    sweep.arg("--resume").arg(place.path("results/r"));
    sweep.env("XDG_STATE_HOME", place.path("state"));
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let whole = folder::load(&place.path("results/r")).unwrap();
    assert_eq!(whole.points.len(), 6);
    assert!(whole.points.iter().all(|point| point.repeats.len() == 2));
    assert_eq!(whole.points[1].factors.offered_rps, kept.points[1].factors.offered_rps);
    assert_eq!(
        whole.points[0].repeats[0].started_at,
        kept.points[0].repeats[0].started_at
    );
}
