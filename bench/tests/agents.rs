//! `agent` and `run --agents` as processes: several hosts as one, clocks that differ, agents that are lost, and what is refused.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tierlab_origins::s3::S3Origin;
use tokio::net::TcpListener;

const BINARY: &str = env!("CARGO_BIN_EXE_tierlab-storage-bench");
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const HEAD: &str = "name = \"many\"\nrepeats = 2\nseconds = 0.3\nwarmup_seconds = 0.05\nsize = \"1MiB\"\nforeign_cpu_share = 1.0\n\
                    steal_share = 1.0\nstart_skew_us = 60000000\npeers = false\n";

/// On the disk below the project's target folder: a temporary folder may lie in memory, where nothing is direct.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Writes a plan, and tiers for the run and for its agents.
fn plan(folder: &Path, text: &str) {
    for name in ["tiers", "one", "two", "three"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("tiers/disk.toml"), "kind = \"nvme\"\nroot = \"anywhere\"\n").unwrap();
    std::fs::write(folder.join("tiers/memory.toml"), "kind = \"memory\"\n").unwrap();
    let tiers = "[tiers.disk]\nfile = \"tiers/disk.toml\"\n";
    std::fs::write(folder.join("plan.toml"), format!("{HEAD}{tiers}{text}")).unwrap();
}

/// An agent that ends with the test.
struct Agent {
    process: Child,
    address: String,
}

impl Agent {
    fn start(folder: &Path, scratch: &str, more: &[&str]) -> Self {
        let mut process = Command::new(BINARY)
            .args(["agent", "--listen", "127.0.0.1:0", "--token-env", "AGENTS_TOKEN"])
            .arg("--tiers")
            .arg(folder.join("tiers"))
            .arg("--scratch")
            .arg(folder.join(scratch))
            .args(more)
            .env("AGENTS_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = ready["listen"].as_str().unwrap().to_owned();
        Self { process, address }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(folder: &Path, agents: &[&Agent], more: &[&str]) -> Command {
    let addresses: Vec<&str> = agents.iter().map(|agent| agent.address.as_str()).collect();
    let mut command = Command::new(BINARY);
    command
        .arg("run")
        .arg(folder.join("plan.toml"))
        .args(["--agents", &addresses.join(","), "--agents-token-env", "AGENTS_TOKEN"])
        .args(more)
        .env("AGENTS_TOKEN", TOKEN);
    command
}

fn run(folder: &Path, agents: &[&Agent], out: &Path) -> Output {
    command(folder, agents, &["--out", out.to_str().unwrap()])
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// Checks that each repeat of a journal is the sum of its agents' shares, and returns the number of repeats.
fn check_sums(out: &Path) -> usize {
    let journal = std::fs::read_to_string(out.join("journal.jsonl")).unwrap();
    for line in journal.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let measured = &entry["measured"];
        let shares = measured["agents"].as_array().unwrap_or_else(|| panic!("{entry}"));
        assert_eq!(shares.len(), 2, "{entry}");
        let calls: u64 = shares.iter().map(|share| share["requests"].as_u64().unwrap()).sum();
        assert!(
            shares.iter().all(|share| share["requests"].as_u64().unwrap() > 0),
            "{entry}"
        );
        assert_eq!(measured["calls"].as_u64().unwrap(), calls, "{entry}");
        let mb_per_s: f64 = shares.iter().map(|share| number(&share["mb_per_s"])).sum();
        let pooled = number(&measured["ended_bytes"]) / 1e6 / number(&measured["window_s"]);
        assert!((pooled / mb_per_s - 1.0).abs() < 1e-6, "{pooled} {mb_per_s}: {entry}");
        for share in shares {
            assert!(
                number(&share["uncertainty_us"]) > 0.0 && number(&share["late_us"]) >= 0.0,
                "{share}"
            );
        }
        let bytes = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            measured["latency_hdr"].as_str().unwrap(),
        );
        let latencies: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.unwrap().as_slice()).unwrap();
        assert_eq!(
            latencies.len(),
            calls + measured["unfinished"].as_u64().unwrap(),
            "{entry}"
        );
    }
    journal.lines().count()
}

#[test]
fn two_agents_measure_a_bucket_and_their_own_disks_as_one() {
    let folder = folder();
    let path = folder.path();
    plan(
        path,
        "[tiers.bucket]\nfile = \"tiers/bucket.toml\"\n\
         [[cross]]\ntier = [\"disk\"]\nway = [\"buffered\", \"pread\"]\ncache = [\"warm\"]\nblock = [\"4KiB\"]\ndepth = [2]\n\
         [[cross]]\ntier = [\"bucket\"]\nblock = [\"64KiB\"]\ndepth = [2]\nrate = [0, 40]\n",
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let origin = S3Origin::open(&path.join("s3")).unwrap();
    origin.ensure_bucket("tierlab").unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(origin.serve(listener, std::future::pending()));
    let bucket = format!(
        "kind = \"s3\"\nbucket = \"tierlab\"\nendpoint = \"http://{address}\"\nregion = \"us-east-1\"\nanonymous = true\nallow_http = true\n"
    );
    std::fs::write(path.join("tiers/bucket.toml"), bucket).unwrap();
    let (ahead, behind) = (
        Agent::start(path, "one", &["--clock-offset-ms", "5000"]),
        Agent::start(path, "two", &["--clock-offset-ms", "-7000"]),
    );
    let out = path.join("out");
    let output = run(path, &[&ahead, &behind], &out);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(check_sums(&out), 4 * 2);
    let result = json(&out.join("run.json"));
    let points = result["points"].as_array().unwrap();
    let open = points.iter().find(|point| point["rate"] == 40).unwrap();
    // Offered together, not by each: 12 calls a repeat.
    assert!(number(&open["iops"]["value"]) < 60.0, "{open}");
    let hosts = result["agents"]["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 2);
    for (host, agent) in hosts.iter().zip([&ahead, &behind]) {
        assert_eq!(host["agent"], agent.address);
        assert!(number(&host["environment"]["cores"]) >= 1.0, "{host}");
    }
    let repeats = result["agents"]["repeats"].as_array().unwrap();
    assert_eq!(repeats.len(), 4 * 2);
    for repeat in repeats {
        let shares = repeat["shares"].as_array().unwrap().iter();
        let offsets: Vec<f64> = shares
            .map(|share| (number(&share["offset_us"]) / 1e6).round())
            .collect();
        assert_eq!(offsets, [5.0, -7.0], "{repeat}");
    }
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    assert!(
        report.contains("2 agents (127.0.0.1:") && report.contains("embedded origin"),
        "{report}"
    );
    // Both have removed what they wrote, and serve the next run.
    assert!(is_empty(&path.join("one")) && is_empty(&path.join("two")));
    let bucket: Vec<_> = std::fs::read_dir(path.join("s3/tierlab/storage-bench"))
        .into_iter()
        .flatten()
        .collect();
    assert!(bucket.is_empty(), "{bucket:?}");
    let again = run(path, &[&behind, &ahead], &path.join("again"));
    assert!(again.status.success(), "{}", stderr(&again));
}

#[test]
fn notes_about_an_agents_calls_are_in_the_results() {
    let folder = folder();
    let path = folder.path();
    let tiers = "[tiers.replay]\nfile = \"tiers/replay.toml\"\n";
    plan(
        path,
        &format!("{tiers}[[cross]]\ntier = [\"replay\"]\nblock = [\"4KiB\"]\n"),
    );
    // No disk answers within 10 ns.
    let profile = "schema = 1\nshares = [0.0, 1.0]\n[origin]\ndate = \"2026-11-23T10:00:00Z\"\nplace = \"x\"\ntier = \"nvme\"\n\
                   [origin.environment]\nkernel = \"x\"\ncpu = \"x\"\ncpus = 1\nmemory_bytes = 1\nclient = \"x\"\n\
                   [limits]\ntotal_bytes_per_s = 1\ntotal_is_limit = false\nrequests_per_s = 1\nrequests_is_limit = false\n\
                   [[points]]\nbytes = 4096\ndepth = 1\ncalls = 100\ncalls_per_s = 50.0\nlatency_us = [0.01, 0.01]\n";
    let file = path.join("fast.toml");
    std::fs::write(&file, profile).unwrap();
    let tier = format!(
        "kind = \"nvme\"\nroot = \"anywhere\"\n[emulated]\nprofile = \"{}\"\n",
        file.display()
    );
    std::fs::write(path.join("tiers/replay.toml"), tier).unwrap();
    let agent = Agent::start(path, "one", &[]);
    let out = path.join("out");
    let output = run(path, &[&agent], &out);
    assert!(output.status.success(), "{}", stderr(&output));
    let result = json(&out.join("run.json"));
    for tiers in [&result["tiers"], &result["agents"]["hosts"][0]["tiers"]] {
        let notes = tiers["replay"].to_string();
        assert!(notes.contains("took longer than recorded"), "{notes}");
    }
}

#[test]
fn a_lost_agent_ends_the_run_which_is_resumed() {
    let folder = folder();
    let path = folder.path();
    plan(
        path,
        "[[cross]]\ntier = [\"disk\"]\nway = [\"pread\"]\ncache = [\"warm\"]\nblock = [\"4KiB\"]\ndepth = [1, 2, 3]\n",
    );
    let (one, mut two) = (Agent::start(path, "one", &[]), Agent::start(path, "two", &[]));
    let out = path.join("out");
    let out_text = out.to_str().unwrap();
    let child = command(path, &[&one, &two], &["--out", out_text, "--seconds", "0.5"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = || std::fs::read_to_string(out.join("journal.jsonl")).map_or(0, |text| text.lines().count());
    let until = Instant::now() + Duration::from_secs(60);
    while lines() < 1 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    two.process.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let advice = format!("--resume {out_text}");
    for wanted in [&two.address, "is lost", &advice] {
        assert!(stderr(&output).contains(wanted), "{wanted}: {}", stderr(&output));
    }
    assert!((1..6).contains(&lines()), "{}", lines());
    // The other one has ended its part by itself.
    let until = Instant::now() + Duration::from_secs(30);
    while !is_empty(&path.join("one")) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(is_empty(&path.join("one")));
    let mut three = Agent::start(path, "three", &[]);
    let resume = || {
        let mut command = command(path, &[&one, &three], &["--resume", out_text, "--seconds", "0.5"]);
        command.output().unwrap()
    };
    let mut resumed = resume();
    // The agent serves the next run soon after its clean-up.
    while stderr(&resumed).contains("serves another run") && Instant::now() < until {
        resumed = resume();
    }
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    assert_eq!(check_sums(&out), 6);
    // An agent that is interrupted removes what it wrote, too.
    let out = path.join("other");
    let mut child = command(path, &[&one, &three], &["--out", out.to_str().unwrap()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while (!out.join("journal.jsonl").exists() || is_empty(&path.join("three"))) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(three.process.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(three.process.wait().unwrap().code(), Some(0));
    assert!(is_empty(&path.join("three")));
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn an_invalid_address_is_named_once() {
    let folder = folder();
    plan(folder.path(), "[[cross]]\ntier = [\"disk\"]\nblock = [4096]\n");
    let mut command = Command::new(BINARY);
    command.arg("run").arg(folder.path().join("plan.toml"));
    let output = command.args(["--agents", "nowhere"]).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message.starts_with("tierlab-storage-bench: --agents: invalid address `nowhere`"),
        "{message}"
    );
    // An error that names no flag stays whole.
    let mut command = Command::new(BINARY);
    command.arg("run").arg(folder.path().join("plan.toml"));
    command.args(["--agents", "127.0.0.1:9", "--agents-token-env", "AGENTS_TOKEN"]);
    let output = command.env("AGENTS_TOKEN", "short").output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message.starts_with("tierlab-storage-bench: the agents' token is shorter than"),
        "{message}"
    );
}

#[test]
fn strangers_and_plans_that_are_no_work_for_agents_are_refused() {
    let folder = folder();
    let path = folder.path();
    plan(path, "[[cross]]\ntier = [\"disk\"]\nblock = [\"4KiB\"]\n");
    let agent = Agent::start(path, "one", &[]);
    let none = path.join("none");
    let with = |more: &[&str], token: &str| {
        let arguments = [&["--out", none.to_str().unwrap()], more].concat();
        let mut command = command(path, &[&agent], &arguments);
        let output = command.env("AGENTS_TOKEN", token).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let (code, message) = with(&[], "fedcba9876543210fedcba9876543210");
    assert!(
        code == Some(1) && message.contains("differs from the agent's"),
        "{code:?} {message}"
    );
    let none_needed = Command::new(BINARY).args(["agent", "--tiers", "x"]).output().unwrap();
    let message = stderr(&none_needed);
    assert!(
        none_needed.status.code() == Some(2) && message.contains("--token-env"),
        "{message}"
    );
    for (text, named) in [
        (
            "[tiers.ram]\nfile = \"tiers/memory.toml\"\n[[cross]]\ntier = [\"ram\"]\nblock = [1]\n",
            "tiers.ram",
        ),
        (
            "set = [\"direct=false\"]\n[[cross]]\ntier = [\"disk\"]\nblock = [4096]\n",
            "tiers.disk",
        ),
        (
            "[[cross]]\ntier = [\"disk\"]\nblock = [4096]\nrate = [4000000000]\n",
            "cross.rate",
        ),
    ] {
        plan(path, text);
        let (code, message) = with(&[], TOKEN);
        assert!(code == Some(2) && message.contains(named), "{code:?} {message}");
    }
    plan(path, "[[cross]]\ntier = [\"disk\"]\nblock = [4096]\n");
    let with_fio = std::fs::read_to_string(path.join("plan.toml"))
        .unwrap()
        .replace("peers = false\n", "");
    std::fs::write(path.join("plan.toml"), with_fio).unwrap();
    let (code, message) = with(&[], TOKEN);
    assert!(code == Some(2) && message.contains("--no-peers"), "{code:?} {message}");
    // A tier that the agent's owner has not put there.
    std::fs::rename(path.join("tiers/disk.toml"), path.join("own.toml")).unwrap();
    let elsewhere = std::fs::read_to_string(path.join("plan.toml"))
        .unwrap()
        .replace("tiers/disk.toml", "own.toml");
    std::fs::write(path.join("plan.toml"), elsewhere).unwrap();
    let (code, message) = with(&["--no-peers"], TOKEN);
    assert!(
        code == Some(1) && message.contains("--tiers") && message.contains("own.toml"),
        "{code:?} {message}"
    );
}
