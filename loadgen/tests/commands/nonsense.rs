//! Invalid input through the real binary: each error names the fault, its place and the advice, and has its exit code.

use crate::program::{BINARY, NullEndpoint, PLAN, Workdir, run};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

const LAB: &str = "[lab]\ntiers = [\"nvme\", \"papyrus\"]\nwork = \"w\"\nserver_config = \"server.toml\"\n\
    [[lab.cache]]\nname = \"c\"\nshare = 0\n[lab.data]\nrows = 1\n";

/// Fault, its plan, the exit code, and the words that the message must contain.
type Nonsense = (&'static str, String, i32, &'static [&'static str]);

fn changed(from: &str, to: &str) -> String {
    assert!(PLAN.contains(from), "{from}");
    PLAN.replace(from, to)
}

fn with(more: &str) -> String {
    format!("{PLAN}{more}\n")
}

#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn plans() -> [Nonsense; 17] {
    let no_load = PLAN[..PLAN.find("[[load]]").unwrap()].to_owned();
    [
        (
            "unknown key",
            changed("seed = 3", "sede = 3"),
            2,
            &["plan.toml:3:", "`sede`", "expected"],
        ),
        (
            "unknown key in a table",
            with("[limits]\nerrors = 1"),
            2,
            &["plan.toml:17:", "`limits.errors`"],
        ),
        ("no TOML", changed("seed = 3", "seed = "), 2, &["plan.toml", "line 3"]),
        (
            "wrong type",
            changed("seed = 3", "seed = \"x\""),
            2,
            &["plan.toml:3:", "`seed`: invalid type"],
        ),
        (
            "missing key",
            changed("seed = 3\n", ""),
            2,
            &["plan.toml", "missing field `seed`"],
        ),
        (
            "negative rate",
            changed("rates = [50]", "rates = [-1]"),
            2,
            &["plan.toml:11:", "`load[0].rates`: -1", "0.01"],
        ),
        (
            "no rate",
            changed("rates = [25]", "rates = []"),
            2,
            &["plan.toml:15:", "`load[1].rates`"],
        ),
        (
            "too high a rate",
            changed("rates = [50]", "rates = [1e9]"),
            2,
            &["plan.toml:11:", "`load[0].rates`"],
        ),
        (
            "negative time",
            changed("step_s = 0.4", "step_s = -1"),
            2,
            &["plan.toml:6:", "`step_s`: -1"],
        ),
        ("no load", no_load, 2, &["plan.toml:", "`[[load]]` is missing"]),
        (
            "unknown mode",
            changed("\"batch\"", "\"bulk\""),
            2,
            &["plan.toml:13:", "`load[1].mode`", "bulk", "`realtime`"],
        ),
        (
            "no prices",
            format!("prices = \"no.toml\"\ninstance = \"x\"\n{PLAN}"),
            2,
            &["plan.toml:1: `prices`: cannot be opened: ", "no.toml"],
        ),
        (
            "no trace",
            format!("arrivals = \"trace\"\n{PLAN}[arrival]\nfile = \"no.csv\"\n"),
            2,
            &["plan.toml:", "`arrival.file`", "no.csv"],
        ),
        ("a lab's plan", with(LAB), 2, &["plan.toml", "tierlab-loadgen lab"]),
        (
            "no objective",
            with("[search]\nslo = \"fast\""),
            2,
            &["plan.toml:17:", "`search.slo`: `fast`", "`p99 < 20 ms`"],
        ),
        (
            "an objective without samples",
            with("[search]\nslo = \"p99 < 1 ms\"\nmax_rate = 100"),
            2,
            &["plan.toml:16:", "`search`", "1000", "`step_s`"],
        ),
        (
            "an objective that is never met",
            with("[search]\nslo = \"p50 < 1 us\"\nmin_rate = 40\nonly = true"),
            1,
            &["plan.toml:17:", "`p50 < 1 us`", "no rate", "raise the limit"],
        ),
    ]
}

#[test]
fn nonsense_plans_are_answered_with_what_is_wrong_where_and_what_to_do() {
    let endpoint = NullEndpoint::start();
    for (what, plan, code, named) in plans() {
        let place = Workdir::new(&plan);
        let ended = run(place.sweep(&endpoint.url));
        assert_eq!(ended.code, Some(code), "{what}: {}", ended.stderr);
        for part in named {
            assert!(
                ended.stderr.contains(part),
                "{what}: `{part}` is not in: {}",
                ended.stderr
            );
        }
        // Nothing is left of a plan that was not run.
        assert_eq!(place.path("results/r").exists(), code == 1, "{what}");
    }
}

#[test]
fn nonsense_addresses_and_folders_are_answered_too() {
    let endpoint = NullEndpoint::start();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let place = Workdir::new(PLAN);
    for (url, code, named) in [
        (
            format!("http://{closed}"),
            1,
            vec![closed.to_string(), "check that the server runs there".into()],
        ),
        (
            "ftp://nowhere".into(),
            2,
            vec!["ftp://nowhere".into(), "http://HOST:PORT".into()],
        ),
        ("nonsense".into(), 2, vec!["http://127.0.0.1:8000".into()]),
        (
            format!("{}/v2", endpoint.url),
            1,
            vec!["404".to_owned(), "/PREFIX".to_owned()],
        ),
    ] {
        let ended = run(place.sweep(&url));
        assert_eq!(ended.code, Some(code), "{url}: {}", ended.stderr);
        for part in named {
            assert!(
                ended.stderr.contains(&part),
                "{url}: `{part}` is not in: {}",
                ended.stderr
            );
        }
    }
    // A folder with a result, and a plan that is not there.
    fs::create_dir_all(place.path("results/r/hdr")).unwrap();
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--name"), "{}", ended.stderr);
    for name in ["", "../r", "a/b"] {
        let mut command = Command::new(BINARY);
        command.args(["sweep", "plan.toml", "--name", name]);
        let ended = run(command);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("give a name without `/`"), "{}", ended.stderr);
    }
    fs::remove_file(place.path("plan.toml")).unwrap();
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("plan.toml: cannot be read"), "{}", ended.stderr);
    assert!(ended.stderr.contains("give an existing plan"), "{}", ended.stderr);
}

#[test]
fn a_tier_that_is_not_there_is_named_with_those_that_are() {
    let place = Workdir::new(&format!("{PLAN}{LAB}"));
    fs::create_dir_all(place.path("tiers")).unwrap();
    for file in ["server.toml", "tiers/nvme.toml", "tiers/s3.toml"] {
        fs::write(place.path(file), "").unwrap();
    }
    fs::create_dir(place.path("bin")).unwrap();
    for program in ["tierlab-server", "tierlab-models"] {
        fs::write(place.path("bin").join(program), "").unwrap();
    }
    let mut lab = Command::new(BINARY);
    lab.arg("lab")
        .arg(place.path("plan.toml"))
        .arg("--bin-dir")
        .arg(place.path("bin"));
    let ended = run(lab);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for part in [
        "plan.toml:17:",
        "`lab.tiers[1]`",
        "`papyrus`",
        "tiers/papyrus.toml",
        "nvme, s3",
    ] {
        assert!(ended.stderr.contains(part), "`{part}` is not in: {}", ended.stderr);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = Command::new(BINARY)
        .args(["report", "results/quick-2core"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    // As of a program that SIGPIPE ended.
    assert_eq!(status.code(), Some(141), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}
