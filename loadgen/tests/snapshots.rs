//! What people read of a run, as a whole: the terminal table and `report.md` of a kept run, held against files.
//!
//! Where a change of them is meant: `INSTA_UPDATE=always cargo nextest run --release --workspace --test snapshots`, and read the
//! difference. Command lines are kept in `docs/reference/cli.md` by `scripts/reference`.

use std::path::Path;
use std::process::Command;

/// Makes the views of the kept run anew and says what stands on stdout and in `report.md`.
fn views() -> (String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = tempfile::tempdir().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_tierlab-loadgen"))
        .args(["report", "results/quick-2core", "--out"])
        .arg(out.path())
        .current_dir(root)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let table = String::from_utf8(done.stdout).unwrap();
    // Cells are filled with spaces to their columns' ends, which no file should have.
    let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
    (
        lines.join("\n"),
        std::fs::read_to_string(out.path().join("report.md")).unwrap(),
    )
}

#[test]
fn the_table_and_the_markdown_of_a_kept_run_are_as_they_were() {
    let (table, markdown) = views();
    insta::assert_snapshot!("table", table);
    insta::assert_snapshot!("report.md", markdown);
}
