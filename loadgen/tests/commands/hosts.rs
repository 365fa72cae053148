//! `sweep --workers` and `merge` through the real binary: several processes, and several hosts, as one run.

use crate::program::{BINARY, Ended, NullEndpoint, Workdir, read_json, run, run_until};
use hdrhistogram::Histogram;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::{Command, Stdio};
use tierlab_analysis::record::Run;
use tierlab_analysis::statistics::percentile::BlockTable;
use tierlab_loadgen::store::folder;

// Other tests run beside it.
const PLAN: &str = "name = \"many\"\nmodel = \"m\"\nseed = 3\nrepeats = 2\nwarmup_s = 0.2\nstep_s = 1.0\n\
    drain_s = 0.5\nmax_in_flight = 64\n[limits]\nforeign_cpu_share = 1\nsteal_share = 1\n\
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

/// How often two hosts are started anew where the machine let one begin long after the other.
const ATTEMPTS: usize = 6;

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
        let place = two_hosts(endpoint);
        let ended = merge(&place, &["0", "1"], "results/both");
        // The one refusal that the load of the machine decides.
        if ended.stderr.contains("rates of different times do not add up") {
            assert_eq!(ended.code, Some(2), "{}", ended.stderr);
            continue;
        }
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        return place;
    }
    panic!("in each of {ATTEMPTS} attempts one host began when the other was half done; leave the machine less to do");
}

fn two_hosts(endpoint: &NullEndpoint) -> Workdir {
    let place = Workdir::new(PLAN);
    let together: Vec<_> = ["0", "1"]
        .map(|host| {
            let mut command = sweep(&place, &endpoint.url, host, &["--host", host]);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .into_iter()
        .map(|mut child| child.wait().unwrap())
        .collect();
    assert!(together.iter().all(std::process::ExitStatus::success));
    place
}

#[test]
fn runs_of_two_hosts_are_merged_from_their_histograms() {
    let endpoint = NullEndpoint::start();
    let place = merged(&endpoint);
    let (a, b, both) = (load(&place, "0"), load(&place, "1"), load(&place, "both"));
    let point = &both.points[0];
    assert_eq!(point.factors.offered_rps, 600.0);
    for (i, repeat) in point.repeats.iter().enumerate() {
        let (a, b) = (&a.points[0].repeats[i], &b.points[0].repeats[i]);
        assert_ne!(a.seed, b.seed);
        assert_eq!(repeat.scheduled, a.scheduled + b.scheduled);
        assert_eq!(repeat.completed, a.completed + b.completed);
        assert!((repeat.achieved_rps - a.achieved_rps - b.achieved_rps).abs() < 1e-9);
    }
    let mut sum = all_latencies(&a);
    sum.add(all_latencies(&b)).unwrap();
    assert_eq!(sum.len(), 1_200);
    let table = BlockTable::new(point.repeats.iter().map(|repeat| repeat.histograms.latency.as_slice()));
    for quantile in [0.5, 0.95, 0.99] {
        assert_eq!(table.pooled_quantile(quantile), Some(sum.value_at_quantile(quantile)));
    }
    let summary = read_json(&place.path("results/both/run.json"))["points"][0]["summary"].clone();
    assert_eq!(summary["samples"], 1_200);
    assert!(place.path("results/both/report.html").is_file());
    // What each host knew of its instrument is named by its folder.
    let parts: Vec<_> = both.certificates.iter().map(|carried| carried.part.clone()).collect();
    let folder = |name: &str| Some(place.path("results").join(name).display().to_string());
    assert_eq!(parts, [folder("0"), folder("1")]);

    // What does not belong together is refused, with the reason.
    let twice = merge(&place, &["0", "0"], "results/twice");
    assert_eq!(twice.code, Some(2));
    assert!(twice.stderr.contains("the same arrivals"), "{}", twice.stderr);
    let other = place.path("results/1/run.json");
    let text = fs::read_to_string(&other).unwrap();
    fs::write(&other, text.replace("rates = [300]", "rates = [301]")).unwrap();
    let differs = merge(&place, &["0", "1"], "results/differs");
    assert_eq!(differs.code, Some(2));
    assert!(
        differs.stderr.contains("their plans differ") && differs.stderr.contains("301"),
        "{}",
        differs.stderr
    );
    assert_eq!(merge(&place, &["0"], "results/alone").code, Some(2));
}
