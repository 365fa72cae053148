//! Tables from users.

use super::{Read, fail, run, succeed};
use arrow_array::builder::{Float32Builder, ListBuilder};
use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampSecondArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use tierlab_formats::table::KeyKind;

pub(super) fn write_parquet(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(1000))
        .build();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Writes users 0 to `count`, unordered: a text key, a float64, an integer, a list of three, a time.
fn users(path: &Path, count: i64) {
    let order = |i: i64| i * 7919 % count;
    let names: Vec<String> = (0..count).map(|i| format!("user-{}", order(i))).collect();
    let mut vectors = ListBuilder::new(Float32Builder::new());
    for i in 0..count {
        for part in 0..3 {
            vectors.values().append_value((order(i) * 10 + part) as f32);
        }
        vectors.append(true);
    }
    write_parquet(
        path,
        vec![
            ("user_id", Arc::new(StringArray::from(names)) as ArrayRef),
            (
                "score",
                Arc::new(Float64Array::from_iter_values(
                    (0..count).map(|i| order(i) as f64 / 2.0),
                )),
            ),
            (
                "clicks",
                Arc::new(Int32Array::from_iter_values((0..count).map(|i| order(i) as i32))),
            ),
            ("vector", Arc::new(vectors.finish())),
            ("seen", Arc::new(TimestampSecondArray::from_iter_values(0..count))),
        ],
    );
}

#[test]
fn parquet_with_text_keys_becomes_a_table_that_pyarrow_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    users(&at.join("users.parquet"), 5003);
    let stdout = succeed(
        at,
        &[
            "import-table",
            "users.parquet",
            "--key",
            "user_id",
            "--name",
            "users",
            "--out",
            "f",
            "--as",
            "score=FP32",
        ],
    );
    assert!(
        stdout.contains("5003 rows") && stdout.contains("string keys of `user_id`"),
        "{stdout}"
    );
    let table = Read::table(&at.join("f/users.rows"));
    assert_eq!(table.header.rows, 5003);
    for id in [0_i64, 1, 777, 5002] {
        let key = format!("user-{id}");
        assert_eq!(table.float(key.as_bytes(), "score"), id as f32 / 2.0, "{key}");
        let vector = table.column(key.as_bytes(), "vector").unwrap();
        assert_eq!(vector[4..8], (id as f32 * 10.0 + 1.0).to_le_bytes());
        assert_eq!(
            table.column(key.as_bytes(), "clicks").unwrap(),
            (id as i32).to_le_bytes()
        );
    }
    for stranger in ["user-5003", "", "user-"] {
        assert!(table.column(stranger.as_bytes(), "score").is_none(), "{stranger}");
    }
    assert!(!at.join("f/.users.import").exists(), "nothing is left of the import");
    let inspected = succeed(at, &["inspect", "--verify", "f"]);
    assert!(inspected.contains("every row and block matches"), "{inspected}");
    assert!(inspected.contains(" in memory; keys of at most "), "{inspected}");

    assert!(fail(at, &["export-table", "f/users.rows", "--to", "f/users.rows"]).contains("--to f/users.rows"));
    succeed(at, &["export-table", "f/users.rows", "--to", "back.parquet"]);
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.runtime/venv/bin/python");
    assert!(
        python.exists(),
        "{} is missing: run `scripts/setup python`",
        python.display()
    );
    let script = "
import pyarrow.parquet as pq
a = pq.read_table('users.parquet').to_pandas() if False else pq.read_table('users.parquet')
b = pq.read_table('back.parquet')
assert b.num_rows == 5003, b
assert str(b.schema.field('vector').type).startswith('fixed_size_list'), b.schema
want = {k: (s, c, v) for k, s, c, v in zip(*(a[n].to_pylist() for n in ('user_id', 'score', 'clicks', 'vector')))}
have = {k: (s, c, v) for k, s, c, v in zip(*(b[n].to_pylist() for n in ('user_id', 'score', 'clicks', 'vector')))}
assert want == have
print('same')
";
    let output = Command::new(python)
        .current_dir(at)
        .args(["-c", script])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout == b"same\n", "{stderr}");
}

#[test]
fn integers_in_any_order_and_uuids_are_keys() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let ids = [i64::MAX, -5, 0, 1 << 40];
    let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0, 4.0]));
    write_parquet(
        &at.join("ids.parquet"),
        vec![("id", Arc::new(Int64Array::from(ids.to_vec()))), ("v", values)],
    );
    succeed(
        at,
        &[
            "import-table",
            "ids.parquet",
            "--key",
            "id",
            "--name",
            "ids",
            "--out",
            "f",
            "--as",
            "*=FP32",
        ],
    );
    let table = Read::table(&at.join("f/ids.rows"));
    for (id, value) in ids.into_iter().zip([1.0, 2.0, 3.0, 4.0]) {
        assert_eq!(table.float(&id.to_le_bytes(), "v"), value);
    }
    assert!(table.column(&1_i64.to_le_bytes(), "v").is_none());

    let uuid = "6f1c0d3e-2b4a-4c5d-8e6f-708192a3b4c5";
    fs::write(at.join("u.csv"), format!("id,v\n{uuid},1.5\nno-uuid,2.5\n")).unwrap();
    let stdout = succeed(
        at,
        &[
            "import-table",
            "u.csv",
            "--key",
            "id",
            "--key-type",
            "uuid",
            "--name",
            "u",
            "--out",
            "f",
            "--as",
            "v=FP32",
            "--allow-bad-rows",
            "1",
        ],
    );
    assert!(stdout.contains("1 bad rows written to f/u.bad.jsonl"), "{stdout}");
    let bad = fs::read_to_string(at.join("f/u.bad.jsonl")).unwrap();
    assert!(
        bad.contains("\"row\":2") && bad.contains("u.csv") && bad.contains("not a UUID"),
        "{bad}"
    );
    let table = Read::table(&at.join("f/u.rows"));
    assert_eq!(table.float(&KeyKind::Uuid.of_text(uuid).unwrap(), "v"), 1.5);
}

#[test]
fn nulls_and_duplicates_follow_the_rule_or_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("a.csv"), "k,x,y\na,1,1\nb,,2\nc,3,\n").unwrap();
    fs::write(at.join("b.csv"), "k,x,y\nd,4,4\na,5,5\n").unwrap();
    let import = |more: &[&str]| {
        let mut args = vec![
            "import-table",
            "a.csv",
            "b.csv",
            "--key",
            "k",
            "--name",
            "t",
            "--out",
            "f",
            "--as",
            "*=FP32",
        ];
        args.extend_from_slice(&["--replace", "--restart"]);
        args.extend_from_slice(more);
        run(at, &args)
    };
    let stderr = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = stderr(&import(&[]));
    assert!(
        refused.contains("a.csv: row 2: column `x` is null") && refused.contains("--nulls zero"),
        "{refused}"
    );
    let refused = stderr(&import(&["--nulls", "zero"]));
    for word in [
        "duplicate key \"a\"",
        "row 1 of a.csv",
        "row 2 of b.csv",
        "--duplicates",
    ] {
        assert!(refused.contains(word), "{refused}");
    }
    for (rule, value) in [("first", 1.0), ("last", 5.0)] {
        let output = import(&["--nulls", "-1", "--duplicates", rule]);
        assert!(output.status.success(), "{}", stderr(&output));
        let table = Read::table(&at.join("f/t.rows"));
        assert_eq!(
            (table.header.rows, table.float(b"a", "x"), table.float(b"b", "x")),
            (4, value, -1.0)
        );
    }
    let output = import(&["--nulls", "aside", "--duplicates", "first", "--allow-bad-rows", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = Read::table(&at.join("f/t.rows"));
    assert_eq!(table.header.rows, 2);
    let bad = fs::read_to_string(at.join("f/t.bad.jsonl")).unwrap();
    assert_eq!(bad.lines().count(), 2, "{bad}");
    let refused = stderr(&import(&["--nulls", "aside", "--max-bad-rows", "1"]));
    assert!(refused.contains("--max-bad-rows"), "{refused}");
    let nan = import(&["--nulls", "nan", "--duplicates", "first"]);
    assert!(nan.status.success() && Read::table(&at.join("f/t.rows")).float(b"c", "y").is_nan());
}

#[test]
fn columns_are_gathered_hashed_and_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(
        at.join("t.csv"),
        "id,a,b,city\n007,1,2,Rome\n008,3,4,Oslo\n009,5,x,Oslo\n010,6\n",
    )
    .unwrap();
    let base = ["import-table", "t.csv", "--key", "id", "--name", "t", "--out", "f"];
    fn with<'a>(base: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
        [base, more].concat()
    }
    for (more, words) in [
        (&[][..], &["t.csv", "`b`", "row 3 has `x`", "--as b="][..]),
        (&["--columns", "a,zip"], &["--columns", "`zip`", "city"]),
        (&["--columns", "a", "--as", "c=FP32"], &["--as c=FP32"]),
        (&["--vector", "v=a,nowhere"], &["--vector", "`nowhere`"]),
    ] {
        let refused = fail(at, &with(&base, more));
        assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
    }
    let stdout = succeed(
        at,
        &with(
            &base,
            &[
                "--columns",
                "city",
                "--vector",
                "v=a,b",
                "--as",
                "v=FP32",
                "--hash",
                "city=1000",
                "--hash",
                "b=5",
                "--allow-bad-rows",
                "1",
            ],
        ),
    );
    assert!(
        stdout.contains("column v FP32 [2]") && stdout.contains("1 bad rows"),
        "{stdout}"
    );
    let table = Read::table(&at.join("f/t.rows"));
    assert_eq!(table.header.rows, 3);
    let city = |key: &[u8]| i64::from_le_bytes(table.column(key, "city").unwrap().try_into().unwrap());
    assert!(city(b"008") == city(b"009") && city(b"007") != city(b"008") && city(b"007") < 1000);
    assert_eq!(table.column(b"007", "v").unwrap()[..4], 1_f32.to_le_bytes());
}

/// A folder of parts as Spark writes it, read by one process, by three, and by one that is stopped repeatedly: the same
/// table.
#[test]
#[allow(clippy::too_many_lines, reason = "several ways to read one folder")]
fn however_it_is_read_the_table_is_the_same() {
    use tierlab_models::ModelsError;
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("parts")).unwrap();
    for part in 0..70 {
        let rows: String = (0..200)
            .map(|i| format!("key-{},{i}.5\n", (i * 70 + part) * 31 % 14_009))
            .collect();
        fs::write(at.join(format!("parts/part-{part:05}.csv")), format!("k,x\n{rows}")).unwrap();
    }
    fs::write(at.join("parts/_SUCCESS"), "").unwrap();
    let base = [
        "import-table",
        "parts",
        "--key",
        "k",
        "--name",
        "t",
        "--duplicates",
        "last",
        "--out",
    ];
    let with = |out: &'static str, more: &[&'static str]| [&base[..], &[out], more].concat();
    let log = succeed(at, &with("whole", &[]));
    assert!(log.contains("_SUCCESS") && log.contains("of 32 bytes"), "{log}");
    let whole = fs::read(at.join("whole/t.rows")).unwrap();
    for part in ["2/3", "1/3"] {
        succeed(at, &with("three", &["--part", part]));
    }
    let early = fail(at, &with("three", &["--part", "1/3", "--finish"]));
    assert!(early.contains("part 3 of 3 is not read yet"), "{early}");
    let other = fail(at, &with("three", &["--part", "1/2"]));
    assert!(other.contains("another number of parts"), "{other}");
    // The second time nothing is left to read, and the table's rows were read by others: no time or rate is of all rows.
    for _ in 0..2 {
        let read = succeed(at, &with("three", &["--part", "3/3"]));
        assert!(read.contains("rows read; --finish"), "{read}");
    }
    let written = succeed(at, &with("three", &["--part", "1/3", "--finish"]));
    assert!(
        written.contains("(read 0.0, write ") && !written.contains("rows/s"),
        "{written}"
    );
    assert!(fs::read(at.join("three/t.rows")).unwrap() == whole);

    // Stopped as soon as the journal has another line, until it is done.
    let request = |out: &str| tierlab_models::tables::import::TableRequest {
        inputs: vec![at.join("parts").display().to_string()],
        out: at.join(out),
        columns: tierlab_models::tables::import::ColumnRequest {
            name: "t".into(),
            key: "k".into(),
            key_kind: None,
            max_key_bytes: 256,
            only: vec![],
            vectors: vec![],
            types: vec![],
            hashed: vec![],
            nulls: tierlab_models::tables::import::NullRule::Refuse,
            duplicates: tierlab_models::tables::import::DuplicateRule::Last,
        },
        csv: tierlab_models::tables::import::CsvOptions::default(),
        memory_mib: 64,
        max_bad_rows: 0,
        allow_bad_rows: 0,
        part: None,
        finish: false,
        restart: false,
        replace: false,
    };
    let journal = at.join("stopped/.t.import/part-0001-of-0001/journal.jsonl");
    let lines = || fs::read(&journal).map_or(0, |text| text.iter().filter(|&&byte| byte == b'\n').count());
    let mut stops = 0;
    loop {
        let stop = tierlab_models::stop::Stop::default();
        let before = lines();
        let ended = std::sync::atomic::AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                while lines() <= before && !ended.load(std::sync::atomic::Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                stop.stop();
            });
            let result = tierlab_models::tables::import::import_table(&request("stopped"), &stop);
            ended.store(true, std::sync::atomic::Ordering::SeqCst);
            result
        });
        match result {
            Ok(_) => break,
            Err(ModelsError::Interrupted) => stops += 1,
            Err(e) => panic!("{e}"),
        }
        assert!(stops < 50, "it does not come to an end");
    }
    assert!(stops > 0, "it was never stopped");
    assert!(fs::read(at.join("stopped/t.rows")).unwrap() == whole);
}

#[test]
fn damaged_inputs_are_named_and_leave_no_table() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    users(&at.join("good.parquet"), 3000);
    let good = fs::read(at.join("good.parquet")).unwrap();
    for cut in [0, 3, 100, good.len() / 2, good.len() - 1] {
        fs::write(at.join("bad.parquet"), &good[..cut]).unwrap();
        let refused = fail(
            at,
            &[
                "import-table",
                "bad.parquet",
                "--key",
                "user_id",
                "--name",
                "t",
                "--out",
                "f",
            ],
        );
        assert!(refused.contains("bad.parquet"), "{cut}: {refused}");
    }
    for at_byte in (8..good.len()).step_by(good.len() / 40) {
        let mut bytes = good.clone();
        bytes[at_byte] ^= 0x55;
        fs::write(at.join("bad.parquet"), &bytes).unwrap();
        let args = [
            "import-table",
            "bad.parquet",
            "--key",
            "user_id",
            "--name",
            "t",
            "--out",
            "f",
            "--restart",
            "--replace",
        ];
        let output = run(at, &[&args[..], &["--duplicates", "first", "--nulls", "zero"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        // Parquet has no checksums by default, so some damage gives another value.
        assert!(matches!(output.status.code(), Some(0..=3)), "byte {at_byte}: {stderr}");
        assert!(!stderr.contains("panicked"), "byte {at_byte}: {stderr}");
        assert!(
            output.status.success() || stderr.contains("bad.parquet") || stderr.contains("t.rows"),
            "{stderr}"
        );
    }
    let refused = fail(
        at,
        &[
            "import-table",
            "nowhere.parquet",
            "--key",
            "k",
            "--name",
            "t",
            "--out",
            "f",
            "--replace",
        ],
    );
    assert!(refused.contains("nowhere.parquet"), "{refused}");
}

#[test]
fn placeholders_of_tables_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (file, text, kind) in [
        (
            "bad.parquet",
            "version https://git-lfs.github.com/spec/v1\n",
            "git-lfs pointer",
        ),
        (
            "bad.csv",
            "version https://git-lfs.github.com/spec/v1\n",
            "git-lfs pointer",
        ),
        ("bad.csv", "<!DOCTYPE html>\n<html>sign in</html>\n", "web page"),
    ] {
        fs::write(at.join(file), text).unwrap();
        let refused = fail(at, &["import-table", file, "--key", "k", "--name", "t", "--out", "f"]);
        assert!(refused.contains(kind), "{refused}");
    }
}

#[test]
fn publish_names_what_it_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir_all(at.join("f")).unwrap();
    fs::create_dir_all(at.join("tier")).unwrap();
    fs::write(
        at.join("nvme.toml"),
        format!("kind = \"nvme\"\nroot = \"{}\"\n", at.join("tier").display()),
    )
    .unwrap();
    users(&at.join("f/users.parquet"), 10);
    let publish = ["publish", "--features", "f", "--to", "nvme.toml"];
    let refused = fail(at, &publish);
    assert!(
        refused.contains("import-table f/users.parquet --key COLUMN --name NAME"),
        "{refused}"
    );
    succeed(
        at,
        &[
            "import-table",
            "f/users.parquet",
            "--key",
            "user_id",
            "--name",
            "users",
            "--out",
            "f",
        ],
    );
    // The second time nothing is left to put.
    for _ in 0..2 {
        let output = run(at, &publish);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && stderr.contains("left out: f/users.parquet"),
            "{stderr}"
        );
    }
    assert!(fs::read(at.join("tier/features/users.rows")).unwrap() == fs::read(at.join("f/users.rows")).unwrap());
}
