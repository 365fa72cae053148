//! Tables with a log of their own, written by the programs that others write them with: `deltalake` and `pyiceberg`. What was deleted or
//! replaced lies beside the log still, and is never read.

use super::{Read, fail, succeed};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A table of each kind: rows are added a hundred at a time, some are deleted, and ten are added behind that.
const WRITE: &str = r#"
import pathlib, pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

root = pathlib.Path(".").resolve()

def rows(start, end):
    return pa.table({
        "id": pa.array(range(start, end), pa.int64()),
        "value": pa.array([2.0 * id for id in range(start, end)], pa.float32()),
    })

catalog = SqlCatalog("c", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/lake")
catalog.create_namespace("n")
table = catalog.create_table("n.iceberg", schema=rows(0, 1).schema)
for start in range(0, 300, 100):
    table.append(rows(start, start + 100))
table.delete("id >= 50 and id < 120")
table.append(rows(900, 910))

for start in range(0, 300, 100):
    write_deltalake("delta", rows(start, start + 100), mode="append")
delta = DeltaTable("delta")
delta.delete("id >= 50 AND id < 120")
delta.create_checkpoint()
write_deltalake("delta", rows(900, 910), mode="append")
"#;

const ICEBERG: &str = "lake/n/iceberg";

fn written() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.runtime/venv/bin/python");
    assert!(
        python.exists(),
        "{} is missing: run `scripts/setup python`",
        python.display()
    );
    let mut command = Command::new(python);
    let output = command.current_dir(folder.path()).args(["-c", WRITE]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

const IMPORT: [&str; 8] = ["import-table", "--key", "id", "--name", "t", "--out", "f", "--replace"];

/// The rows that are there, and no others.
fn check(at: &Path, table: &str) {
    let said = succeed(at, &[&IMPORT[..], &["--restart", table]].concat());
    let read = Read::table(&at.join("f/t.rows"));
    assert_eq!(read.header.rows, 240, "{said}");
    for id in (0..50).chain(120..300).chain(900..910) {
        let value = read.column(&i64::to_le_bytes(id), "value").unwrap();
        assert_eq!(value, (2.0 * id as f32).to_le_bytes(), "{id}");
    }
}

fn refused(at: &Path, table: &str) -> String {
    fail(at, &[&IMPORT[..], &["--restart", table]].concat())
}

fn files(folder: &Path, ending: &str) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.to_str().unwrap().ends_with(ending))
        .collect();
    files.sort();
    files
}

#[test]
fn what_was_deleted_is_not_read_and_what_was_added_is() {
    let folder = written();
    let at = folder.path();
    check(at, ICEBERG);
    check(at, "delta");
    // Moved, its addresses are those of before.
    fs::rename(at.join("lake"), at.join("moved")).unwrap();
    check(at, "moved/n/iceberg");
    // Older logs are cleaned away: the checkpoint is where it begins.
    let log = at.join("delta/_delta_log");
    for version in 0..=3 {
        fs::remove_file(log.join(format!("{version:020}.json"))).unwrap();
    }
    check(at, "delta");
    // Without it nothing says what the versions before have left.
    fs::remove_file(log.join("00000000000000000003.checkpoint.parquet")).unwrap();
    let error = refused(at, "delta");
    assert!(error.contains("version 0 is not in its log"), "{error}");
}

#[test]
fn a_log_that_is_damaged_is_refused_by_the_name_of_its_file() {
    let folder = written();
    let at = folder.path();
    let metadata = at.join(ICEBERG).join("metadata");
    let mut refusals = 0;
    for path in files(&metadata, ".avro") {
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let output = super::run(at, &[&IMPORT[..], &["--restart", ICEBERG]].concat());
        if !output.status.success() {
            let error = String::from_utf8(output.stderr).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(error.contains(name) && error.contains("it is damaged"), "{error}");
            refusals += 1;
        }
        fs::write(&path, whole).unwrap();
    }
    // The list of the newest snapshot and its manifests; those of older ones alone are not read.
    assert!((3..files(&metadata, ".avro").len()).contains(&refusals), "{refusals}");
    let data = files(&at.join(ICEBERG).join("data"), ".parquet");
    let newest = data
        .iter()
        .max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
        .unwrap();
    let whole = fs::read(newest).unwrap();
    fs::write(newest, &whole[1..]).unwrap();
    let error = refused(at, ICEBERG);
    assert!(error.contains("when it was added"), "{error}");
    fs::remove_file(newest).unwrap();
    let error = refused(at, ICEBERG);
    assert!(error.contains("which is not there"), "{error}");

    let log = at.join("delta/_delta_log");
    let checkpoint = log.join("00000000000000000003.checkpoint.parquet");
    let whole = fs::read(&checkpoint).unwrap();
    fs::write(&checkpoint, &whole[..whole.len() / 2]).unwrap();
    // The whole log needs none.
    check(at, "delta");
    fs::remove_file(log.join(format!("{:020}.json", 0))).unwrap();
    let error = refused(at, "delta");
    assert!(error.contains("checkpoint.parquet: no checkpoint"), "{error}");
}
