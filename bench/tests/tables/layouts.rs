//! `layouts`.

use super::{assert_nothing_is_left, assert_refused, configs, folder, output_file, run, run_json, stderr};

fn plan(more: &str) -> String {
    let tiers = configs().join("tiers");
    format!(
        "name = \"short\"\nrepeats = 3\nrows = 700\nshard_bytes = \"64KiB\"\nlookups = 5\nbatches = 2\nscan_rows = 300\n{more}\n\
         [tiers.disk]\nfile = \"{0}/nvme.toml\"\n[tiers.far]\nfile = \"{0}/memory.toml\"\nset = [\"root=\", \"emulated.profile=s3-express\"]\n",
        tiers.display()
    )
}

#[test]
fn every_layout_is_measured_on_every_tier_and_nothing_of_it_stays() {
    let folder = folder();
    let output = run("layouts", folder.path(), &plan(""));
    let run = run_json(folder.path(), &output);
    let all = run["statements"].as_array().unwrap();
    assert_eq!(all.len(), 22, "eleven layouts on two tiers");
    for one in all {
        let (tier, layout) = (one["tier"].as_str().unwrap(), one["layout"].as_str().unwrap());
        let value = |access: &str, key: &str| one[access][key].as_f64().unwrap();
        assert!(one["stored_bytes"].as_u64().unwrap() > 700 * 100, "{one}");
        assert!(value("scan", "requests_per_sample") > 0.0, "{tier} {layout}");
        let requests = value("point", "requests_per_sample");
        match layout {
            // On disk the size of a file is looked up first; elsewhere the reply has it.
            "files" => assert_eq!(requests, if tier == "disk" { 2.0 } else { 1.0 }, "{tier}"),
            "rows" | "tar" | "tfrecord" | "arrow" => assert_eq!(requests, 1.0, "{tier} {layout}"),
            _ => assert!(requests >= 1.0, "{tier} {layout}"),
        }
        assert_eq!(one["scan"]["of_files"].is_null(), layout == "files", "{one}");
        let objects = one["objects"].as_u64().unwrap();
        assert_eq!(objects > 700, layout == "files", "{tier} {layout}: {objects}");
    }
    for name in ["report.html", "report.md", "layouts.csv"] {
        assert!(output_file(folder.path(), name).contains("parquet-zstd"), "{name}");
    }
    assert!(String::from_utf8_lossy(&output.stdout).contains("one entity is read fastest from"));
    assert_nothing_is_left(folder.path());
    // Results are not written over.
    let again = super::run("layouts", folder.path(), &plan(""));
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("contains results"), "{}", stderr(&again));
}

#[test]
fn what_is_wrong_with_a_plan_is_named() {
    let cases = vec![
        (plan("layouts = [\"csv\"]"), "csv"),
        (plan("layouts = [\"tar\", \"tar\"]"), "duplicate entry \"tar\""),
        (plan("batch_rows = 0"), "batch_rows: from 1"),
        (
            plan("").replace("batches = 2", "batches = 1000000\nbatch_rows = 100000"),
            "batches × batch_rows: from 1 to 134217728",
        ),
        (plan("colour = 1"), "colour"),
        (
            "name = \"x\"\n[tiers]\n".to_owned(),
            "tiers: plan needs at least one entry",
        ),
    ];
    assert_refused("layouts", cases);
}
