//! `sweep --workers` through the real binary: several processes as one run.

use crate::program::{BINARY, Ended, NullEndpoint, Workdir, run, run_until};
use hdrhistogram::Histogram;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::Command;
use tierlab_analysis::record::Run;
use tierlab_loadgen::store::folder;

// Other tests run beside it.
const PLAN: &str = "name = \"many\"\nmodel = \"m\"\nseed = 3\narrivals = \"constant\"\nrepeats = 2\nwarmup_s = 0.2\nstep_s = 1.0\n\
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
    // Zombies count as ended, because nobody may reap them.
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
