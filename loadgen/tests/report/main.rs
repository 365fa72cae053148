//! Reports of a synthetic run.
//!
//! With `TIERLAB_REPORT_TO=DIR` the result folder is left there, for viewing in a browser.

#[path = "../answered/mod.rs"]
mod answered;
#[path = "../fleets/mod.rs"]
mod fleets;
#[path = "../synthetic/mod.rs"]
mod synthetic;

mod compared;
mod verdicts;
mod written;

use hdrhistogram::Histogram;
use std::path::PathBuf;
use std::sync::OnceLock;
use tierlab_analysis::record::{Repeat, Run};
use tierlab_report::table;

fn run() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| synthetic::run(3, 1.0))
}

fn run_folder() -> (tempfile::TempDir, PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let dir = std::env::var_os("TIERLAB_REPORT_TO").map_or_else(|| temporary.path().join("run"), PathBuf::from);
    (temporary, dir)
}

/// Every latency of some histograms, longer by a factor.
fn scale(blocks: &mut [Histogram<u64>], factor: f64) {
    for block in blocks {
        let mut scaled = Histogram::<u64>::new(3).unwrap();
        for step in block.iter_recorded() {
            let us = (step.value_iterated_to() as f64 * factor).round() as u64;
            scaled.record_n(us.max(1), step.count_at_value()).unwrap();
        }
        *block = scaled;
    }
}

/// The run with one point of it changed.
fn with(change: impl Fn(usize, &mut Repeat)) -> Run {
    let mut run = run().clone();
    run.slo = None;
    for (index, repeat) in run.points[0].repeats.iter_mut().enumerate() {
        change(index, repeat);
    }
    tierlab_analysis::conclude(&mut run);
    run
}

fn everywhere(run: &Run) -> [String; 3] {
    let (_keep, dir) = run_folder();
    synthetic::write(run, &dir).unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    [table(run), read("report.md"), read("report.html")]
}
