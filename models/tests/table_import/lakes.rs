//! Tables with their own log, written by other programs: `deltalake` and `pyiceberg`. Deleted or replaced rows still
//! lie beside the log, and are never read.

use super::{Read, fail, succeed};
use std::fs;
use std::path::Path;
use std::process::Command;
use tierlab_protocol::tensor::DataType;

/// Writes a table of each kind: rows are added a hundred at a time, some are deleted, and ten are added after that.
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

/// Evolves a schema: columns renamed, swapped, dropped and added, promoted, partitioned, and rows changed.
const EVOLVE: &str = r#"
import datetime, json, pathlib, pyarrow as pa, pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import DoubleType, LongType
from pyiceberg.transforms import DayTransform, IdentityTransform

root = pathlib.Path(".").resolve()
catalog = SqlCatalog("c", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/lake")
catalog.create_namespace("n")

def columns(ids, **more):
    return pa.table({"id": pa.array(ids, pa.int64()), **{name: pa.array(values, kind) for name, (values, kind) in more.items()}})

def first():
    return columns([1, 2], a=([1, 2], pa.int32()), b=([10, 20], pa.int32()), f=([0.5, 1.5], pa.float32()))

# Swapped, dropped and added again, added, promoted.
table = catalog.create_table("n.evolved", schema=first().schema)
table.append(first())
with table.update_schema() as update:
    update.rename_column("a", "c")
with table.update_schema() as update:
    update.rename_column("b", "a")
with table.update_schema() as update:
    update.rename_column("c", "b")
with table.update_schema() as update:
    update.update_column("a", LongType())
    update.update_column("f", DoubleType())
    update.add_column("later", LongType())
table.append(columns([3], b=([3], pa.int32()), a=([1 << 40], pa.int64()), f=([0.1], pa.float64()), later=([7], pa.int64())))
table.delete("id = 2")

table = catalog.create_table("n.again", schema=first().schema)
table.append(first())
with table.update_schema(allow_incompatible_changes=True) as update:
    update.delete_column("a")
with table.update_schema() as update:
    update.add_column("a", LongType())
table.append(columns([3], b=([30], pa.int32()), f=([2.5], pa.float32()), a=([9], pa.int64())))

# Partitioned by day, under a name that Avro does not have, and updated.
def days(ids, value):
    return columns(ids, day=([datetime.date(2024, 1, 1 + id) for id in ids], pa.date32()), v=([value * id for id in ids], pa.int64()))
table = catalog.create_table("n.days", schema=days([0], 10).schema)
with table.update_spec() as update:
    update.add_field("day", IdentityTransform(), "the-day")
table.append(days([0, 1, 2], 10))
table.overwrite(days([1], 11), "id = 1")
# As a table that came from Hive: the manifest alone has the column that the files are partitioned by.
for path in (root / "lake/n/days/data").rglob("*.parquet"):
    size, rows = path.stat().st_size, pq.ParquetFile(path).read().drop(["day"])
    for pad in range(size):
        with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({"pad": "x" * pad})
        if path.stat().st_size >= size:
            break
    assert path.stat().st_size == size

# Files without field ids, found by the table's names for them.
table = catalog.create_table("n.mapped", schema=columns([1], v=([5], pa.int64())).schema)
plain = root / "lake/n/mapped/data/plain.parquet"
plain.parent.mkdir()
pq.write_table(columns([1], v=([5], pa.int64())), plain)
table.add_files([f"file://{plain}"])
with table.update_schema() as update:
    update.rename_column("v", "w")

# Partitioned by the day of a time, which stays the files' own.
def times(id):
    return columns([id], at=([datetime.datetime(2024, 1, 1 + id, 5)], pa.timestamp("us")))
table = catalog.create_table("n.times", schema=times(1).schema)
with table.update_spec() as update:
    update.add_field("at", DayTransform(), "at_day")
(root / "lake/n/times/data").mkdir()
for id in (1, 2):
    path = root / f"lake/n/times/data/{id}.parquet"
    pq.write_table(times(id), path)
    table.add_files([f"file://{path}"])

# Delta: partitioned, with columns added, rows updated, merged and compacted.
def rows(ids, **more):
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array(["2024-01-%02d" % (1 + id % 3) for id in ids]).cast(pa.date32()),
                     "v": pa.array([10 * id for id in ids], pa.int64()), **more})
write_deltalake("delta", rows(range(6)), partition_by=["day"])
write_deltalake("delta", rows([6, 7], w=pa.array([6, 7], pa.int32())), mode="append", schema_mode="merge")
delta = DeltaTable("delta")
delta.update(updates={"v": "v + 1"}, predicate="id = 2")
delta.merge(rows([3, 8], w=pa.array([3, 8], pa.int32())), "t.id = s.id", source_alias="s", target_alias="t").when_matched_update_all().when_not_matched_insert_all().execute()
delta.delete("id = 0")
delta.optimize.compact()

# Delta by hand: what the library reads and does not write. Columns have other names in the files, and a wider type than they.
def by_hand(folder, protocol, fields, configuration, adds):
    log = root / folder / "_delta_log"
    log.mkdir(parents=True)
    schema = {"type": "struct", "fields": fields}
    meta = {"id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema), "partitionColumns": [], "configuration": configuration}
    actions = [{"protocol": protocol}, {"metaData": meta}]
    for name, rows, more in adds:
        pq.write_table(rows, root / folder / name)
        size = (root / folder / name).stat().st_size
        actions.append({"add": {"path": name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True, **more}})
    (log / ("%020d.json" % 0)).write_text("\n".join(map(json.dumps, actions)))

def field(name, kind, physical=None):
    metadata = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": 1} if physical else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}

swapped = [field("id", "long", "id"), field("a", "long", "b"), field("b", "long", "a")]
two = columns([1], a=([1], pa.int64()), b=([2], pa.int64()))
by_hand("mapped", {"minReaderVersion": 2, "minWriterVersion": 5}, swapped, {"delta.columnMapping.mode": "name"}, [("0.parquet", two, {})])
widened = [field("id", "long"), field("x", "double"), field("n", "long")]
narrow = columns([1], x=([0.1], pa.float32()), n=([1], pa.int32()))
wide = columns([2], x=([0.1], pa.float64()), n=([1 << 40], pa.int64()))
features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
by_hand("widened", features, widened, {}, [("0.parquet", narrow, {}), ("1.parquet", wide, {})])
features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
vector = {"deletionVector": {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}}
by_hand("vectors", features, widened, {}, [("0.parquet", narrow, vector)])
features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["tomorrow"], "writerFeatures": ["tomorrow"]}
by_hand("unknown", features, widened, {}, [("0.parquet", narrow, {})])
"#;

fn written() -> tempfile::TempDir {
    made_by(WRITE)
}

/// Returns a folder in which a Python program has run.
pub(super) fn made_by(program: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.runtime/venv/bin/python");
    assert!(
        python.exists(),
        "{} is missing: run `scripts/setup python`",
        python.display()
    );
    let mut command = Command::new(python);
    let output = command
        .current_dir(folder.path())
        .args(["-c", program])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

const IMPORT: [&str; 8] = ["import-table", "--key", "id", "--name", "t", "--out", "f", "--replace"];

/// Checks that the table has the existing rows, and no others.
fn check(at: &Path, table: &str) {
    let stdout = succeed(at, &[&IMPORT[..], &["--restart", table]].concat());
    let read = Read::table(&at.join("f/t.rows"));
    assert_eq!(read.header.rows, 240, "{stdout}");
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
    // After a move its addresses are still the old ones.
    fs::rename(at.join("lake"), at.join("moved")).unwrap();
    check(at, "moved/n/iceberg");
    // Older logs are removed: the checkpoint is the beginning.
    let log = at.join("delta/_delta_log");
    for version in 0..=3 {
        fs::remove_file(log.join(format!("{version:020}.json"))).unwrap();
    }
    check(at, "delta");
    // Without it, the state of the earlier versions is unknown.
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
    // The list of the newest snapshot and its manifests; manifests of older snapshots only are not read.
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
    assert!(error.contains("which does not exist"), "{error}");

    let log = at.join("delta/_delta_log");
    let checkpoint = log.join("00000000000000000003.checkpoint.parquet");
    let whole = fs::read(&checkpoint).unwrap();
    fs::write(&checkpoint, &whole[..whole.len() / 2]).unwrap();
    // The complete log needs none.
    check(at, "delta");
    fs::remove_file(log.join(format!("{:020}.json", 0))).unwrap();
    let error = refused(at, "delta");
    assert!(error.contains("checkpoint.parquet: no checkpoint"), "{error}");
}

/// Imports a table whose nulls become 0, and reads its columns of one row.
fn import(at: &Path, args: &[&str]) -> Read {
    succeed(at, &[&IMPORT[..], &["--restart"], args].concat());
    Read::table(&at.join("f/t.rows"))
}

fn row<const N: usize>(read: &Read, id: i64, columns: [&str; N]) -> [f64; N] {
    columns.map(|name| {
        let bytes = read.column(&id.to_le_bytes(), name).unwrap();
        match read.header.schema.column(name).unwrap().dtype {
            DataType::Int32 => f64::from(i32::from_le_bytes(bytes.try_into().unwrap())),
            DataType::Int64 => i64::from_le_bytes(bytes.try_into().unwrap()) as f64,
            DataType::Fp64 => f64::from_le_bytes(bytes.try_into().unwrap()),
            DataType::Fp32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
            other => panic!("{name} is {other}"),
        }
    })
}

#[test]
fn columns_are_those_of_the_current_schema_whatever_their_names_in_the_files() {
    let folder = made_by(EVOLVE);
    let at = folder.path();
    // Without a rule for nulls, a column that was added later is null in older files.
    let error = refused(at, "lake/n/evolved");
    assert!(error.contains("column `later` is null"), "{error}");
    let zero = ["--nulls", "zero"];
    let read = import(at, &[&zero[..], &["lake/n/evolved"]].concat());
    assert_eq!(read.header.rows, 2);
    assert_eq!(row(&read, 1, ["a", "b", "f", "later"]), [10.0, 1.0, 0.5, 0.0]);
    assert_eq!(
        row(&read, 3, ["a", "b", "f", "later"]),
        [(1_i64 << 40) as f64, 3.0, 0.1, 7.0]
    );

    let read = import(at, &[&zero[..], &["lake/n/again"]].concat());
    assert_eq!(row(&read, 1, ["a", "b"]), [0.0, 10.0]);
    assert_eq!(row(&read, 3, ["a", "b"]), [9.0, 30.0]);

    let read = import(at, &["lake/n/days"]);
    let found = [0, 1, 2].map(|id| row(&read, id, ["v"])[0]);
    assert_eq!((read.header.rows, found), (3, [0.0, 11.0, 20.0]));
    assert_eq!(row(&read, 1, ["day"]), [19_724.0]);
    assert_eq!(row(&import(at, &["lake/n/mapped"]), 1, ["w"]), [5.0]);
    let read = import(at, &["lake/n/times"]);
    let found = [1, 2].map(|id| row(&read, id, ["at"])[0]);
    let micros = |day: i64| ((day * 24 + 5) * 3_600_000_000) as f64;
    assert_eq!((read.header.rows, found), (2, [micros(19_724), micros(19_725)]));

    let read = import(at, &[&zero[..], &["delta"]].concat());
    let rows = [1, 2, 3, 4, 6, 8].map(|id| row(&read, id, ["v", "w", "day"]));
    let day = 19_723.0;
    let wanted = [
        [10.0, 0.0, day + 1.0],
        [21.0, 0.0, day + 2.0],
        [30.0, 3.0, day],
        [40.0, 0.0, day + 1.0],
        [60.0, 6.0, day],
        [80.0, 8.0, day + 2.0],
    ];
    assert_eq!((read.header.rows, rows), (8, wanted));

    let read = import(at, &["mapped"]);
    assert_eq!(row(&read, 1, ["a", "b"]), [2.0, 1.0]);
    let read = import(at, &["widened"]);
    assert_eq!(row(&read, 1, ["x", "n"]), [f64::from(0.1_f32), 1.0]);
    assert_eq!(row(&read, 2, ["x", "n"]), [0.1, (1_i64 << 40) as f64]);
    assert!(refused(at, "vectors").contains("deletion vector"));
    assert!(refused(at, "unknown").contains("`tomorrow`"));
}
