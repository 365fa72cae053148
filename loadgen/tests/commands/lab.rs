//! `lab` through the real binary: its order, with the null endpoint in place of every server and small scripts in place
//! of the programs that generate and publish data. `make lab` runs the whole lab with its real programs.

use crate::program::{BINARY, Ended, PLAN, Workdir, interrupt, read_json, run, run_until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

pub(crate) const LAB: &str = "[lab]\ntiers = [\"nvme\", \"s3\"]\nwork = \"work\"\nserver_config = \"server.toml\"\n\
    ready_timeout_s = 30\n[[lab.cache]]\nname = \"cold\"\nshare = 0.0\n[lab.data]\nrows = 10\n";

/// Script that records its arguments, and creates the files that the lab expects.
const MODELS: &str = r#"#!/bin/sh
echo "models $*" >> "$(dirname "$0")/calls"
for last; do :; done
case "$1" in
  generate) mkdir -p "$last/m/1" && printf '[joined.x]\ntable = "t"\n' > "$last/m/config.toml" ;;
  features) printf '0123456789' > "$last/t.rows" ;;
  lay-out) echo '{"table":"t","bytes":4242}' ;;
esac
"#;
const ORIGIN: &str = r#"#!/bin/sh
echo "origin $*" >> "$(dirname "$0")/calls"
echo '{"s3":"http://127.0.0.1:9","bucket":"tierlab"}'
exec sleep 600
"#;
const SERVER: &str = r#"#!/bin/sh
echo "server $* as ${AWS_ACCESS_KEY_ID:-nobody}" >> "$(dirname "$0")/calls"
exec BINARY null-endpoint
"#;

/// Returns a folder with a plan, and scripts in place of the lab's programs.
pub(crate) fn lab_place(plan: &str) -> Workdir {
    let place = Workdir::new(plan);
    fs::create_dir_all(place.path("tiers")).unwrap();
    for file in ["server.toml", "tiers/nvme.toml", "tiers/s3.toml"] {
        fs::write(place.path(file), "").unwrap();
    }
    fs::create_dir(place.path("bin")).unwrap();
    program(&place, "tierlab-models", MODELS);
    program(&place, "tierlab-origin", ORIGIN);
    program(&place, "tierlab-server", &SERVER.replace("BINARY", BINARY));
    place
}

fn program(place: &Workdir, name: &str, script: &str) {
    let file = place.path("bin").join(name);
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn lab(place: &Workdir, name: &str) -> Command {
    let mut command = Command::new(BINARY);
    command
        .arg("lab")
        .arg(place.path("plan.toml"))
        .arg("--bin-dir")
        .arg(place.path("bin"));
    command.arg("--out").arg(place.path("results")).args(["--name", name]);
    command.arg("--verbose");
    // Nothing of the user's own, and nothing left there.
    command
        .env_remove("TIERLAB_CERTIFICATE")
        .env("XDG_STATE_HOME", place.path("state"));
    command
}

fn calls(place: &Workdir) -> String {
    fs::read_to_string(place.path("bin/calls")).unwrap()
}

/// Checks that no process of the lab is left: each has the lab's folder on its command line or in its environment.
fn nobody_is_left(place: &Workdir) {
    let folder = place.folder.path().to_str().unwrap();
    for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        assert!(!line.contains(folder), "still there: {line}");
    }
}

fn succeeds(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_plan_of_ones_own_is_written_once() {
    let place = Workdir::new(PLAN);
    let init = || {
        let mut command = Command::new(BINARY);
        command.args(["init", "lab"]).arg(place.path("mine"));
        run(command)
    };
    let first = init();
    succeeds(&first);
    let plan = place.path("mine/plan.toml");
    let next = format!("tierlab-loadgen lab {}", plan.display());
    assert!(first.stdout.contains(&next) && plan.is_file(), "{}", first.stdout);
    let second = init();
    assert_eq!(second.code, Some(2), "{}", second.stderr);
    assert!(second.stderr.contains("is not empty"), "{}", second.stderr);
}

#[test]
fn a_missing_file_is_refused_with_its_key_and_line() {
    let own_data = "repository = \"none\"\nfeatures = \"none\"";
    let priced = "seed = 3\nprices = \"none.toml\"\ninstance = \"box\"";
    for (from, to, says) in [
        ("server.toml", "none.toml", "plan.toml:19: `lab.server_config`: "),
        ("seed = 3", priced, "plan.toml:4: `prices`: "),
        (
            "rows = 10",
            own_data,
            "plan.toml:25: `lab.data.repository`: no model `m`",
        ),
    ] {
        let place = lab_place(&format!("{PLAN}{LAB}").replace(from, to));
        let ended = run(lab(&place, "never"));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{says}: {}", ended.stderr);
    }
}

#[test]
fn a_folder_of_work_is_one_labs_alone() {
    let place = lab_place(&format!("{PLAN}{LAB}"));
    fs::create_dir(place.path("work")).unwrap();
    let other = fs::File::open(place.path("work")).unwrap();
    other.lock().unwrap();
    let ended = run(lab(&place, "first"));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("choose another --work"), "{}", ended.stderr);
    assert!(!place.path("bin/calls").exists());
}

#[test]
fn a_lab_makes_publishes_starts_measures_in_turn_and_ends_everything() {
    let place = lab_place(&format!("{PLAN}{LAB}"));
    let ended = run(lab(&place, "first"));
    succeeds(&ended);
    let order: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(order.len(), 8, "{}", ended.stderr);
    // Tiers take turns inside each load, loads inside each repeat.
    for (line, tier) in order.iter().zip(["nvme", "s3"].into_iter().cycle()) {
        assert!(line.contains(&format!("] {tier} cold")), "{line}");
    }
    let run_json = read_json(&place.path("results/first/run.json"));
    let points = run_json["points"].as_array().unwrap();
    let tiers: Vec<&str> = points
        .iter()
        .map(|point| point["factors"]["tier"].as_str().unwrap())
        .collect();
    assert_eq!(tiers, ["nvme", "nvme", "s3", "s3"]);
    // The same arrivals and keys for both tiers, others for every repeat.
    let seed = |point: usize, repeat: usize| &points[point]["repeats"][repeat]["seed"];
    assert_eq!(seed(0, 0), seed(2, 0));
    assert_ne!(seed(0, 0), seed(0, 1));
    assert_ne!(seed(0, 0), seed(1, 0));
    assert_eq!(run_json["config_sha256"].as_object().unwrap().len(), 6);
    let origin = run_json["environment"]["origins"]["s3"].as_str().unwrap();
    assert!(origin.contains("embedded") && origin.contains("page cache"), "{origin}");

    let first = calls(&place);
    assert!(first.contains("models generate --model m --size small"), "{first}");
    assert!(first.contains("models features --table t --rows 10"), "{first}");
    assert!(first.contains("--set bucket=tierlab"), "{first}");
    assert!(first.contains("--set tiers.s3.endpoint=http://127.0.0.1:9"), "{first}");
    assert!(first.contains("--tier nvme"), "{first}");
    assert!(first.contains("cache.capacity_bytes=0"), "{first}");
    let credentials = first.lines().find(|line| line.contains("--tier s3")).unwrap();
    assert!(credentials.ends_with("as tierlab"), "{credentials}");
    nobody_is_left(&place);

    // A second run reuses the existing files.
    succeeds(&run(lab(&place, "second")));
    let again = calls(&place);
    assert_eq!(
        again.matches("models ").count(),
        first.matches("models ").count(),
        "{again}"
    );
}

#[test]
fn other_data_are_made_anew() {
    let place = lab_place(&format!("{PLAN}{LAB}").replace("repeats = 2", "repeats = 1"));
    succeeds(&run(lab(&place, "first")));
    let plan = fs::read_to_string(place.path("plan.toml"))
        .unwrap()
        .replace("rows = 10", "rows = 20");
    fs::write(place.path("plan.toml"), plan).unwrap();
    succeeds(&run(lab(&place, "second")));
    let calls = calls(&place);
    assert!(calls.contains("--rows 20"), "{calls}");
    assert_eq!(calls.matches("models publish").count(), 4, "{calls}");
}

#[test]
fn what_is_missing_is_named_before_anything_starts() {
    let place = lab_place(&format!("{PLAN}{LAB}"));
    fs::remove_file(place.path("bin/tierlab-origin")).unwrap();
    let ended = run(lab(&place, "r"));
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("tierlab-origin") && ended.stderr.contains("make build"),
        "{}",
        ended.stderr
    );
    fs::remove_file(place.path("tiers/s3.toml")).unwrap();
    program(&place, "tierlab-origin", ORIGIN);
    let ended = run(lab(&place, "r"));
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("tiers/s3.toml"), "{}", ended.stderr);
    assert!(!place.path("bin/calls").exists());
}

#[test]
fn a_program_that_fails_is_named_with_its_last_words() {
    let place = lab_place(&format!("{PLAN}{LAB}"));
    program(&place, "tierlab-server", "#!/bin/sh\necho 'no such tier' >&2\nexit 2\n");
    let ended = run(lab(&place, "r"));
    assert_eq!(ended.code, Some(1));
    for part in ["tierlab-server for nvme cold", "exit code 2", "no such tier"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    nobody_is_left(&place);
}

#[test]
fn a_server_that_dies_ends_the_lab_and_keeps_what_is_finished() {
    // Dies of old age: some steps in, long before the last one.
    let mortal = SERVER.replace("exec BINARY null-endpoint", "exec timeout 4 BINARY null-endpoint");
    let place = lab_place(&format!("{PLAN}{LAB}").replace("repeats = 2", "repeats = 20"));
    program(&place, "tierlab-server", &mortal.replace("BINARY", BINARY));
    let ended = run(lab(&place, "r"));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("ended while it was needed"), "{}", ended.stderr);
    let run_json = read_json(&place.path("results/r/run.json"));
    assert_eq!(run_json["interrupted"], true);
    nobody_is_left(&place);
}

#[test]
fn a_cache_that_is_not_there_cannot_be_filled() {
    let warm = LAB.replace("share = 0.0", "share = 0.5\nprefill = true");
    let place = lab_place(&format!("{PLAN}{warm}"));
    let ended = run(lab(&place, "r"));
    assert_eq!(ended.code, Some(1));
    let mismatch = "has a cache of 0 bytes, not the 5 of `lab.cache`";
    assert!(ended.stderr.contains(mismatch), "{}", ended.stderr);
    assert!(calls(&place).contains("cache.capacity_bytes=5"), "{}", calls(&place));
}

#[test]
fn an_interrupted_lab_keeps_what_is_finished_and_leaves_nobody() {
    let place = lab_place(&format!("{PLAN}{LAB}"));
    let ended = run_until(lab(&place, "r"), "[3/8]", interrupt);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let run_json = read_json(&place.path("results/r/run.json"));
    assert_eq!(run_json["interrupted"], true);
    assert!(place.path("results/r/report.html").is_file());
    nobody_is_left(&place);

    let resume = || {
        let mut resume = Command::new(BINARY);
        resume.arg("lab").arg(place.path("plan.toml")).arg("--verbose");
        resume.arg("--bin-dir").arg(place.path("bin"));
        resume.arg("--resume").arg(place.path("results/r"));
        run(resume)
    };
    // Other data are not published beside steps on these.
    let table = place.path("work/generated/features/t.rows");
    let (content, before) = (fs::read(&table).unwrap(), calls(&place));
    fs::write(&table, "another").unwrap();
    let ended = resume();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let says = "t.rows has changed since the start of this run; restore it";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
    assert_eq!(calls(&place), before);
    fs::write(&table, content).unwrap();

    // Resumed, it has every step once, and says that its servers are new ones.
    let ended = resume();
    succeeds(&ended);
    let run_json = read_json(&place.path("results/r/run.json"));
    let points = run_json["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    assert!(
        points
            .iter()
            .all(|point| point["repeats"].as_array().unwrap().len() == 2)
    );
    assert!(ended.stdout.contains("Resumed at"), "{}", ended.stdout);
    nobody_is_left(&place);
}

#[test]
fn cold_starts_and_dropped_page_caches_are_measured_and_named() {
    let lab_part = LAB
        .replace(
            "[[lab.cache]]",
            "[lab.cold_start]\nrepeats = 2\nways = [\"load\", \"restart\"]\npage_cache = \"dropped\"\n[[lab.cache]]",
        )
        .replace(
            "share = 0.0\n",
            "share = 0.0\npage_cache = \"dropped\"\nset = { policy = \"lru\", block_bytes = 512 }\n",
        );
    let place = lab_place(&format!("{PLAN}{lab_part}"));
    let ended = run(lab(&place, "cold"));
    succeeds(&ended);
    let run_json = read_json(&place.path("results/cold/run.json"));
    let starts = run_json["cold_starts"].as_array().unwrap();
    let order: Vec<(&str, &str)> = starts
        .iter()
        .map(|start| (start["tier"].as_str().unwrap(), start["way"].as_str().unwrap()))
        .collect();
    // Tiers and ways take turns.
    let once = [("nvme", "load"), ("nvme", "restart"), ("s3", "load"), ("s3", "restart")];
    assert_eq!(order, [once, once].concat());
    for start in starts {
        assert_eq!(start["page_cache"], "dropped");
        let stages = start["stages_s"].as_array().unwrap().iter();
        let stages: Vec<&str> = stages.map(|stage| stage[0].as_str().unwrap()).collect();
        // After a restart the metrics would report the stages, but this server's metrics report none.
        let told = match start["way"].as_str() {
            Some("load") => &["read", "verify", "place", "session", "warmup", "features"][..],
            _ => &[],
        };
        assert_eq!(stages, told);
        assert!(start["ready_s"].as_f64().unwrap() > 0.0 && start["first_reply_s"].as_f64().unwrap() > 0.0);
    }
    let csv = fs::read_to_string(place.path("results/cold/cold_starts.csv")).unwrap();
    assert_eq!(csv.lines().count(), 9, "{csv}");
    assert!(ended.stdout.contains("Cold starts, medians"), "{}", ended.stdout);
    assert!(
        !ended.stdout.contains("-0.0") && !csv.contains("-0"),
        "{}",
        ended.stdout
    );
    let origin = run_json["environment"]["origins"]["s3"].as_str().unwrap();
    assert!(
        origin.contains("page cache dropped before each step of: cold"),
        "{origin}"
    );
    let calls = calls(&place);
    assert!(calls.contains("--set cache.policy=lru"), "{calls}");
    assert!(calls.contains("--set repository.control=explicit"), "{calls}");
    // Two servers for the loads, and two for each restart.
    assert_eq!(
        calls.lines().filter(|line| line.starts_with("server")).count(),
        6,
        "{calls}"
    );
    nobody_is_left(&place);
}

#[test]
fn the_servers_of_a_fleet_share_an_emulated_service_and_start_together() {
    let fleet = "[fleet]\nservers = [1, 2]\nrequests_per_s = 100\n[[variant]]\nname = \"a\"\ntier = \"nvme\"\nemulated = \"s3-standard\"\n\
        staged = \"empty\"\n";
    let cold = "[lab.cold_start]\nrepeats = 2\nways = [\"restart\"]\njitter_s = [0, 0.2]\n";
    let place = lab_place(&format!("{PLAN}{fleet}{LAB}{cold}"));
    let ended = run(lab(&place, "fleet"));
    succeeds(&ended);
    let run_json = read_json(&place.path("results/fleet/run.json"));
    let servers: Vec<u64> = run_json["variants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variant| variant["servers"].as_u64().unwrap_or(1))
        .collect();
    assert_eq!(servers, [1, 2]);
    // A single server has no others to be spread against.
    let starts: Vec<(u64, f64)> = run_json["cold_starts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|start| (start["servers"].as_u64().unwrap(), start["jitter_s"].as_f64().unwrap()))
        .collect();
    let once = [(1, 0.0), (2, 0.0), (2, 0.2)];
    assert_eq!(starts, [once, once].concat());
    // The validity of a half-second step on this machine, and so its place in the table of fleets, is not tested here.
    for both in ["a-1-server", "a-2-servers"] {
        assert!(ended.stdout.contains(both), "{}", ended.stdout);
    }

    let calls = calls(&place);
    let started: Vec<&str> = calls.lines().filter(|line| line.starts_with("server")).collect();
    // For the loads 1 + 2, and in each of two repeats 1 + 2 + 2.
    assert_eq!(started.len(), 13, "{calls}");
    assert!(
        started.iter().all(|line| line.contains("emulated.requests_per_s=100")),
        "{calls}"
    );
    let of_two: Vec<&&str> = started
        .iter()
        .filter(|line| line.contains("telemetry.variant=a-2-servers"))
        .collect();
    assert_eq!(of_two.len(), 10);
    let service = place.path("work/services/a-2-servers");
    let shared = format!("emulated.shared={}", service.display());
    assert!(of_two.iter().all(|line| line.contains(&shared)), "{calls}");
    // A stage for each running server, and separate ones for servers started beside them.
    for stage in ["loads/0", "loads/1", "cold-starts/0", "cold-starts/1"] {
        let folder = place.path(&format!("work/stages/a-2-servers/{stage}"));
        assert!(
            calls.contains(&format!("staged.root={}", folder.display())),
            "{stage}: {calls}"
        );
    }
    nobody_is_left(&place);
}

#[test]
fn tables_are_laid_out_where_a_variant_reads_them_so() {
    let variant = "[[variant]]\nname = \"a\"\ntier = \"nvme\"\nlayout = [\"rows\", \"parquet\"]\nset = { model_config.m.max_batch_size = 8 }\n";
    let place = lab_place(&format!("{PLAN}{variant}{LAB}"));
    succeeds(&run(lab(&place, "first")));
    succeeds(&run(lab(&place, "second")));
    let calls = calls(&place);
    let made: Vec<&str> = calls.lines().filter(|line| line.contains("lay-out")).collect();
    assert!(
        made.len() == 1 && made[0].contains("--json --layout parquet"),
        "{calls}"
    );
    let started: Vec<bool> = calls
        .lines()
        .filter(|line| line.starts_with("server"))
        .map(|line| line.contains("features.layout=parquet"))
        .collect();
    assert_eq!(started, [false, true, false, true], "{calls}");
    assert!(calls.contains(".max_batch_size=8"), "{calls}");
    let run_json = read_json(&place.path("results/second/run.json"));
    let variants = &run_json["variants"];
    assert_eq!(
        (&variants[0]["layout"], &variants[1]["layout"]),
        (&serde_json::Value::Null, &"parquet".into())
    );
    nobody_is_left(&place);
}

#[test]
fn a_stage_that_is_shared_is_one_folder_of_all_servers() {
    let fleet = "[fleet]\nservers = [2]\n[[variant]]\nname = \"a\"\ntier = \"nvme\"\nstaged = [\"none\", \"shared\"]\n";
    let place = lab_place(&format!("{PLAN}{fleet}{LAB}"));
    succeeds(&run(lab(&place, "shared")));
    let calls = calls(&place);
    let folder = place.path("work/stages/a-stage-shared-2-servers/loads/0");
    let sharing: Vec<&str> = calls
        .lines()
        .filter(|line| line.contains("tiers.nvme.staged.shared=true"))
        .collect();
    assert_eq!(sharing.len(), 2, "{calls}");
    let root = format!("staged.root={} ", folder.display());
    assert!(sharing.iter().all(|line| line.contains(&root)), "{calls}");
    let run_json = read_json(&place.path("results/shared/run.json"));
    assert_eq!(run_json["variants"][1]["staged"]["is_shared"], true);
    nobody_is_left(&place);
}
