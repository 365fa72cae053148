//! Mixes through the real binary, against the null endpoint.

use crate::program::{NullEndpoint, Workdir, run};
use crate::site::{Asked, Reply, site};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};

const HEAD: &str = "name = \"short\"\nmodel = \"m\"\nseed = 3\nrepeats = 2\nwarmup_s = 0.1\nstep_s = 0.5\ndrain_s = 0.5\n\
    max_in_flight = 8\n";

fn points(run: &Value) -> &Vec<Value> {
    run["points"].as_array().unwrap()
}

#[test]
fn the_parts_of_a_mix_are_sent_together_and_told_apart() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!(
        "{HEAD}arrivals = \"constant\"\n[[load]]\nmode = \"realtime\"\nrates = [40]\n[[mix]]\nrates = [90]\n[[mix.part]]\nweight = 8\n\
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
fn a_recorded_csv_sets_gaps_and_keys() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!(
        "{HEAD}arrivals = \"trace\"\n[arrival]\nfile = \"trace.csv\"\n[keys]\ndistribution = \"file\"\nfile = \"trace.csv\"\n\
         [[load]]\nmode = \"realtime\"\nrates = [80]\n"
    ));
    let rows = "timestamp,entity_id\n3.0,1 2 3\n1.0,4\n1.5,5\n2.0,6\n2.2,7 8 9 10\n";
    fs::write(place.path("trace.csv"), rows).unwrap();
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = place.run_json();
    let [point] = &points(&result)[..] else {
        panic!("{result}")
    };
    assert_eq!(point["factors"]["arrivals"], "trace(trace.csv)");
    assert_eq!(point["repeats"][0]["scheduled"], 40);
}

/// Two models with free dimensions: `m` takes `x` [-1, -1], `other` takes `image` [-1, 3, -1, -1].
fn two_models(asked: &Asked) -> Reply {
    let about = |name: &str, input: &str, shape: &[i64]| {
        let inputs = [json!({"name": input, "datatype": "FP32", "shape": shape})];
        let outputs = [json!({"name": "y", "datatype": "FP32", "shape": [-1, 1]})];
        json!({"name": name, "versions": ["1"], "platform": "p", "inputs": inputs, "outputs": outputs}).to_string()
    };
    let reply = |model: &str| {
        let y = json!({"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [0.5]});
        json!({"model_name": model, "model_version": "1", "outputs": [y]}).to_string()
    };
    match asked.path.as_str() {
        "/v2/models/m" => (200, about("m", "x", &[-1, -1])),
        "/v2/models/other" => (200, about("other", "image", &[-1, 3, -1, -1])),
        "/v2/models/m/infer" => (200, reply("m")),
        "/v2/models/other/infer" => (200, reply("other")),
        _ => (404, "{\"error\":\"no such route\"}".to_owned()),
    }
}

#[test]
fn each_model_of_a_mix_is_sent_the_inputs_that_the_plan_gives_it() {
    let shapes = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&shapes);
    let port = site(move |asked| {
        if asked.path.ends_with("/infer") {
            let body: Value = serde_json::from_slice(asked.body.as_bytes()).unwrap();
            let input = &body["inputs"][0];
            // Before the load, two rows are sent to see which dimension they are.
            if input["shape"][0] == 2 {
                return two_models(asked);
            }
            seen.lock()
                .unwrap()
                .insert(format!("{} {}", input["name"], input["shape"]));
        }
        two_models(asked)
    });
    let url = format!("http://127.0.0.1:{port}");
    let own = format!(
        "{HEAD}encoding = \"json\"\n[limits]\nforeign_cpu_share = 1.0\nsteal_share = 1.0\nlag_us = 1000000\n\
         [[mix]]\nrates = [60]\n[[mix.part]]\nweight = 2\nmode = \"realtime\"\n\
         [[mix.part]]\nweight = 1\nmode = \"realtime\"\nmodel = \"other\"\n[inputs.tensor.x]\nshape = [\"rows\", 5]\n"
    );
    let place = Workdir::new(&own);
    let mut sweep = place.sweep(&url);
    sweep.arg("--no-metrics");
    let ended = run(sweep);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("`other`") && ended.stderr.contains("[inputs.model.other.tensor.image]"),
        "{}",
        ended.stderr
    );
    let place = Workdir::new(&format!(
        "{own}[inputs.model.other]\norder = \"shuffled\"\n[inputs.model.other.tensor.image]\n\
         shape = [\"rows\", 3, {{ choices = [4, 6] }}, {{ same_as = 2 }}]\n"
    ));
    let mut sweep = place.sweep(&url);
    sweep.arg("--no-metrics");
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let found: Vec<String> = shapes.lock().unwrap().iter().cloned().collect();
    assert_eq!(found, [r#""image" [1,3,4,4]"#, r#""image" [1,3,6,6]"#, r#""x" [1,5]"#]);
}
