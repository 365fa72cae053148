//! Readable output of a run as a whole: the terminal table and `report.md` of a stored run, compared with files; and
//! the opening of a run with a question, by the outcome of its answer. With `TIERLAB_ANSWER_TO=DIR` the folder of such
//! a run is left there, for viewing in a browser.
//!
//! After an intended change: `INSTA_UPDATE=always cargo nextest run --release --workspace --test snapshots`, and read
//! the difference. `scripts/reference` writes the command lines to `docs/reference/cli.md`.

mod answered;
mod synthetic;

use std::path::{Path, PathBuf};
use std::process::Command;
use tierlab_analysis::record::{AnswerOutcome, Run};

/// Rewrites the views of the kept run. Returns stdout, brief and verbose, and `report.md`.
fn views() -> (String, String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = tempfile::tempdir().unwrap();
    let printed = |more: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_tierlab-loadgen"))
            .args(["report", "results/quick-2core", "--out"])
            .arg(out.path())
            .args(more)
            .current_dir(&root)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let text = String::from_utf8(done.stdout).unwrap();
        let text = text.replace(out.path().to_str().unwrap(), "OUT");
        // Cells are filled with spaces to their columns' ends, which no file should have.
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n")
    };
    let (brief, all) = (printed(&[]), printed(&["--verbose"]));
    let table = all.strip_suffix(&brief).expect("everything ends with the brief");
    (
        brief.clone(),
        table.trim_end().to_owned(),
        std::fs::read_to_string(out.path().join("report.md")).unwrap(),
    )
}

#[test]
fn the_table_and_the_markdown_of_a_kept_run_are_as_they_were() {
    let (brief, table, markdown) = views();
    insta::assert_snapshot!("brief", brief);
    insta::assert_snapshot!("table", table);
    insta::assert_snapshot!("report.md", markdown);
}

/// Returns the text before the first group of curves.
fn opening(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.contains("realtime · ctr"));
    lines.map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Returns the run with an answer of each kind.
fn answers() -> [(&'static str, Run); 3] {
    [
        ("decided", AnswerOutcome::Decided),
        ("undecided", AnswerOutcome::Undecided),
        ("none", AnswerOutcome::None),
    ]
    .map(|(name, outcome)| (name, answered::run(outcome)))
}

#[test]
fn reports_open_with_the_answer() {
    for (name, run) in answers() {
        let table = opening(&tierlab_report::table(&run));
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(160), "{widest:?} columns in\n{table}");
        insta::assert_snapshot!(format!("answer_{name}_table"), table);
        let brief = tierlab_report::brief(&run, Path::new("results/run"), Some(Path::new("results/run")));
        let widest = brief.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100) && brief.lines().count() <= 25, "{brief}");
        insta::assert_snapshot!(format!("answer_{name}_brief"), brief);
        insta::assert_snapshot!(format!("answer_{name}.md"), opening(&tierlab_report::markdown(&run)));
        insta::assert_snapshot!(
            format!("answer_{name}_junit.xml"),
            tierlab_report::answer_junit(&run).unwrap()
        );
        let page = tierlab_report::page(&[&run]);
        let answer = page.find("class=\"said\"").unwrap();
        assert!(answer < page.find("<details").unwrap());
    }
}

#[test]
fn a_p99_above_the_rate_that_an_instance_carries_says_so() {
    let mut run = answered::run(AnswerOutcome::Decided);
    let best = &mut run.answer.as_mut().unwrap().ranking[0];
    best.at_rps = Some(350.0);
    let text = tierlab_report::answer_text(&run).unwrap();
    let tail = "measured p99 1.83 ms [1.64–2.09] at 350/s, above the 300/s that an instance carries";
    assert!(
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains(tail),
        "{text}"
    );
}

#[test]
fn the_answer_is_kept_beside_the_run_with_the_keys_of_the_record() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = std::env::var_os("TIERLAB_ANSWER_TO").map_or_else(|| temporary.path().join("run"), PathBuf::from);
    let run = answered::run(AnswerOutcome::Undecided);
    synthetic::write(&run, &folder).unwrap();
    let text = std::fs::read_to_string(folder.join("answer.json")).unwrap();
    let read: tierlab_analysis::record::Answer = serde_json::from_str(&text).unwrap();
    assert_eq!(Some(read), run.answer);
    let csv = std::fs::read_to_string(folder.join("summary.csv")).unwrap();
    assert!(csv.lines().next().unwrap().contains(",offered_rps,variant,repeats,"));
    assert!(csv.contains(",100,s3-standard,"), "{csv}");
    // Without a question there is neither an answer.json nor a JUnit file.
    let asked_nothing = synthetic::run(1, 1.0);
    assert!(
        tierlab_report::answer_json(&asked_nothing).is_none() && tierlab_report::answer_junit(&asked_nothing).is_none()
    );
}
