//! Plans run by the program: results, leftover files and exit codes.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tierlab_origins::nfs::NfsOrigin;
use tierlab_origins::s3::S3Origin;
use tokio::net::TcpListener;

/// On the disk below the project's target folder: a temporary folder may lie in memory, where nothing is direct.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn plan(folder: &Path, cross: &str) {
    let nvme = "kind = \"nvme\"\nroot = \"anywhere\"\n";
    std::fs::write(folder.join("nvme.toml"), nvme).unwrap();
    std::fs::write(folder.join("memory.toml"), "kind = \"memory\"\n").unwrap();
    let head = "name = \"test\"\nrepeats = 2\nseconds = 0.05\nwarmup_seconds = 0.01\nprecondition_seconds = 0.02\nsize = \"1MiB\"\nforeign_cpu_share = 1.0\nsteal_share = 1.0\npeers = false\n\
                [tiers.disk]\nfile = \"nvme.toml\"\n[tiers.memory]\nfile = \"memory.toml\"\n";
    std::fs::write(folder.join("plan.toml"), format!("{head}{cross}")).unwrap();
}

/// Replaces a text of the plan.
fn change(folder: &Path, from: &str, to: &str) {
    let path = folder.join("plan.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(&path, text.replace(from, to)).unwrap();
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"));
    std::fs::create_dir_all(folder.join("scratch")).unwrap();
    command
        .arg("run")
        .arg(folder.join("plan.toml"))
        .arg("--scratch")
        .arg(folder.join("scratch"))
        .args(arguments);
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The answer on the terminal, which a screen holds; only the line with the folder may be longer.
fn answer(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.lines().count() <= 25, "{text}");
    for line in text.lines().filter(|line| !line.starts_with("report:  ")) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    text
}

/// `report.md`, which is short.
fn markdown(out: &Path) -> String {
    let text = std::fs::read_to_string(out.join("report.md")).unwrap();
    let words = text.split_whitespace().count();
    assert!(words <= 800, "{words} words:\n{text}");
    text
}

#[test]
fn every_way_and_pattern_is_measured_and_nothing_is_left_behind() {
    let folder = folder();
    plan(
        folder.path(),
        "[[cross]]\ntier = [\"disk\"]\nway = [\"direct\", \"buffered\", \"pread\", \"pread-direct\", \"mmap\"]\n\
         pattern = [\"sequential\", \"random\", \"strided\", \"zipf\"]\nblock = [\"4KiB\"]\ndepth = [2]\n\
         [[cross]]\ntier = [\"disk\"]\nway = [\"direct\", \"pread\", \"pread-direct\"]\noperation = [\"write\", \"mixed\"]\nsync = [\"none\", \"each\", \"end\"]\nblock = [\"4KiB\"]\n\
         [[cross]]\ntier = [\"disk\"]\nway = [\"direct\", \"pread\", \"mmap\"]\nfiles = [64]\ncache = [\"warm\"]\nblock = [\"4KiB\"]\n\
         [[cross]]\ntier = [\"memory\"]\nblock = [\"4KiB\", \"64KiB\"]\ndepth = [1, 4]\nthreads = [1]\n",
    );
    let out = folder.path().join("out");
    let output = run(folder.path(), &["--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let points = run["points"].as_array().unwrap();
    assert_eq!(run["settings"]["precondition"], 0.02);
    // Two writes through the tier, and each of four in place with three durabilities.
    assert_eq!(points.len(), 20 + (2 + 4 * 3) + 3 + 4);
    let mut measured = 0;
    for point in points {
        // On a machine that was held up for the whole of a repeat, or whose disk is memory: said.
        if point["verdict"] == "unknown" {
            let reason = point["reason"].as_str().unwrap();
            let is_cold = point["cache"] != "warm" && reason.contains("not cold");
            assert!(is_cold || reason.contains("no call ended within a repeat"), "{point}");
            continue;
        }
        measured += 1;
        let number = |key: &str| {
            point[key]["value"]
                .as_f64()
                .unwrap_or_else(|| panic!("{key} in {point}"))
        };
        assert_eq!(point["repeats"], 2, "{point}");
        let bytes = number("iops") * point["block_bytes"].as_f64().unwrap();
        assert!((bytes - number("mb_per_s") * 1e6).abs() <= 1e-6 * bytes, "{point}");
        assert!(point["calls"].as_u64().unwrap() > 0, "{point}");
        assert!(number("cpu_s_per_gb") > 0.0, "{point}");
    }
    assert!(measured > points.len() / 4, "{measured} of {}", points.len());
    let csv = std::fs::read_to_string(out.join("points.csv")).unwrap();
    assert_eq!(csv.lines().count(), points.len() + 1);
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    for wanted in [
        "Every point",
        "memory by tier: random read",
        "MB/s",
        "kind = ",
        "[[cross]]",
    ] {
        assert!(wanted == "kind = " || page.contains(wanted), "{wanted}");
    }
    assert!(page.contains("disk by mmap: zipf read, cold"));
    assert!(markdown(&out).contains("disk by mmap: sequential read, cold"));
    assert!(answer(&output).contains("disk by direct: sequential read"));
    assert_eq!(std::fs::read_dir(folder.path().join("scratch")).unwrap().count(), 0);
}

#[test]
fn objects_are_looked_up_listed_removed_and_checkpoints_written_and_restored() {
    let folder = folder();
    plan(
        folder.path(),
        "[[cross]]\ntier = [\"disk\", \"memory\"]\noperation = [\"stat\", \"list\", \"delete\"]\nfiles = [40]\nblock = [512]\ndepth = [1, 4]\n\
         [[cross]]\ntier = [\"disk\", \"memory\"]\noperation = [\"checkpoint\", \"restore\"]\nblock = [\"3MiB\"]\ndepth = [1, 2]\n",
    );
    let out = folder.path().join("out");
    let output = run(folder.path(), &["--out", out.to_str().unwrap(), "--seconds", "0.2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let points = run["points"].as_array().unwrap();
    assert_eq!(points.len(), 2 * (3 * 2 + 2 * 2));
    for point in points {
        let number = |key: &str| {
            point[key]["value"]
                .as_f64()
                .unwrap_or_else(|| panic!("{key} in {point}"))
        };
        let calls = point["calls"].as_u64().unwrap();
        // On a machine whose disk is memory: said.
        let is_in_memory = point["reason"].as_str().is_some_and(|why| why.contains("not cold"));
        assert!(point["verdict"] == "valid" || is_in_memory, "{point}");
        assert_eq!(point["repeats"], 2, "{point}");
        assert!(number("iops") > 0.0, "{point}");
        match point["operation"].as_str().unwrap() {
            "checkpoint" | "restore" => {
                let depth = point["depth"].as_u64().unwrap();
                assert_eq!(calls, 2 * depth, "{point}");
                assert!(number("took_s") > 0.0 && number("mb_per_s") > 0.0, "{point}");
            }
            // All of them, or as many as a repeat has time for.
            "delete" => assert!((1..=80).contains(&calls), "{point}"),
            _ => assert!(calls > 0 && number("mb_per_s") == 0.0, "{point}"),
        }
    }
    assert!(answer(&output).contains(" moves the most, "));
    let report = markdown(&out);
    for wanted in [
        "disk by direct: checkpoint, each synced, 3 MiB, depth 2: 6 MiB in ",
        "memory by tier: checkpoint, not synced, 3 MiB, depth 2: 6 MiB in ",
        "memory by tier: list, 40 files",
    ] {
        assert!(report.contains(wanted), "{wanted} in {report}");
    }
    assert_eq!(std::fs::read_dir(folder.path().join("scratch")).unwrap().count(), 0);
}

#[test]
fn objects_and_checkpoints_of_a_bucket_and_of_an_nfs_server_are_measured() {
    let folder = folder();
    let path = folder.path();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let origin = S3Origin::open(&path.join("s3")).unwrap();
    origin.ensure_bucket("tierlab").unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(origin.serve(listener, std::future::pending()));
    let root = path.join("nfs");
    std::fs::create_dir(&root).unwrap();
    let nfs = NfsOrigin::bind("127.0.0.1:0".parse().unwrap(), &root);
    let nfs = runtime.block_on(nfs).unwrap();
    let nfs_tier = format!("kind = \"nfs\"\nurl = \"{}\"\n", nfs.url());
    runtime.spawn(nfs.serve(std::future::pending()));
    std::fs::write(path.join("filer.toml"), nfs_tier).unwrap();
    // Checkpoints are larger than the smallest part of an upload (5 MiB), so they are multipart uploads; reads have parts of 1 MiB.
    let s3_tier = format!(
        "kind = \"s3\"\nbucket = \"tierlab\"\nendpoint = \"http://{address}\"\nregion = \"us-east-1\"\nanonymous = true\nallow_http = true\n\
         part_bytes = 1048576\n"
    );
    std::fs::write(path.join("bucket.toml"), s3_tier).unwrap();
    plan(
        path,
        "[tiers.bucket]\nfile = \"bucket.toml\"\n[tiers.filer]\nfile = \"filer.toml\"\n\
         [[cross]]\ntier = [\"bucket\", \"filer\"]\noperation = [\"stat\", \"list\", \"delete\", \"write\"]\nfiles = [20]\nblock = [512]\ndepth = [4]\n\
         [[cross]]\ntier = [\"bucket\", \"filer\"]\noperation = [\"checkpoint\", \"restore\"]\nblock = [\"6MiB\"]\ndepth = [2]\n",
    );
    let out = path.join("out");
    let output = run(path, &["--out", out.to_str().unwrap(), "--seconds", "0.2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let points = run["points"].as_array().unwrap();
    assert_eq!(points.len(), 2 * (4 + 2));
    for point in points {
        assert_eq!(point["verdict"], "valid", "{point}");
        let (operation, calls) = (point["operation"].as_str().unwrap(), point["calls"].as_u64().unwrap());
        assert!(calls > 0, "{point}");
        let durability = match (point["tier"].as_str().unwrap(), operation) {
            ("bucket", "write" | "checkpoint") => "acknowledged",
            ("filer", "write" | "checkpoint") => "commit",
            _ => "none",
        };
        assert_eq!(point["sync"], durability, "{point}");
        if ["checkpoint", "restore"].contains(&operation) {
            assert_eq!(calls, 2 * 2, "{point}");
            assert!(point["took_s"]["value"].as_f64().unwrap() > 0.0, "{point}");
        }
        // A checkpoint begins an upload, sends two parts and completes it.
        let requests = match operation {
            "write" => Some(1.0),
            "checkpoint" => Some(4.0),
            "restore" => Some(6.0),
            _ => None,
        };
        if let Some(requests) = requests.filter(|_| point["tier"] == "bucket") {
            assert_eq!(point["requests_per_call"], requests, "{point}");
        }
    }
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    for wanted in [
        "bucket by tier: random write, 20 files, each acknowledged",
        "filer by tier: random write, 20 files, each committed",
    ] {
        assert!(report.contains(wanted), "{wanted} in {report}");
    }
    let left = |folder: &str| std::fs::read_dir(path.join(folder)).into_iter().flatten().count();
    assert_eq!(left("s3/tierlab/storage-bench"), 0);
    assert_eq!(left("nfs"), 0, "folders on the export are removed too");
}

#[test]
fn an_open_loop_counts_from_due_times_and_a_rate_that_is_too_high_is_saturated() {
    let folder = folder();
    // A tier with one connection that takes 5 ms for each request: 200 a second and no more.
    std::fs::write(
        folder.path().join("slow.toml"),
        "kind = \"memory\"\n[emulated]\nconnections = 1\nlatency = { distribution = \"lognormal\", median_us = 5000, sigma = 0 }\n",
    )
    .unwrap();
    plan(
        folder.path(),
        "[tiers.slow]\nfile = \"slow.toml\"\n[[cross]]\ntier = [\"slow\"]\nblock = [\"4KiB\"]\ndepth = [16]\nrate = [50, 2000]\n",
    );
    let out = folder.path().join("out");
    let output = run(folder.path(), &["--out", out.to_str().unwrap(), "--seconds", "0.5"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let points = run["points"].as_array().unwrap();
    assert_eq!(points[1]["rate"], 2000);
    assert_eq!(points[1]["verdict"], "saturated");
    // By the law of the queue its calls wait for hundreds of others; a closed loop would say 80 ms.
    assert!(
        points[1]["p50_us"]["value"].as_f64().is_none_or(|us| us > 150_000.0),
        "{}",
        points[1]
    );
    let number = |key: &str| points[1][key]["value"].as_f64().unwrap();
    let apart = number("iops") * 4096.0 - number("mb_per_s") * 1e6;
    assert!(
        apart.abs() < 1.0,
        "bytes are those of the calls a second: {}",
        points[1]
    );
    assert!(points[1]["late_p99_us"].as_f64().unwrap() > 100_000.0, "{}", points[1]);
    assert!(run["tiers"]["slow"].to_string().contains("emulated"));
}

#[test]
fn repeats_of_some_seconds_have_figures_of_each() {
    let folder = folder();
    plan(folder.path(), "[[cross]]\ntier = [\"memory\"]\nblock = [\"4KiB\"]\n");
    let out = folder.path().join("out");
    let output = run(
        folder.path(),
        &["--out", out.to_str().unwrap(), "--seconds", "2", "--repeats", "1"],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let seconds = run["seconds"][0]["repeats"][0].as_array().unwrap();
    assert_eq!(seconds.len(), 2, "{}", run["seconds"]);
    for second in seconds {
        let calls = second["calls"].as_u64().unwrap();
        assert_eq!(second["mb_per_s"].as_f64().unwrap(), calls as f64 * 4096.0 / 1e6);
        assert!(second["p99_us"].as_f64().unwrap() > 0.0);
    }
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("Each second") && html.contains("p99 of each second"));
}

#[test]
fn an_interrupted_run_is_gone_on_with() {
    let folder = folder();
    plan(
        folder.path(),
        "[[cross]]\ntier = [\"disk\"]\nway = [\"pread\"]\ncache = [\"warm\"]\nblock = [\"4KiB\"]\ndepth = [1, 2, 3, 4]\n",
    );
    let out = folder.path().join("out");
    let out_text = out.to_str().unwrap();
    let mut child = command(folder.path(), &["--out", out_text, "--seconds", "0.3"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = || std::fs::read_to_string(out.join("journal.jsonl")).map_or(0, |text| text.lines().count());
    let until = Instant::now() + Duration::from_secs(60);
    while lines() < 2 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let finished = lines();
    assert!((2..8).contains(&finished), "{finished}");
    assert_eq!(std::fs::read_dir(folder.path().join("scratch")).unwrap().count(), 0);
    let output = run(folder.path(), &["--resume", out_text, "--seconds", "0.3"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(lines(), 8);
    let resume = || run(folder.path(), &["--resume", out_text, "--seconds", "0.3"]);
    // A kill cuts the last line, and only its repeat is measured again.
    let journal = out.join("journal.jsonl");
    let complete = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, complete.strip_suffix('\n').unwrap()).unwrap();
    let output = resume();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = std::fs::read_to_string(&journal).unwrap();
    let first_lines: Vec<&str> = complete.lines().take(7).collect();
    assert_eq!(text.lines().take(7).collect::<Vec<_>>(), first_lines);
    assert_eq!(lines(), 8);
    // Damage before it is named, and nothing behind it is lost.
    let damaged = text.replacen("\"repeat\"", "\"raepet\"", 1);
    std::fs::write(&journal, &damaged).unwrap();
    let output = resume();
    assert!(
        !output.status.success() && stderr(&output).contains("journal.jsonl: entry 1: "),
        "{}",
        stderr(&output)
    );
    assert_eq!(std::fs::read_to_string(&journal).unwrap(), damaged);
    std::fs::write(&journal, &text).unwrap();
    // Another plan is another run.
    let output = run(folder.path(), &["--resume", out_text]);
    assert!(
        !output.status.success() && stderr(&output).contains("differ from the run's"),
        "{}",
        stderr(&output)
    );
    let output = run(folder.path(), &["--out", out_text]);
    assert!(
        !output.status.success() && stderr(&output).contains("--resume"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_run_is_resumed_with_its_tiers_on_its_disk_alone() {
    let folder = folder();
    plan(folder.path(), "[[cross]]\ntier = [\"disk\"]\nblock = [4096]\n");
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    assert!(run(folder.path(), &["--out", out]).status.success());
    let resume = || run(folder.path(), &["--resume", out]);
    assert!(resume().status.success());
    let refused = |output: Output| {
        let message = stderr(&output);
        assert!(
            !output.status.success() && message.contains("plan, tiers or scratch disk differ"),
            "{message}"
        );
    };
    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"));
    elsewhere.arg("run").arg(folder.path().join("plan.toml"));
    refused(
        elsewhere
            .args(["--scratch", "/proc", "--resume", out])
            .output()
            .unwrap(),
    );
    let nvme = "kind = \"nvme\"\nroot = \"anywhere\"\nqueue_depth = 8\n";
    std::fs::write(folder.path().join("nvme.toml"), nvme).unwrap();
    refused(resume());
}

#[test]
fn fio_runs_beside_reads_and_writes() {
    let fio = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.runtime/fio");
    assert!(fio.join("fio").exists(), "fio is missing: run `scripts/setup fio`");
    let folder = folder();
    plan(
        folder.path(),
        "[[cross]]\ntier = [\"disk\"]\nway = [\"direct\", \"pread\"]\nblock = [\"4KiB\"]\n\
         [[cross]]\ntier = [\"disk\"]\nway = [\"pread\"]\noperation = [\"write\", \"mixed\"]\nblock = [\"4KiB\"]\n",
    );
    change(folder.path(), "peers = false\n", "");
    // A job of cold data runs until it has read a part of it, and fio counts milliseconds.
    change(folder.path(), "size = \"1MiB\"", "size = \"32MiB\"");
    let out = folder.path().join("out");
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(fio.canonicalize().unwrap()).chain(std::env::split_paths(&inherited));
    let output = command(folder.path(), &["--out", out.to_str().unwrap()])
        .env("PATH", std::env::join_paths(folders).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let points = run["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    for point in points {
        assert_eq!(point["peer_faults"], serde_json::json!([]), "{point}");
        for figure in ["iops", "ratio"] {
            let value = &point["peers"]["fio"][figure]["value"];
            assert!(value.as_f64().is_some_and(|value| value > 0.0), "{figure}: {point}");
        }
        assert!(point["peers"]["fio"]["cpu_us_per_call"].is_f64(), "{point}");
    }
    for text in [answer(&output), markdown(&out)] {
        assert!(text.contains(" times fio's.") && text.contains("of fio's"), "{text}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains(">fio's calls/s</th>") && page.contains(">fio's CPU us</th>"));
}

#[test]
fn a_run_without_local_files_lacks_no_fio() {
    let folder = folder();
    plan(folder.path(), "[[cross]]\ntier = [\"memory\"]\nblock = [\"4KiB\"]\n");
    change(folder.path(), "peers = false\n", "");
    let out = folder.path().join("out");
    let mut command = command(folder.path(), &["--out", out.to_str().unwrap()]);
    let output = command.env("PATH", "").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    assert_eq!(run["peer_notes"], serde_json::json!([]));
}

#[test]
fn a_resumed_run_is_preconditioned_again() {
    let folder = folder();
    plan(
        folder.path(),
        // A repeat in order ends with the data, and preconditioning does not.
        "[[cross]]\ntier = [\"disk\"]\nway = [\"pread\"]\noperation = [\"write\"]\npattern = [\"sequential\"]\nblock = [\"4KiB\"]\n",
    );
    change(folder.path(), "precondition_seconds = 0.02", "precondition_seconds = 1");
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    let output = run(folder.path(), &["--out", out, "--repeats", "1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let began = Instant::now();
    let output = run(folder.path(), &["--resume", out, "--repeats", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_local_tier_behind_a_wrapper_is_measured_in_the_scratch_folder() {
    let folder = folder();
    plan(
        folder.path(),
        "[[cross]]\ntier = [\"slow\"]\nblock = [\"4KiB\"]\n[tiers.slow]\nfile = \"nvme.toml\"\nset = [\"emulated.profile=gp3\"]\n",
    );
    let out = folder.path().join("out");
    let output = run(folder.path(), &["--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(folder.path().join("scratch")).unwrap().count(), 0);
    // Resumed on the same disk alone.
    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"));
    elsewhere.arg("run").arg(folder.path().join("plan.toml"));
    let output = elsewhere.args(["--scratch", "/proc", "--resume"]).arg(&out).output();
    let message = stderr(&output.unwrap());
    assert!(message.contains("plan, tiers or scratch disk differ"), "{message}");
}

#[test]
fn a_disk_slower_than_the_recorded_one_is_named_in_the_results() {
    let folder = folder();
    let profile = folder.path().join("fast.toml");
    // No disk answers within 10 ns.
    let text = "schema = 1\nshares = [0.0, 1.0]\n[origin]\ndate = \"2026-11-23T10:00:00Z\"\nplace = \"x\"\ntier = \"nvme\"\n\
                [origin.environment]\nkernel = \"x\"\ncpu = \"x\"\ncpus = 1\nmemory_bytes = 1\nclient = \"x\"\n\
                [limits]\ntotal_bytes_per_s = 1\ntotal_is_limit = false\nrequests_per_s = 1\nrequests_is_limit = false\n\
                [[points]]\nbytes = 4096\ndepth = 1\ncalls = 100\ncalls_per_s = 50.0\nlatency_us = [0.01, 0.01]\n";
    std::fs::write(&profile, text).unwrap();
    let set = format!("set = [\"emulated.profile={}\"]", profile.display());
    plan(
        folder.path(),
        &format!("[[cross]]\ntier = [\"replay\"]\nblock = [\"4KiB\"]\n[tiers.replay]\nfile = \"nvme.toml\"\n{set}\n"),
    );
    let out = folder.path().join("out");
    let output = run(folder.path(), &["--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let notes = run["tiers"]["replay"].to_string();
    assert!(notes.contains("took longer than recorded"), "{notes}");
}

#[test]
fn mistakes_of_a_plan_are_named() {
    let folder = folder();
    for (cross, named) in [
        ("[[cross]]\ntier = [\"x\"]\nblock = [1]\n", "unknown tier `x`"),
        ("[[cross]]\ntier = [\"disk\"]\nblock = [\"4 feet\"]\n", "feet"),
        ("[[cross]]\ntier = [\"disk\"]\nblocks = [1]\n", "blocks"),
        (
            "[[cross]]\ntier = [\"disk\"]\nblock = [-1]\n",
            "expected a number of bytes",
        ),
        (
            "[[cross]]\ntier = [\"memory\"]\nblock = [1]\nway = [\"mmap\"]\n",
            "cross.way",
        ),
        (
            "[[cross]]\ntier = [\"disk\"]\nblock = [4096]\nrate = [4000000000]\n",
            "cross.rate: at most 20000000 calls",
        ),
    ] {
        plan(folder.path(), cross);
        let output = run(folder.path(), &[]);
        assert_eq!(output.status.code(), Some(2), "{cross}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{cross}: {}", stderr(&output));
    }
    for (from, to, named) in [
        ("repeats = 2", "repeats = 0", "repeats: from 1 to 1000, not 0"),
        ("repeats = 2", "repeats = 2\nstride = 0", "stride: from 1"),
        ("tiers.disk", "tiers.\"a/b\"", "tiers.a/b: invalid name"),
    ] {
        plan(folder.path(), "[[cross]]\ntier = [\"memory\"]\nblock = [4096]\n");
        change(folder.path(), from, to);
        let output = run(folder.path(), &[]);
        assert_eq!(output.status.code(), Some(2), "{to}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{to}: {}", stderr(&output));
    }
    plan(folder.path(), "[[cross]]\ntier = [\"disk\"]\nblock = [4096]\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"));
    command
        .arg("run")
        .arg(folder.path().join("plan.toml"))
        .args(["--scratch", "/no/such/folder"]);
    let output = command.arg("--out").arg(folder.path().join("none")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/no/such/folder"), "{}", stderr(&output));
}

#[test]
fn data_that_does_not_fit_the_disk_is_refused_before_it_is_written() {
    let folder = folder();
    plan(
        folder.path(),
        "[[cross]]\ntier = [\"disk\"]\nway = [\"pread\"]\noperation = [\"write\"]\nblock = [\"4KiB\"]\n",
    );
    change(folder.path(), "size = \"1MiB\"", "size = \"4194304GiB\"");
    let began = Instant::now();
    let out = folder.path().join("out");
    let output = run(folder.path(), &["--out", out.to_str().unwrap()]);
    assert!(!output.status.success() && began.elapsed() < Duration::from_secs(60));
    let text = stderr(&output);
    assert!(text.contains("the plan writes") && text.contains("--scratch"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path().join("scratch")).unwrap().count(), 0);
}

#[test]
fn data_of_a_disk_is_written_beside_it_and_not_in_the_temporary_folder() {
    let folder = folder();
    plan(folder.path(), "[[cross]]\ntier = [\"disk\"]\nblock = [\"4KiB\"]\n");
    change(folder.path(), "size = \"1MiB\"", "size = \"2MiB\"");
    let out = folder.path().join("out");
    let mut command = command(folder.path(), &["--out", out.to_str().unwrap()]);
    let output = command.env("TMPDIR", "/no/such/folder").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(folder.path().join("scratch")).unwrap().count(), 0);
}

#[test]
fn calls_and_data_that_do_not_fit_into_memory_are_refused_before_data_is_written() {
    let folder = folder();
    for (tier, cross, wanted) in [
        (
            "disk",
            "operation = [\"checkpoint\"]\nblock = [4503599627370496]\n",
            "cross: `block` × `depth` takes",
        ),
        (
            "disk",
            "way = [\"direct\", \"pread\"]\nblock = [\"64GiB\"]\n",
            "cross: `block` × `depth` takes",
        ),
        (
            "memory",
            "block = [1]\n",
            "the data of tiers of kind `memory` takes 4096 TiB of memory",
        ),
    ] {
        plan(
            folder.path(),
            &format!("[[cross]]\ntier = [\"{tier}\"]\ndepth = [4096]\n{cross}"),
        );
        change(folder.path(), "size = \"1MiB\"", "size = \"4194304GiB\"");
        let out = folder.path().join("out");
        let output = run(folder.path(), &["--out", out.to_str().unwrap()]);
        let text = stderr(&output);
        assert!(!output.status.success() && text.contains(wanted), "{text}");
        std::fs::remove_dir_all(out).unwrap();
    }
}
