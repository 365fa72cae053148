//! The real binary with servers whose replies are invalid or far too large.

use crate::program::{BINARY, Ended, NullEndpoint, PLAN, Workdir, run};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const METADATA: &str = r#"{"name":"m","versions":["1"],"platform":"x","inputs":[{"name":"x","datatype":"FP32","shape":[-1,1]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,1]}]}"#;
const METRICS: &str = "tierlab_build_info{feature_tier=\"null\"} 1\n";
/// Address space limit in KiB, far above the expected use.
const ADDRESS_SPACE: &str = "6000000";

fn good(rows: usize) -> String {
    let data = vec!["0.5"; rows].join(",");
    format!(
        r#"{{"model_name":"m","model_version":"1","outputs":[{{"name":"y","datatype":"FP32","shape":[{rows},1],"data":[{data}]}}]}}"#
    )
}

/// Reply of a server: a document, or the start of an endless body with its repeated part.
#[derive(Clone)]
enum Says {
    Whole(String),
    Endless(&'static str),
}

/// Server that answers `honest` infer requests correctly, and later ones with the given reply.
struct Server {
    metadata: Says,
    metrics: Says,
    honest: usize,
    reply: Says,
}

impl Server {
    fn replying(reply: &str) -> Self {
        Self {
            metadata: Says::Whole(METADATA.into()),
            metrics: Says::Whole(METRICS.into()),
            honest: 1,
            reply: Says::Whole(reply.into()),
        }
    }

    fn start(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let (server, answered) = (Arc::new(self), Arc::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (server, answered) = (Arc::clone(&server), Arc::clone(&answered));
                thread::spawn(move || while server.answer(&stream, &answered).is_some() {});
            }
        });
        format!("http://{address}")
    }

    fn answer(&self, mut stream: &TcpStream, answered: &AtomicUsize) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let (mut path, mut length, mut line) = (String::new(), 0, String::new());
        while reader.read_line(&mut line).ok().filter(|read| *read > 0).is_some() {
            let text = line.trim().to_ascii_lowercase();
            if path.is_empty() {
                path = text.split(' ').nth(1)?.to_owned();
            }
            if let Some(value) = text.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if text.is_empty() {
                break;
            }
            line.clear();
        }
        reader.read_exact(&mut vec![0; length]).ok()?;
        let right = Says::Whole(good(1));
        let says = match path.as_str() {
            "/metrics" => &self.metrics,
            path if path.ends_with("/infer") && answered.fetch_add(1, Ordering::Relaxed) < self.honest => &right,
            path if path.ends_with("/infer") => &self.reply,
            _ => &self.metadata,
        };
        match says {
            Says::Whole(text) => {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
                stream.write_all((head + text).as_bytes()).ok()
            }
            Says::Endless(start) => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{start}\r\n",
                    start.len()
                );
                stream.write_all(head.as_bytes()).ok()?;
                let piece = format!("{:x}\r\n{}\r\n", 1 << 16, "1".repeat(1 << 16));
                // It ends when the other side has had enough.
                while stream.write_all(piece.as_bytes()).is_ok() {}
                None
            }
        }
    }
}

/// Runs a sweep within that address space.
fn bounded(place: &Workdir, url: &str) -> Ended {
    let sweep = place.sweep(url);
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("ulimit -v {ADDRESS_SPACE}; exec \"$0\" \"$@\""))
        .arg(sweep.get_program());
    command.args(sweep.get_args());
    if let Some(folder) = sweep.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in sweep.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    run(command)
}

const ONE_LOAD: &str = "name = \"short\"\nmodel = \"m\"\nseed = 3\nrepeats = 1\nwarmup_s = 0.1\nstep_s = 0.8\n\
    drain_s = 1.0\nmax_in_flight = 16\n[[load]]\nmode = \"realtime\"\nrates = [100]\n";

fn only_point(place: &Workdir) -> Value {
    place.run_json()["points"][0].clone()
}

#[test]
fn replies_that_are_none_are_errors_of_their_own_kind_with_an_example() {
    for (reply, says) in [
        (
            r#"{"error": "asleep"}"#.to_owned(),
            "the reply is an error: `\"asleep\"`",
        ),
        (good(1).replace("\"m\"", "\"other\""), "from model `other`"),
        (r#"{"model_name":"m","outputs":[]}"#.to_owned(), "no outputs"),
        (good(2), "output `y` has shape [2, 1], not [1, 1]"),
        ("<html>502</html>".to_owned(), "not a JSON object"),
    ] {
        let url = Server::replying(&reply).start();
        let place = Workdir::new(ONE_LOAD);
        let ended = run(place.sweep(&url));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let point = only_point(&place);
        let repeat = &point["repeats"][0];
        assert_eq!(repeat["completed"], 0, "{says}");
        assert_eq!(repeat["errors"]["wrong-reply"], repeat["scheduled"], "{says}");
        let example = repeat["examples"]["wrong-reply"].as_str().unwrap();
        assert!(example.contains(says), "`{example}` does not say `{says}`");
        let verdict = point["summary"]["verdict"].to_string();
        assert!(
            verdict.contains("saturated") && verdict.contains("wrong-reply"),
            "{verdict}"
        );
        let report = std::fs::read_to_string(place.path("results/r/report.md")).unwrap();
        assert!(report.contains("wrong-reply"), "{report}");
    }
}

#[test]
fn what_has_no_end_is_refused_with_its_limit() {
    let good = || Server::replying(&good(1));
    let endless = |start| Says::Endless(start);
    for (server, says) in [
        (
            Server {
                metadata: endless("{\"name\":\""),
                ..good()
            },
            "a body of more than",
        ),
        (
            Server {
                metrics: endless("# "),
                ..good()
            },
            "a body of more than",
        ),
        (
            Server {
                honest: 0,
                reply: endless("{\"x\":\""),
                ..good()
            },
            "`reply_limit_bytes`",
        ),
    ] {
        let ended = bounded(&Workdir::new(PLAN), &server.start());
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "`{}` does not say `{says}`", ended.stderr);
    }
    let url = Server {
        reply: endless("{\"x\":\""),
        ..good()
    }
    .start();
    let place = Workdir::new(ONE_LOAD);
    let ended = bounded(&place, &url);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let repeat = only_point(&place)["repeats"][0].clone();
    assert_eq!(repeat["errors"]["too-large"], repeat["scheduled"], "{repeat}");
    let example = repeat["examples"]["too-large"].as_str().unwrap();
    assert!(example.contains("`reply_limit_bytes`"), "{example}");
}

#[test]
fn credentials_of_an_address_are_refused_and_appear_nowhere() {
    let endpoint = NullEndpoint::start();
    let host = endpoint.url.strip_prefix("http://").unwrap();
    for url in [
        format!("http://user:S3CRET@{host}"),
        format!("http://{host}/?token=S3CRET"),
    ] {
        let place = Workdir::new(ONE_LOAD);
        let ended = run(place.sweep(&url));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("without a name, a password or a token"),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains("S3CRET"), "{}", ended.stderr);
    }
    let place = Workdir::new(&format!("# see http://user:S3CRET@h/x?token=S3CRET\n{ONE_LOAD}"));
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for file in ["run.json", "report.html", "report.md"] {
        let text = std::fs::read_to_string(place.path("results/r").join(file)).unwrap();
        assert!(!text.contains("S3CRET"), "{file}");
    }
}

#[test]
fn a_report_goes_where_it_is_told_and_not_into_a_folder_under_version_control() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(ONE_LOAD);
    assert_eq!(run(place.sweep(&endpoint.url)).code, Some(0));
    let folder = place.path("results/r");
    let git = |args: &[&str]| {
        let done = Command::new("git")
            .arg("-C")
            .arg(place.path("results"))
            .args(args)
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        String::from_utf8(done.stdout).unwrap()
    };
    git(&["init", "--quiet"]);
    git(&["add", "-A"]);
    std::fs::remove_file(folder.join("report.md")).unwrap();
    let report = |more: &[&str]| {
        let mut command = Command::new(BINARY);
        command.arg("report").arg(&folder).args(more);
        run(command)
    };
    let refused = report(&[]);
    assert_eq!(refused.code, Some(0), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("--out") && refused.stdout.contains("realtime"),
        "{}",
        refused.stderr
    );
    assert_eq!(
        git(&["status", "--porcelain"])
            .lines()
            .filter(|line| !line.starts_with("A "))
            .collect::<Vec<_>>(),
        ["AD r/report.md"]
    );
    let out = place.path("views");
    assert_eq!(report(&["--out", out.to_str().unwrap()]).code, Some(0));
    for file in ["report.md", "report.html", "summary.csv"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    assert!(!folder.join("report.md").exists());
    // A file in the place of the folder: the answer names no report that was not written.
    let failed = report(&["--out", out.join("report.md").to_str().unwrap()]);
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    assert!(
        failed.stdout.contains("realtime") && !failed.stdout.contains("report.html"),
        "{}",
        failed.stdout
    );
}

/// The recorded commit does not depend on the place of the plan.
#[test]
fn the_recorded_commit_is_that_of_the_binary() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(ONE_LOAD);
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command
            .arg("-C")
            .arg(place.path("."))
            .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
            .args(args);
        assert!(command.output().unwrap().status.success(), "git {args:?}");
    };
    git(&["init", "--quiet"]);
    git(&["commit", "--quiet", "--allow-empty", "-m", "another project"]);
    assert_eq!(run(place.sweep(&endpoint.url)).code, Some(0));
    let recorded = place.run_json()["environment"]["git_commit"]
        .as_str()
        .unwrap()
        .to_owned();
    let other = Command::new("git")
        .arg("-C")
        .arg(place.path("."))
        .args(["rev-parse", "HEAD"])
        .output()
        .unwrap();
    let other = String::from_utf8(other.stdout).unwrap();
    assert!(!recorded.starts_with(other.trim()), "{recorded}");
}
