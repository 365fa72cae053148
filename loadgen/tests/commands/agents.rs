//! `agent` and `--agents` through the real binary: several agents as one, lost agents, slow links, wrong clocks,
//! strangers.

use crate::foreign::texts;
use crate::program::{BINARY, Ended, NullEndpoint, Workdir, read_json, run, run_until};
use crate::replay::Noting;
use hdrhistogram::Histogram;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tierlab_analysis::record::{Fault, Run, Verdict};
use tierlab_loadgen::store::folder;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
// Other tests run beside it: the lateness of an agent must not decide, except in its own test.
const PLAN: &str = "name = \"agents\"\nmodel = \"m\"\nseed = 3\narrivals = \"constant\"\nrepeats = 2\nwarmup_s = 0.2\nstep_s = 1.0\n\
    drain_s = 0.5\nmax_in_flight = 64\n[limits]\nforeign_cpu_share = 1\nsteal_share = 1\n\
    foreign_disk_bytes_per_s = 1e12\nforeign_network_bytes_per_s = 1e12\nforeign_io_pressure = 1\nforeign_memory_pressure = 1\nlag_us = 1000000\n\
    start_skew_us = 900000\n[[load]]\nmode = \"realtime\"\nrates = [300]\n";

/// An agent that ends with the test.
struct Agent {
    process: Child,
    address: String,
}

impl Agent {
    fn start(more: &[&str]) -> Self {
        Self::at("127.0.0.1:0", more)
    }

    fn at(listen: &str, more: &[&str]) -> Self {
        Self::started_by(Command::new(BINARY), listen, more)
    }

    fn started_by(mut program: Command, listen: &str, more: &[&str]) -> Self {
        let mut process = program
            .args(["agent", "--listen", listen, "--token-env", "AGENTS_TOKEN"])
            .args(more)
            .env("AGENTS_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = ready["listen"].as_str().unwrap().to_owned();
        Self { process, address }
    }

    /// Ends the agent and returns its stderr.
    fn end(mut self) -> String {
        self.process.kill().unwrap();
        let mut said = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn sweep(place: &Workdir, url: &str, name: &str, agents: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("sweep").arg(place.path("plan.toml")).args(["--url", url]);
    command.arg("--out").arg(place.path("results")).args(["--name", name]);
    if !agents.is_empty() {
        command.args(["--agents", &agents.join(","), "--agents-token-env", "AGENTS_TOKEN"]);
    }
    command
        .env("AGENTS_TOKEN", TOKEN)
        .env_remove("TIERLAB_CERTIFICATE")
        .env("XDG_STATE_HOME", place.path("state"));
    command
}

fn load(place: &Workdir, name: &str) -> Run {
    folder::load(&place.path("results").join(name)).unwrap()
}

/// Returns the due requests of each time block: the schedule, as far as a result records it.
fn due(run: &Run) -> Vec<Vec<u64>> {
    let repeats = run.points.iter().flat_map(|point| &point.repeats);
    repeats
        .map(|repeat| repeat.histograms.latency.iter().map(Histogram::len).collect())
        .collect()
}

#[test]
fn two_agents_share_the_requests_of_a_recording() {
    let server = Noting::start(Duration::ZERO);
    let place = Workdir::new(&format!(
        "{}[arrival]\nfile = \"r.jsonl\"\n[target]\nkind = \"http\"\nmetrics = []\n",
        PLAN.replace("\"constant\"", "\"replay\"")
            .replace("repeats = 2", "repeats = 1")
            .replace("[[load]]\nmode = \"realtime\"\nrates = [300]\n", "")
    ));
    // A request each 20 ms: 60 in the warm-up of 0.2 s and the step of a second.
    let lines = (0..80).map(|number| {
        format!(
            "{{\"timestamp\": {}, \"path\": \"/{number}\"}}\n",
            f64::from(number) * 0.02
        )
    });
    std::fs::write(place.path("r.jsonl"), lines.collect::<String>()).unwrap();
    let agents = [Agent::start(&[]), Agent::start(&[])];
    let ended = run(sweep(
        &place,
        &server.url,
        "two",
        &[&agents[0].address, &agents[1].address],
    ));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let repeat = &load(&place, "two").points[0].repeats[0];
    assert_eq!((repeat.scheduled, repeat.completed, repeat.errors.len()), (50, 50, 0));
    let shares: Vec<u64> = repeat.agents.iter().map(|start| start.requests).collect();
    assert_eq!(shares, [30, 30]);
    // Before the measurement, the first request is tried.
    let mut sent: Vec<String> = server.noted().into_iter().map(|request| request.line).collect();
    let mut recorded: Vec<String> = (0..60).map(|number| format!("GET /{number} HTTP/1.1")).collect();
    sent.retain(|line| line != "GET /0 HTTP/1.1");
    recorded.remove(0);
    sent.sort();
    recorded.sort();
    assert_eq!(sent, recorded);
}

#[test]
fn two_agents_with_wrong_clocks_send_one_schedule() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let ended = run(sweep(&place, &endpoint.url, "one", &[]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let (ahead, behind) = (
        Agent::start(&["--clock-offset-ms", "5000"]),
        Agent::start(&["--clock-offset-ms", "-7000"]),
    );
    let ended = run(sweep(&place, &endpoint.url, "two", &[&ahead.address, &behind.address]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let (one, two) = (load(&place, "one"), load(&place, "two"));
    assert_eq!(due(&one), due(&two));
    for (a, b) in one.points[0].repeats.iter().zip(&two.points[0].repeats) {
        assert_eq!((a.seed, a.scheduled), (b.seed, b.scheduled));
        assert_eq!((b.completed, b.errors.len()), (300, 0));
        assert!(a.agents.is_empty() && b.lost_before.is_empty());
        let offsets: Vec<f64> = b.agents.iter().map(|start| (start.offset_us / 1e6).round()).collect();
        assert_eq!(offsets, [5.0, -7.0], "{:?}", b.agents);
        // Warm-up included: 360 requests, every second one.
        let requests: Vec<u64> = b.agents.iter().map(|start| start.requests).collect();
        assert_eq!(requests, [180, 180]);
    }
    assert!(
        two.environment.shared_cores[0].contains("2 agents"),
        "{:?}",
        two.environment.shared_cores
    );
    let report = std::fs::read_to_string(place.path("results/two/report.md")).unwrap();
    assert!(report.contains("Sent by 2 agents"), "{report}");
}

/// Runs the command of a pod in `deploy/kubernetes/load` on ports of this host.
#[test]
fn the_pods_of_a_job_send_one_schedule() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let free = || {
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string()
    };
    let addresses = [free(), free()];
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes/load/run.sh");
    let programs = std::path::Path::new(BINARY).parent().unwrap().display();
    let pod = |index: usize| {
        let mut command = Command::new("bash");
        command
            .arg(script)
            .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()));
        for (name, value) in [
            ("JOB_COMPLETION_INDEX", index.to_string()),
            ("TIERLAB_HOSTS", "3".to_owned()),
            ("TIERLAB_URL", endpoint.url.clone()),
            ("TIERLAB_AGENTS", addresses.join(",")),
            ("TIERLAB_PLAN", place.path("plan.toml").display().to_string()),
            ("TIERLAB_RESULTS", place.path("results").display().to_string()),
            ("TIERLAB_WAIT_S", "60".to_owned()),
            ("AGENTS_TOKEN", TOKEN.to_owned()),
            ("XDG_STATE_HOME", place.path("state").display().to_string()),
        ] {
            command.env(name, value);
        }
        if index > 0 {
            command.env("TIERLAB_LISTEN", &addresses[index - 1]);
        }
        command
    };
    // The conducting process starts first, and waits for the others.
    let conducting = thread::scope(|scope| {
        let conducting = scope.spawn(|| run(pod(0)));
        thread::sleep(Duration::from_millis(500));
        let sending = [1, 2].map(|index| Sending(pod(index).stdout(Stdio::null()).spawn().unwrap()));
        let ended = conducting.join().unwrap();
        drop(sending);
        ended
    });
    assert_eq!(conducting.code, Some(0), "{}", conducting.stderr);
    let found = load(&place, "run");
    for repeat in &found.points[0].repeats {
        assert_eq!((repeat.completed, repeat.errors.len()), (300, 0));
        assert_eq!(repeat.agents.len(), 2);
    }
}

/// Pod that waits for orders until it is ended: the script has become the agent.
struct Sending(Child);

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_wrong_token_is_refused_and_an_open_agent_does_not_start() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let agent = Agent::start(&[]);
    for (token, says) in [
        (Some("another-token-0123456789"), "differs from the agent's"),
        (None, "requires a token"),
    ] {
        let mut command = sweep(&place, &endpoint.url, "r", &[]);
        command.args(["--agents", &agent.address]);
        if let Some(token) = token {
            command
                .args(["--agents-token-env", "AGENTS_TOKEN"])
                .env("AGENTS_TOKEN", token);
        }
        let ended = run(command);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(&agent.address) && ended.stderr.contains(says),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains("another-token"), "{}", ended.stderr);
    }
    let said = agent.end();
    assert!(said.contains("rejected") && !said.contains(TOKEN), "{said}");
    for listen in ["0.0.0.0:0", "127.0.0.1:0"] {
        let mut open = Command::new(BINARY);
        open.args(["agent", "--listen", listen]);
        let ended = run(open);
        assert_eq!(ended.code, Some(2), "{listen}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("--token-env") && ended.stderr.contains("--client-ca"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn silent_connections_do_not_lock_out_a_run() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let agent = Agent::start(&[]);
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&agent.address).unwrap()).collect();
    let ended = run(sweep(&place, &endpoint.url, "r", &[&agent.address]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    drop(silent);
}

/// Passes the agent's challenge and the run's answer on, then resets both connections.
fn breaks_off_after_hello(to: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = to.to_owned();
    thread::spawn(move || {
        let (mut run, _) = listener.accept().unwrap();
        let mut agent = TcpStream::connect(&to).unwrap();
        let mut bytes = vec![0; 1 << 16];
        let challenge = agent.read(&mut bytes).unwrap();
        run.write_all(&bytes[..challenge]).unwrap();
        let hello = run.read(&mut bytes).unwrap();
        for stream in [&agent, &run] {
            socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        agent.write_all(&bytes[..hello]).unwrap();
    });
    address
}

#[test]
fn a_run_that_is_reset_after_its_hello_frees_the_agent() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let agent = Agent::start(&[]);
    for attempt in 0..5 {
        let broken = breaks_off_after_hello(&agent.address);
        let ended = run(sweep(&place, &endpoint.url, &format!("broken-{attempt}"), &[&broken]));
        assert_ne!(ended.code, Some(0));
        let mut command = sweep(&place, &endpoint.url, &format!("r-{attempt}"), &[&agent.address]);
        command.args(["--agents-start-wait-s", "5"]);
        let ended = run(command);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
}

#[test]
fn a_variable_of_the_agents_host_is_used_only_where_its_owner_allows_it() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let (closed, open) = (Agent::start(&[]), Agent::start(&["--allow-env", "AGENTS_TOKEN"]));
    for (agent, code, name) in [(&closed, 1, "closed"), (&open, 0, "open")] {
        let mut command = sweep(&place, &endpoint.url, name, &[&agent.address]);
        command.args(["--token-env", "AGENTS_TOKEN"]);
        let ended = run(command);
        assert_eq!(ended.code, Some(code), "{name}: {}", ended.stderr);
        assert!(
            code == 0 || ended.stderr.contains("--allow-env AGENTS_TOKEN"),
            "{}",
            ended.stderr
        );
    }
}

fn kill_agent(agent: &mut Agent) {
    agent.process.kill().unwrap();
    // Its port is free after its end.
    agent.process.wait().unwrap();
}

#[test]
fn an_agent_that_is_killed_ends_the_step_and_one_that_comes_back_goes_on() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&PLAN.replace("repeats = 2", "repeats = 4"));
    let (stays, mut dies) = (Agent::start(&[]), Agent::start(&[]));
    let mut command = sweep(&place, &endpoint.url, "r", &[&stays.address, &dies.address]);
    command.args(["--agents-wait-s", "120"]);
    let mut back = None;
    let ended: Ended = run_until(command, "[1/4]", |_| {
        kill_agent(&mut dies);
        back = Some(Agent::at(&dies.address, &[]));
    });
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended.stderr.contains(&format!("agent {} is lost", dies.address)),
        "{}",
        ended.stderr
    );
    let run = load(&place, "r");
    let repeats = &run.points[0].repeats;
    assert!(repeats.len() == 4 && repeats.iter().all(|repeat| repeat.scheduled == 300));
    let lost: Vec<&String> = repeats.iter().flat_map(|repeat| &repeat.lost_before).collect();
    assert!(!lost.is_empty() && lost[0].contains(&dies.address), "{lost:?}");
    let report = std::fs::read_to_string(place.path("results/r/report.md")).unwrap();
    assert!(report.contains("An agent was lost during 1 of 4 steps"), "{report}");
}

#[test]
fn an_agent_that_stays_away_ends_the_run_with_what_is_finished() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&PLAN.replace("repeats = 2", "repeats = 4"));
    let (stays, mut dies) = (Agent::start(&[]), Agent::start(&[]));
    let mut command = sweep(&place, &endpoint.url, "r", &[&stays.address, &dies.address]);
    command.args(["--agents-wait-s", "1"]);
    let ended: Ended = run_until(command, "[1/4]", |_| kill_agent(&mut dies));
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("did not come back") && ended.stderr.contains("--resume"),
        "{}",
        ended.stderr
    );
    let run = load(&place, "r");
    assert!(run.interrupted && !run.points[0].repeats.is_empty());
}

/// Forwards connections with a delay in each direction, and notes their bytes. Returns its address.
fn slow_link(to: &str, delay: Duration, carried: &Arc<Mutex<Vec<u8>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (to, carried) = (to.to_owned(), Arc::clone(carried));
    thread::spawn(move || {
        for from in listener.incoming().map_while(Result::ok) {
            let Ok(onward) = TcpStream::connect(&to) else { continue };
            let ways = [(from.try_clone().unwrap(), onward.try_clone().unwrap()), (onward, from)];
            for (mut from, mut to) in ways {
                let carried = Arc::clone(&carried);
                thread::spawn(move || {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        carried.lock().unwrap().extend(&bytes[..read]);
                        thread::sleep(delay);
                        if to.write_all(&bytes[..read]).is_err() {
                            return;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    address
}

#[test]
fn a_slow_link_is_uncertainty_and_too_much_of_it_makes_steps_invalid() {
    let endpoint = NullEndpoint::start();
    let agent = Agent::start(&[]);
    let slow = slow_link(&agent.address, Duration::from_millis(20), &Arc::default());
    let place = Workdir::new(&PLAN.replace("start_skew_us = 900000", "start_skew_us = 15000"));
    let ended = run(sweep(&place, &endpoint.url, "r", &[&slow]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let run = load(&place, "r");
    let summary = run.points[0].summary.as_ref().unwrap();
    assert!(summary.faults.contains(&Fault::Skew), "{:?}", summary.faults);
    assert!(
        matches!(&summary.verdict, Verdict::Invalid(reasons) if reasons.iter().any(|why| why.contains("started together"))),
        "{}",
        summary.verdict
    );
    for start in run.points[0].repeats.iter().flat_map(|repeat| &repeat.agents) {
        // Both directions take at least 20 ms, so the true offset may be 20 ms away.
        assert!(start.uncertainty_us >= 20_000.0, "{start:?}");
        assert!(start.offset_us.abs() <= start.uncertainty_us + 1_000.0, "{start:?}");
    }
    let report = std::fs::read_to_string(place.path("results/r/report.md")).unwrap();
    assert!(
        report.contains("agents may not have started together in 2 of 2 repeats"),
        "{report}"
    );
}

#[test]
fn tokens_reach_the_server_but_no_agent_log_or_result() {
    const SECRET: &str = "S3CRET-0123456789abcdef";
    let server = Noting::start(Duration::ZERO);
    let target = "[target]\nkind = \"http\"\npath = \"/\"\nbody = \"{}\"\nmetrics = []\ntoken_file = \"token\"\n";
    let place = Workdir::new(&format!("{PLAN}{target}"));
    std::fs::write(place.path("token"), SECRET).unwrap();
    let agent = Agent::start(&["--secrets-dir", place.path(".").to_str().unwrap()]);
    let carried = Arc::default();
    let link = slow_link(&agent.address, Duration::ZERO, &carried);
    let ended = run(sweep(&place, &server.url, "r", &[&link]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let arrived = server.noted();
    let authorized = arrived
        .iter()
        .filter(|request| request.headers.contains(SECRET))
        .count();
    assert!(
        authorized == arrived.len() && authorized > 600,
        "{authorized} of {}",
        arrived.len()
    );
    let carried = String::from_utf8_lossy(&carried.lock().unwrap()).into_owned();
    assert!(carried.contains("token_file"), "the plan is sent as it is");
    let written = texts(&place.path("results"));
    for (place, said) in [
        ("run", ended.stdout + &ended.stderr),
        ("agent", agent.end()),
        ("connection", carried),
        ("results", written),
    ] {
        for secret in [SECRET, TOKEN] {
            assert!(!said.contains(secret), "{place}: {said}");
        }
    }
}

#[test]
fn an_agent_under_nohup_outlives_its_terminal() {
    let mut nohup = Command::new("nohup");
    nohup.arg(BINARY);
    let mut agent = Agent::started_by(nohup, "127.0.0.1:0", &[]);
    let id = agent.process.id().to_string();
    let signalled = Command::new("kill").args(["-HUP", &id]).status();
    assert!(signalled.unwrap().success());
    thread::sleep(Duration::from_millis(500));
    assert_eq!(agent.process.try_wait().unwrap(), None);
}

#[test]
fn strangers_at_the_door_are_named_and_runs_go_on() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let agent = Agent::start(&[]);
    let huge = [&u32::MAX.to_be_bytes()[..], &[2]].concat();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &huge[..], &[0; 64][..]] {
        let mut stranger = TcpStream::connect(&agent.address).unwrap();
        stranger.write_all(bytes).unwrap();
        let mut said = Vec::new();
        // The agent closes; a reset is an end too.
        let _ = stranger.read_to_end(&mut said);
        assert!(said.len() < 4_096);
    }
    let ended = run(sweep(&place, &endpoint.url, "r", &[&agent.address]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let said = agent.end();
    for words in ["message larger than 4096 bytes", "invalid message"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Listens and sends these bytes to every client, repeatedly if `endless`.
fn hostile(bytes: Vec<u8>, endless: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            while stream.write_all(&bytes).is_ok() && endless {}
        }
    });
    address
}

#[test]
fn a_hostile_agent_ends_the_run_with_an_error_that_names_it() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let huge = [&u32::MAX.to_be_bytes()[..], &[1]].concat();
    let liar = [&4_u32.to_be_bytes()[..], b"{\"a\""].concat();
    for (bytes, endless, says) in [
        (huge, false, "message larger than 4096 bytes"),
        (vec![0xff; 64], false, "message larger than 4096 bytes"),
        (vec![b'a'; 1 << 16], true, "message larger than 4096 bytes"),
        (liar, true, "invalid message"),
    ] {
        let address = hostile(bytes, endless);
        let ended = run(sweep(&place, &endpoint.url, "r", &[&address]));
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(&address) && ended.stderr.contains(says),
            "{says}: {}",
            ended.stderr
        );
    }
}

#[test]
fn an_agent_is_sent_the_files_that_requests_are_made_of() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&PLAN.replace(
        "[[load]]",
        "[keys]\ndistribution = \"file\"\nfile = \"keys.csv\"\ncolumn = \"id\"\n[[load]]",
    ));
    std::fs::write(place.path("keys.csv"), "id\n1\n2\n3\n").unwrap();
    let agent = Agent::start(&[]);
    let ended = run(sweep(&place, &endpoint.url, "r", &[&agent.address]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(
        read_json(&place.path("results/r/run.json"))["points"][0]["repeats"][0]["completed"],
        300
    );
}
