//! `sweep --workers` and `merge` through the real binary: several processes, and several hosts, as one run.

use crate::program::{BINARY, Ended, NullEndpoint, Workdir, read_json, run, run_until};
use hdrhistogram::Histogram;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use tierlab_analysis::record::{Repeat, Run};
use tierlab_analysis::statistics::percentile::BlockTable;
use tierlab_loadgen::store::folder;
use tierlab_loadgen::store::time::{parse_rfc3339, rfc3339_ms};

// Other tests run beside it.
const PLAN: &str = "name = \"many\"\nmodel = \"m\"\nseed = 3\nrepeats = 2\nwarmup_s = 0.2\nstep_s = 1.0\n\
    drain_s = 0.5\nmax_in_flight = 64\n[limits]\nforeign_cpu_share = 1\nsteal_share = 1\n\
    foreign_disk_bytes_per_s = 1e12\nforeign_network_bytes_per_s = 1e12\nforeign_io_pressure = 1\nforeign_memory_pressure = 1\n\
    [[load]]\nmode = \"realtime\"\nrates = [300]\n";

fn sweep(place: &Workdir, url: &str, name: &str, more: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("sweep").arg(place.path("plan.toml")).args(["--url", url]);
    command.arg("--out").arg(place.path("results")).args(["--name", name]);
    command.args(more);
    command
}

fn load(place: &Workdir, name: &str) -> Run {
    folder::load(&place.path("results").join(name)).unwrap()
}

fn all_latencies(run: &Run) -> Histogram<u64> {
    let mut all = Histogram::new(3).unwrap();
    let repeats = run.points.iter().flat_map(|point| &point.repeats);
    for block in repeats.flat_map(|repeat| &repeat.histograms.latency) {
        all.add(block).unwrap();
    }
    all
}

#[test]
fn three_processes_send_one_schedule() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let ended = run(sweep(&place, &endpoint.url, "one", &[]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ended = run(sweep(&place, &endpoint.url, "three", &["--workers", "3"]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let (one, three) = (load(&place, "one"), load(&place, "three"));
    for (a, b) in one.points[0].repeats.iter().zip(&three.points[0].repeats) {
        // One schedule, however many send it.
        assert_eq!((a.seed, a.scheduled), (b.seed, b.scheduled));
        assert_eq!((b.completed, b.errors.len()), (300, 0));
        let recorded: u64 = b.histograms.latency.iter().map(Histogram::len).sum();
        assert_eq!(recorded, 300);
        assert!(
            b.bands
                .iter()
                .any(|band| band.parts_us.iter().any(|(part, _)| part == "infer"))
        );
    }
    assert!(
        three.environment.shared_cores[0].contains("3 processes"),
        "{:?}",
        three.environment.shared_cores
    );
}

/// Ids of the load processes of a run.
fn load_processes(of: u32) -> Vec<i32> {
    let children = |id: i32| -> Vec<i32> {
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|child: &i32| {
                let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
                stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(&id.to_string())
            })
            .collect()
    };
    children(of as i32)
}

#[test]
fn a_load_process_that_dies_is_named_and_finished_steps_are_kept() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&PLAN.replace("repeats = 2", "repeats = 4"));
    let ended: Ended = run_until(
        sweep(&place, &endpoint.url, "r", &["--workers", "2"]),
        "[1/4]",
        |child| {
            let second = *load_processes(child.id()).iter().max().unwrap();
            kill(Pid::from_raw(second), Signal::SIGKILL).unwrap();
        },
    );
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("load process 2 of 2"), "{}", ended.stderr);
    assert!(ended.stderr.contains("signal 9"), "{}", ended.stderr);
    let run = load(&place, "r");
    assert!(run.interrupted && !run.points[0].repeats.is_empty());
}

#[test]
fn the_processes_end_with_a_run_that_is_killed() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let mut processes = Vec::new();
    run_until(
        sweep(&place, &endpoint.url, "r", &["--workers", "2"]),
        "[1/2]",
        |child| {
            processes = load_processes(child.id());
            crate::program::kill_at_once(child);
        },
    );
    assert_eq!(processes.len(), 2);
    let mut looks = 0;
    // Nobody may be there to bury them.
    let lives = |id: &i32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    };
    while processes.iter().any(lives) {
        looks += 1;
        assert!(looks < 600, "load processes outlive their run");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// How often two hosts are started anew where the machine let one be late.
const ATTEMPTS: usize = 6;
/// From the start of the hosts to their first step: enough for both to be ready on a busy machine.
const AHEAD: Duration = Duration::from_secs(6);

fn merge(place: &Workdir, folders: &[&str], out: &str) -> Ended {
    let mut command = Command::new(BINARY);
    command
        .arg("merge")
        .args(folders.iter().map(|name| place.path("results").join(name)));
    command.arg("--out").arg(place.path(out));
    run(command)
}

/// Runs of two hosts at one time, `0` and `1`, merged into `both`.
fn merged(endpoint: &NullEndpoint) -> Workdir {
    for _ in 0..ATTEMPTS {
        let place = Workdir::new(PLAN);
        let start_at = rfc3339_ms(SystemTime::now() + AHEAD);
        let together: Vec<_> = ["0", "1"]
            .map(|host| {
                let share = format!("{host}/2");
                let more = ["--host", &share, "--start-at", &start_at, "--start-every", "8"];
                let mut command = sweep(&place, &endpoint.url, host, &more);
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped());
                command.spawn().unwrap()
            })
            .into_iter()
            .map(|child| child.wait_with_output().unwrap())
            .collect();
        let late = together
            .iter()
            .find(|host| String::from_utf8_lossy(&host.stderr).contains("--start-at some seconds ahead"));
        // What the load of the machine decides: a host that was not ready, or that began late.
        if let Some(late) = late {
            assert!(!late.status.success());
            continue;
        }
        for host in &together {
            assert!(host.status.success(), "{}", String::from_utf8_lossy(&host.stderr));
        }
        let ended = merge(&place, &["0", "1"], "results/both");
        if ended.stderr.contains("common to both") {
            assert_eq!(ended.code, Some(2), "{}", ended.stderr);
            continue;
        }
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        return place;
    }
    panic!("in each of {ATTEMPTS} attempts one host was late; leave the machine less to do");
}

/// A host's run with something else in its `run.json`.
fn altered(place: &Workdir, host: &str, as_: &str, change: impl Fn(&mut serde_json::Value)) {
    let (from, to) = (place.path("results").join(host), place.path("results").join(as_));
    let copied = Command::new("cp").arg("-r").args([&from, &to]).status().unwrap();
    assert!(copied.success());
    let mut run = read_json(&to.join("run.json"));
    change(&mut run);
    fs::write(to.join("run.json"), run.to_string()).unwrap();
}

#[test]
fn two_hosts_send_one_schedule_and_their_runs_are_merged_from_histograms() {
    let endpoint = NullEndpoint::start();
    let place = merged(&endpoint);
    let ended = run(sweep(&place, &endpoint.url, "one", &[]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let (a, b, both, one) = (
        load(&place, "0"),
        load(&place, "1"),
        load(&place, "both"),
        load(&place, "one"),
    );
    let point = &both.points[0];
    // The plan's rate, of which each host sent half.
    assert_eq!(point.factors.offered_rps, 300.0);
    assert_eq!(a.points[0].factors.offered_rps, 150.0);
    assert!(both.host.is_none() && a.host != b.host);
    let lengths = |repeat: &Repeat| -> Vec<u64> { repeat.histograms.latency.iter().map(Histogram::len).collect() };
    for (i, repeat) in point.repeats.iter().enumerate() {
        let (a, b) = (&a.points[0].repeats[i], &b.points[0].repeats[i]);
        assert_eq!((a.seed, b.seed), (repeat.seed, repeat.seed));
        assert_eq!((a.scheduled, b.scheduled, repeat.scheduled), (150, 150, 300));
        assert_eq!(repeat.completed, a.completed + b.completed);
        assert!((repeat.achieved_rps - a.achieved_rps - b.achieved_rps).abs() < 1e-9);
        // What one host sends alone, block by block.
        let alone = &one.points[0].repeats[i];
        assert_eq!((alone.seed, lengths(alone)), (repeat.seed, lengths(repeat)));
    }
    let mut sum = all_latencies(&a);
    sum.add(all_latencies(&b)).unwrap();
    assert_eq!(sum.len(), 600);
    let table = BlockTable::new(point.repeats.iter().map(|repeat| repeat.histograms.latency.as_slice()));
    for quantile in [0.5, 0.95, 0.99] {
        assert_eq!(table.pooled_quantile(quantile), Some(sum.value_at_quantile(quantile)));
    }
    let summary = read_json(&place.path("results/both/run.json"))["points"][0]["summary"].clone();
    assert_eq!(summary["samples"], 600);
    assert!(place.path("results/both/report.html").is_file());
    assert!(
        both.environment
            .shared_cores
            .iter()
            .any(|note| note.contains("at one time"))
    );
    // What each host knew of its instrument is named by its folder.
    let parts: Vec<_> = both.certificates.iter().map(|carried| carried.part.clone()).collect();
    let folder = |name: &str| Some(place.path("results").join(name).display().to_string());
    assert_eq!(parts, [folder("0"), folder("1")]);

    // What does not belong together is refused, with the reason.
    altered(&place, "1", "late", |run| {
        let repeat = &mut run["points"][0]["repeats"][1];
        let began = parse_rfc3339(repeat["started_at"].as_str().unwrap()).unwrap();
        repeat["started_at"] = rfc3339_ms(began + Duration::from_millis(100)).into();
    });
    altered(&place, "1", "other-plan", |run| {
        let plan = run["plan_toml"]
            .as_str()
            .unwrap()
            .replace("rates = [300]", "rates = [301]");
        run["plan_toml"] = plan.into();
    });
    altered(&place, "1", "other-arrivals", |run| {
        run["points"][0]["repeats"][0]["seed"] = 1.into();
    });
    altered(&place, "0", "of-three", |run| run["host"]["of"] = 3.into());
    altered(&place, "1", "also-of-three", |run| run["host"]["of"] = 3.into());
    for (folders, says) in [
        (["0", "0"], "a number of its own"),
        (["0", "one"], "no share of one schedule"),
        (["0", "of-three"], "a number of its own"),
        (["of-three", "also-of-three"], "host 2/3 is missing"),
        (["0", "late"], "less than 98 %"),
        (["0", "other-arrivals"], "not of one schedule"),
        (["0", "other-plan"], "their plans differ"),
    ] {
        let refused = merge(&place, &folders, "results/refused");
        assert_eq!(refused.code, Some(2), "{folders:?}");
        assert!(refused.stderr.contains(says), "{folders:?}: {}", refused.stderr);
    }
    assert_eq!(merge(&place, &["0"], "results/alone").code, Some(2));
}

#[test]
fn processes_of_a_host_send_its_share() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let ended = run(sweep(&place, &endpoint.url, "one", &[]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for _ in 0..ATTEMPTS {
        let start_at = rfc3339_ms(SystemTime::now() + AHEAD);
        let more = [
            "--host",
            "1/2",
            "--start-at",
            &start_at,
            "--start-every",
            "8",
            "--workers",
            "2",
        ];
        let _ = fs::remove_dir_all(place.path("results/second"));
        let ended = run(sweep(&place, &endpoint.url, "second", &more));
        if ended.stderr.contains("--start-at some seconds ahead") {
            continue;
        }
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let (one, second) = (load(&place, "one"), load(&place, "second"));
        for (all, half) in one.points[0].repeats.iter().zip(&second.points[0].repeats) {
            assert_eq!((all.seed, all.scheduled), (half.seed, 2 * half.scheduled));
            assert_eq!((half.completed, half.errors.len()), (150, 0));
            let lengths =
                |repeat: &Repeat| -> Vec<u64> { repeat.histograms.latency.iter().map(Histogram::len).collect() };
            // Every second request of each block.
            for (all, half) in lengths(all).iter().zip(lengths(half)) {
                assert!(all.abs_diff(2 * half) <= 1, "{all} {half}");
            }
        }
        return;
    }
    panic!("in each of {ATTEMPTS} attempts the processes were late; leave the machine less to do");
}

#[test]
fn a_host_that_is_late_or_searches_is_refused() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let over = ["--host", "0/2", "--start-at", "2026-01-01T00:00:00Z"];
    let ended = run(sweep(&place, &endpoint.url, "late", &over));
    assert_ne!(ended.code, Some(0));
    assert!(
        ended.stderr.contains("2026-01-01T00:00:00Z") && ended.stderr.contains("--start-at"),
        "{}",
        ended.stderr
    );
    for (more, says) in [
        (&["--host", "0/2"][..], "--start-at"),
        (&["--host", "0", "--start-at", "2026-01-01T00:00:00Z"], "K/N"),
        (&["--host", "0/2", "--start-at", "noon"], "UTC"),
    ] {
        let ended = run(sweep(&place, &endpoint.url, "wrong", more));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
    let searching = Workdir::new(&format!("{PLAN}[search]\nslo = \"p99 < 50 ms\"\n"));
    let ended = run(sweep(&searching, &endpoint.url, "searching", &over));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("search") && ended.stderr.contains("--agents"),
        "{}",
        ended.stderr
    );
}
