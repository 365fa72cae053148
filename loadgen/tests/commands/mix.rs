//! Mixes and traces through the real binary, against the null endpoint.

use crate::program::{BINARY, NullEndpoint, Workdir, run};
use serde_json::Value;
use std::fs;
use std::process::Command;

const HEAD: &str = "name = \"short\"\nmodel = \"m\"\nseed = 3\nrepeats = 2\nwarmup_s = 0.1\nstep_s = 0.5\ndrain_s = 0.5\n\
    max_in_flight = 8\n";

fn points(run: &Value) -> &Vec<Value> {
    run["points"].as_array().unwrap()
}

#[test]
fn the_parts_of_a_mix_are_sent_together_and_told_apart() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!(
        "{HEAD}[[load]]\nmode = \"realtime\"\nrates = [40]\n[[mix]]\nrates = [90]\n[[mix.part]]\nweight = 8\n\
         mode = \"realtime\"\n[[mix.part]]\nweight = 1\nmode = \"batch\"\nbatch_size = 16\nmodel = \"other\"\n"
    ));
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = place.run_json();
    let told: Vec<(f64, u64, &str, Option<&str>)> = points(&result)
        .iter()
        .map(|point| {
            let factors = &point["factors"];
            (
                factors["offered_rps"].as_f64().unwrap(),
                factors["batch_size"].as_u64().unwrap(),
                factors["model"].as_str().unwrap(),
                factors["mix"].as_str(),
            )
        })
        .collect();
    let mix = Some("8 realtime×1, 1 batch×16 of other");
    assert_eq!(
        told,
        [(40.0, 1, "m", None), (80.0, 1, "m", mix), (10.0, 16, "other", mix)]
    );
    for (point, scheduled) in points(&result).iter().zip([20, 40, 5]) {
        let repeats = point["repeats"].as_array().unwrap();
        assert_eq!(repeats.len(), 2);
        for repeat in repeats {
            assert_eq!(
                (&repeat["scheduled"], &repeat["completed"]),
                (&scheduled.into(), &scheduled.into())
            );
        }
    }
    // Without prices nothing is paid, and each part has its own row.
    assert!(points(&result)[1]["summary"]["usd_per_10k"].is_null());
    let summary = fs::read_to_string(place.path("results/r/summary.csv")).unwrap();
    assert_eq!(summary.matches("in a mix of 8 realtime×1").count(), 2, "{summary}");
}

#[test]
fn a_log_becomes_a_trace_that_a_plan_replays_with_its_batch_sizes() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!(
        "{HEAD}arrivals = \"trace\"\n[arrival]\nfile = \"trace.csv\"\n[keys]\ndistribution = \"file\"\nfile = \"trace.csv\"\n\
         [[mix]]\nrates = [80]\ntrace = \"trace.csv\"\n"
    ));
    fs::write(
        place.path("log.csv"),
        "when,users\n3000,1 2 3\n1000,4\n1500,5\n2000,6\n2200,7 8 9 10\n",
    )
    .unwrap();
    let mut convert = Command::new(BINARY);
    convert
        .arg("trace")
        .arg(place.path("log.csv"))
        .args(["--time", "when", "--unit", "ms", "--ids", "users"]);
    convert.arg("--round-batches").arg("--out").arg(place.path("trace.csv"));
    let ended = run(convert);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("5 requests in 2.0 s"), "{}", ended.stdout);

    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = place.run_json();
    let told: Vec<(u64, f64)> = points(&result)
        .iter()
        .map(|point| (&point["factors"]["batch_size"], &point["factors"]["offered_rps"]))
        .map(|(size, rps)| (size.as_u64().unwrap(), rps.as_f64().unwrap()))
        .collect();
    // Three single requests, and two that are rounded up to four.
    assert_eq!(told, [(1, 48.0), (4, 32.0)]);

    let mut convert = Command::new(BINARY);
    convert
        .arg("trace")
        .arg(place.path("log.csv"))
        .arg("--out")
        .arg(place.path("x.csv"));
    let ended = run(convert);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("no column `timestamp`; there are when, users"),
        "{}",
        ended.stderr
    );
}
