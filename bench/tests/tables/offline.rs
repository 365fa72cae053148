//! `offline`.

use super::{assert_nothing_is_left, assert_refused, command, configs, folder, output_file, run, run_json, stderr};
use std::process::Stdio;
use tierlab_models::generators::{ModelKind, Request, Size};
use tierlab_models::repository::write_generated;
use tierlab_models::stop::Stop;
use tierlab_models::tables::{self, TableKind};

fn plan(workloads: &str) -> String {
    format!(
        "name = \"short\"\nrepeats = 2\nseconds = 0.4\nwarmup_seconds = 0.1\nshard_bytes = \"256KiB\"\nlayouts = [\"rows\", \"tar\"]\n\
         [loader]\npiece_bytes = \"32KiB\"\ndepth = [1, 8]\n{workloads}\n\
         [price]\nfile = \"{0}/prices.toml\"\ninstance = \"aws/c7i.xlarge\"\n\
         [tiers.disk]\nfile = \"{0}/tiers/nvme.toml\"\n\
         [tiers.slow]\nfile = \"{0}/tiers/memory.toml\"\nset = [\"root=\", \"emulated.profile=efs-nfs\"]\nprice = \"s3-standard\"\n",
        configs().display()
    )
}

const GENERATED: &str = "[workloads.clicks]\ngenerate = \"ctr\"\nrows = 3000\nbatch_rows = 32\nshuffle_rows = 100\n";

#[test]
fn loader_model_and_both_are_measured_and_said() {
    let folder = folder();
    let output = run("offline", folder.path(), &plan(GENERATED));
    let run_json = run_json(folder.path(), &output);
    let all = run_json["statements"].as_array().unwrap();
    assert_eq!(all.len(), 8, "two layouts on two tiers, by two loaders");
    for one in all {
        let number = |key: &str| {
            let value = &one[key];
            value
                .as_f64()
                .or(value["value"].as_f64())
                .unwrap_or_else(|| panic!("{key} in {one}"))
        };
        for rate in ["loader_per_s", "inference_per_s", "both_per_s", "naive_per_s"] {
            assert!(number(rate) > 0.0, "{one}");
        }
        let idle = number("idle_reading_share") + number("idle_decoding_share") + number("idle_batching_share");
        assert!(
            (idle - number("idle_share")).abs() < 1e-9 && (0.0..=1.0).contains(&idle),
            "{one}"
        );
        // Pieces are many rows, so that a row is far less than a request, and its bytes are read about once.
        assert!(number("requests_per_row") < 0.2, "{one}");
        assert!((400.0..20_000.0).contains(&number("bytes_per_row")), "{one}");
        assert!(number("usd_per_million") > 0.0 && number("peak_bytes") > 1e6, "{one}");
        let diagnosis = one["diagnosis"].to_string();
        assert!(
            diagnosis.contains("loader") && diagnosis.contains("one read at a time"),
            "{diagnosis}"
        );
        if one["tier"] == "slow" && one["depth"] == 8 {
            // Milliseconds for a read, one after another or eight at a time: no machine is slow enough to hide that.
            assert!(one["of_naive"]["value"].as_f64().unwrap() > 1.0, "{one}");
        }
    }
    let table = output_file(folder.path(), "offline.csv");
    assert_eq!(table.lines().count(), 9);
    for file in ["report.md", "report.html"] {
        let text = output_file(folder.path(), file);
        assert!(
            text.contains("clicks as tar on slow") && text.contains("emulated"),
            "{file}"
        );
    }
    assert_nothing_is_left(folder.path());
}

#[test]
fn accelerators_are_fed_without_a_model() {
    let folder = folder();
    let workloads = "[workloads.few]\nsample_bytes = \"4KiB\"\nrows = 300\nbatch_rows = 8\naccelerator = { compute_ms_per_batch = 20, count = [1, 2] }\n\
                     [workloads.many]\nsample_bytes = \"4KiB\"\nrows = 300\nbatch_rows = 32\naccelerator = { compute_ms_per_batch = 0.02, count = [1, 64] }\n";
    let plan = plan(workloads)
        .replace("depth = [1, 8]", "depth = 1")
        .replace("\"rows\", \"tar\"", "\"rows\"");
    // Nothing of ONNX Runtime is needed.
    let output = command("offline", folder.path(), &plan)
        .args(["--onnxruntime", "/nowhere"])
        .output()
        .unwrap();
    let run_json = run_json(folder.path(), &output);
    for one in run_json["statements"].as_array().unwrap() {
        let all = one["accelerators"].as_array().unwrap();
        assert_eq!(all.len(), 2, "{one}");
        let utilisation = |at: usize| all[at]["utilisation"]["value"].as_f64().unwrap();
        match one["workload"].as_str() {
            // 800 rows a second: a tier with a delay of milliseconds has more.
            Some("few") => assert!((0.5..=1.0).contains(&utilisation(1)), "{one}"),
            // A hundred million rows a second are more than any tier has.
            _ => assert!(utilisation(1) < 0.5 && one["accelerators_at_90"].is_null(), "{one}"),
        }
    }
    let text = output_file(folder.path(), "report.md");
    assert!(
        text.contains("MLPerf Storage requires 5 times") && text.contains("accelerators"),
        "{text}"
    );
}

#[test]
fn a_model_and_a_table_that_were_brought_are_taken() {
    let folder = folder();
    let request = Request {
        kind: ModelKind::Ctr,
        size: Size::Small,
        seed: 5,
    };
    let stop = Stop::never();
    write_generated(&folder.path().join("models"), &request, &stop).unwrap();
    tables::generate(TableKind::Ctr, 2000, 5, &folder.path().join("features"), &stop).unwrap();
    let own = "[workloads.own]\nmodel = \"models/ctr\"\ntable = \"features/ctr.rows\"\nbatch_rows = 16\n";
    let output = run("offline", folder.path(), &plan(own));
    run_json(folder.path(), &output);
    let text = output_file(folder.path(), "report.md");
    assert!(
        text.contains("own: rows: 2000") && text.contains("drawn among 0"),
        "{text}"
    );
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let cases = vec![
        (
            "[workloads.a]\ngenerate = \"cats\"\nrows = 5\nbatch_rows = 1\n",
            "`ctr` or `vision`",
        ),
        (
            "[workloads.a]\ngenerate = \"ctr\"\nbatch_rows = 1\n",
            "set either `generate` and `rows`, or `model` and `table`",
        ),
        (
            "[workloads.a]\nsample_bytes = \"1KiB\"\nrows = 5\nbatch_rows = 1\n",
            "`sample_bytes`, `rows` and `accelerator`",
        ),
        (
            "[workloads.a]\ngenerate = \"ctr\"\nrows = 5\nbatch_rows = 4096\n",
            "allows 1024",
        ),
        (
            "[workloads.a]\ngenerate = \"ctr\"\nrows = 5\nbatch_rows = 0\n",
            "batch_rows: from 1",
        ),
        (
            "[workloads.a]\nmodel = \"nowhere\"\ntable = \"t.rows\"\nbatch_rows = 1\n",
            "nowhere",
        ),
    ];
    let cases = cases
        .into_iter()
        .map(|(workloads, says)| (plan(workloads), says))
        .collect();
    assert_refused("offline", cases);
    let folder = folder();
    let mut without = command("offline", folder.path(), &plan(GENERATED));
    let output = without
        .args(["--onnxruntime", "/nowhere/lib.so"])
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("/nowhere/lib.so") && stderr(&output).contains("pip install onnxruntime"),
        "{}",
        stderr(&output)
    );
    assert_nothing_is_left(folder.path());
}
