//! The certificate of the self-check through the real binary: stored by one command, carried or refused by the next.

use crate::lab::{LAB, lab, lab_place};
use crate::program::{BINARY, Ended, NullEndpoint, Workdir, read_json, run};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const PLAN: &str = "name = \"one\"\nmodel = \"m\"\nseed = 3\nrepeats = 1\nwarmup_s = 0.1\nstep_s = 0.2\ndrain_s = 0.5\n\
    max_in_flight = 16\n[[load]]\nmode = \"realtime\"\nrates = [50]\n";

/// Path of the certificate in a test's state folder.
fn kept(place: &Workdir) -> PathBuf {
    place.path("state/tierlab/certificate.json")
}

/// Statements of a sweep about the instrument: in its `run.json`, in the table, and in both reports.
struct Said {
    carried: Value,
    everywhere: [String; 3],
}

impl Said {
    fn contains(&self, text: &str) -> bool {
        self.everywhere.iter().all(|said| said.contains(text))
    }
}

fn said(endpoint: &NullEndpoint, place: &Workdir, more: &[&str]) -> Said {
    let results = place.path("results");
    if results.exists() {
        fs::remove_dir_all(&results).unwrap();
    }
    let mut sweep = place.sweep(&endpoint.url);
    sweep.args(more);
    let ended: Ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    what_it_says(place, ended)
}

/// Returns the statements of the run in `results/r`, and its command.
fn what_it_says(place: &Workdir, ended: Ended) -> Said {
    let report = |name: &str| fs::read_to_string(place.path("results/r").join(name)).unwrap();
    let certificates = place.run_json()["certificates"].clone();
    assert_eq!(certificates.as_array().unwrap().len(), 1);
    Said {
        carried: certificates[0].clone(),
        everywhere: [ended.stdout, report("report.html"), report("report.md")],
    }
}

/// A lab of every process that a lab starts, beside the certificate of `place`.
fn of_a_lab(place: &Workdir) -> Said {
    let lab_folder = lab_place(&format!("{PLAN}{LAB}"));
    let mut command = lab(&lab_folder, "r");
    command.env("XDG_STATE_HOME", place.path("state"));
    let ended = run(command);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    what_it_says(&lab_folder, ended)
}

#[test]
fn without_one_a_sweep_says_how_to_get_it() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let none = said(&endpoint, &place, &[]);
    assert!(none.carried["certificate"].is_null());
    assert!(none.contains("Missing certificate of the self-check"));
    assert!(none.contains("certificate.json does not exist") && none.contains("tierlab-loadgen selfcheck"));
    assert!(!kept(&place).exists());
}

/// Marks every check as passed, because a busy machine may fail one.
fn with_every_check_passed(mut certificate: Value) -> Value {
    for check in certificate["checks"].as_array_mut().unwrap() {
        check["passed"] = json!(true);
    }
    certificate
}

#[test]
fn a_self_check_is_kept_and_carried_and_refused_where_it_proves_nothing() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let mut selfcheck = Command::new(BINARY);
    selfcheck.arg("selfcheck").arg("--json").arg(place.path("lines.json"));
    selfcheck
        .env_remove("TIERLAB_CERTIFICATE")
        .env("XDG_STATE_HOME", place.path("state"));
    let ended = run(selfcheck);
    let certificate = read_json(&kept(&place));
    let checks = certificate["checks"].as_array().unwrap();
    let failed = checks.iter().filter(|check| check["passed"] == false).count();
    assert_eq!(ended.code, Some(i32::from(failed > 0)), "{}", ended.stderr);
    assert_eq!(read_json(&place.path("lines.json")), certificate["checks"]);
    assert!(checks.len() > 5, "{certificate}");
    // The folder holds only the certificate.
    assert_eq!(fs::read_dir(place.path("state/tierlab")).unwrap().count(), 1);

    // The certificate is used unchanged: its lines decide whether it is valid, and a failed line counts.
    let carried = said(&endpoint, &place, &[]).carried;
    assert_eq!(carried["certificate"], certificate);
    assert_eq!(
        carried["doubts"].as_array().unwrap().len(),
        usize::from(failed > 0),
        "{carried}"
    );
    assert_eq!(place.run_json()["environment"]["cpu"], certificate["machine"]["cpu"]);
    // A lab carries it too, and judges it alike.
    let of_lab = of_a_lab(&place).carried;
    assert_eq!(of_lab["certificate"], certificate);
    assert_eq!(of_lab["doubts"], carried["doubts"]);

    let certificate = with_every_check_passed(certificate);
    let store = |file: &PathBuf, certificate: &Value| fs::write(file, certificate.to_string()).unwrap();
    store(&kept(&place), &certificate);
    let proven = said(&endpoint, &place, &[]);
    assert_eq!(proven.carried["doubts"], json!([]));
    assert!(proven.contains("The instrument is proven") && proven.contains(" old, tierlab-loadgen "));
    assert!(proven.everywhere[1].contains("clock resolution"));
    let of_lab = of_a_lab(&place);
    assert_eq!(of_lab.carried["certificate"], certificate);
    assert_eq!(of_lab.carried["doubts"], json!([]));
    assert!(of_lab.contains("The instrument is proven"));

    let changes: [(&str, Value, &str); 4] = [
        (
            "/machine/cpu",
            json!("Another CPU"),
            "made on another machine (CPU was Another CPU",
        ),
        ("/program/version", json!("0.0.1"), "made by version 0.0.1"),
        ("/program/sha256", json!("00"), "made by another build"),
        ("/made_at", json!("2020-01-01T00:00:00Z"), "older than 7 days"),
    ];
    let elsewhere = place.path("elsewhere.json");
    for (key, value, doubt) in changes {
        let mut changed = certificate.clone();
        *changed.pointer_mut(key).unwrap() = value;
        store(&elsewhere, &changed);
        // Named by hand, it goes before the one in the state folder.
        let refused = said(&endpoint, &place, &["--certificate", elsewhere.to_str().unwrap()]);
        assert_eq!(refused.carried["certificate"], changed);
        assert!(
            refused.contains("is not valid for this run") && refused.contains(doubt),
            "{doubt}"
        );
        assert!(!refused.contains("The instrument is proven"));
        assert!(!refused.everywhere[1].contains("clock resolution"));
    }
}
