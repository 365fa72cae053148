//! Steps beside a busy stranger, through the real binary.

use crate::program::{NullEndpoint, Workdir, run};
use serde_json::Value;
use std::process::{Child, Command};

/// A busy loop that is no child of the load generator; ended when dropped.
struct Stranger(Child);

impl Stranger {
    fn start() -> Self {
        let script = "while :; do :; done";
        Self(Command::new("sh").args(["-c", script]).spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A window of more than a second, and any foreign CPU above the limit.
fn measured(limit: &str) -> (Workdir, Value, String, String) {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!(
        "name = \"short\"\nmodel = \"m\"\nseed = 3\nrepeats = 1\nwarmup_s = 0.1\nstep_s = 1.5\ndrain_s = 0.5\n\
         max_in_flight = 16\n[limits]\nforeign_cpu_share = {limit}\nsteal_share = 1\n[[load]]\nmode = \"realtime\"\n\
         rates = [100]\n"
    ));
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let run = place.run_json();
    (place, run, ended.stdout, ended.stderr)
}

#[test]
fn a_step_beside_a_stranger_is_made_again_and_then_invalid() {
    let _stranger = Stranger::start();
    let (place, run, table, said) = measured("0.0");
    assert_eq!(
        said.matches("waiting for a quiet machine").count(),
        1,
        "in vain once: {said}"
    );
    assert!(said.contains("it is not quiet yet"), "{said}");
    let point = &run["points"][0];
    let [repeat] = point["repeats"].as_array().unwrap().as_slice() else {
        panic!("{point}");
    };
    assert_eq!(repeat["attempt"], 2);
    let by = repeat["disturbed"].as_str().unwrap();
    assert!(
        by.starts_with("foreign processes used") && by.ends_with("(limit 0 %)"),
        "{by}"
    );
    assert_eq!(repeat["disturbed_before"].as_array().unwrap().len(), 2);
    let machine = &repeat["machine"];
    assert!(
        machine["samples"].as_u64().unwrap() >= 10 && machine["foreign_cpu_share"].as_f64().unwrap() > 0.0,
        "{machine}"
    );
    let verdict = point["summary"]["verdict"].to_string();
    assert!(
        verdict.contains("invalid") && verdict.contains("disturbed in 1 of 1 repeats"),
        "{verdict}"
    );
    assert!(table.contains("Something foreign disturbed 1 of 1 steps"), "{table}");
    let kept = std::fs::read_dir(place.path("results/r/hdr")).unwrap();
    assert_eq!(kept.count(), 3, "every attempt is kept");
}

#[test]
fn without_a_limit_a_stranger_is_seen_and_let_be() {
    let _stranger = Stranger::start();
    let (_place, run, table, said) = measured("1");
    assert!(!said.contains("quiet"), "{said}");
    let repeat = &run["points"][0]["repeats"][0];
    assert!(repeat["disturbed"].is_null() && repeat["attempt"].is_null(), "{repeat}");
    assert!(repeat["machine"]["foreign_cpu_share"].as_f64().unwrap() > 0.0);
    assert!(!table.contains("Something foreign"), "{table}");
}
