//! Unusual files: parts that differ, streams that were cut off or concatenated, rows of megabytes, times of other
//! units, and footers that lie. Each gives its rows, or an error that names it.

use super::tables::write_parquet;
use super::{Read, fail, succeed};
use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, Int8Array, Int64Array, NullArray, RecordBatch, StringArray,
    TimestampMicrosecondArray, TimestampMillisecondArray,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Repetition, Type as PhysicalType};
use parquet::data_type::{Int64Type, Int96, Int96Type};
use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tierlab_formats::table::KeyHash;

const BASE: [&str; 7] = ["import-table", "--name", "t", "--out", "f", "--restart", "--replace"];

fn import(at: &Path, args: &[&str]) -> Read {
    succeed(at, &[&BASE[..], args].concat());
    Read::table(&at.join("f/t.rows"))
}

fn refused(at: &Path, args: &[&str]) -> String {
    fail(at, &[&BASE[..], args].concat())
}

fn ids(range: std::ops::Range<i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(range))
}

fn long(read: &Read, key: i64, column: &str) -> i64 {
    i64::from_le_bytes(read.column(&key.to_le_bytes(), column).unwrap().try_into().unwrap())
}

#[test]
fn parts_that_differ_are_refused_where_a_row_would_mean_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("p")).unwrap();
    let millis: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(0..5));
    write_parquet(&at.join("p/0.parquet"), vec![("id", ids(0..5)), ("t", millis.clone())]);
    let micros: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(5000..5005));
    write_parquet(&at.join("p/1.parquet"), vec![("id", ids(5..10)), ("t", micros)]);
    let error = refused(at, &["p", "--key", "id"]);
    assert!(
        error.contains("1.parquet") && error.contains("Timestamp(Microsecond)"),
        "{error}"
    );

    write_parquet(
        &at.join("p/1.parquet"),
        vec![("id", ids(5..10)), ("t", millis), ("extra", ids(0..5))],
    );
    let error = refused(at, &["p", "--key", "id"]);
    assert!(error.contains("1.parquet") && error.contains("`extra`"), "{error}");
    assert_eq!(import(at, &["p", "--key", "id", "--columns", "t"]).header.rows, 10);

    // The writer of a part with only nulls gives it no type.
    let nulls: ArrayRef = Arc::new(NullArray::new(5));
    let batch = RecordBatch::try_from_iter_with_nullable([("id", ids(5..10), false), ("t", nulls, true)]).unwrap();
    let file = fs::File::create(at.join("p/1.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    assert!(refused(at, &["p", "--key", "id"]).contains("`t` is null"));
    let read = import(at, &["p", "--key", "id", "--nulls", "7"]);
    assert_eq!((long(&read, 4, "t"), long(&read, 5, "t")), (4, 7));
}

#[test]
fn parts_without_rows_tell_nothing_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("c")).unwrap();
    fs::write(at.join("c/0.csv"), "").unwrap();
    fs::write(at.join("c/1.csv"), "id,v\n").unwrap();
    fs::write(at.join("c/2.csv"), "\u{feff}id,v\r\n3,1.5\r\n\r\n4,\"2.5\"\r\n").unwrap();
    let read = import(at, &["c", "--key", "id"]);
    assert_eq!(read.header.rows, 2);
    assert_eq!(read.column(&4_i64.to_le_bytes(), "v").unwrap(), 2.5_f64.to_le_bytes());
    assert!(refused(at, &["/dev/null", "--key", "id"]).contains("/dev/null: it is a pipe or a device"));
}

#[test]
fn digits_behind_a_zero_do_not_become_another_rows_key() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut text = "id,v\n".to_owned();
    for id in 0..12_000 {
        text.push_str(&format!("{id},1\n"));
    }
    text.push_str("007,2\n00999999,3\n");
    fs::write(at.join("a.csv"), text).unwrap();
    let read = import(
        at,
        &["a.csv", "--key", "id", "--duplicates", "last", "--allow-bad-rows", "2"],
    );
    assert_eq!((read.header.rows, long(&read, 7, "v")), (12_000, 1));
    let bad = fs::read_to_string(at.join("f/t.bad.jsonl")).unwrap();
    assert!(bad.lines().count() == 2 && bad.contains("leading zeros"), "{bad}");
}

#[test]
fn a_quote_that_is_not_closed_does_not_take_the_rest_of_the_file_into_memory() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut text = b"id,v\n1,2\n2,\"3\n".to_vec();
    text.extend(b"3,4\n".repeat(5 << 20));
    fs::write(at.join("a.csv"), text).unwrap();
    let error = refused(at, &["a.csv", "--key", "id"]);
    assert!(
        error.contains("row 2:") && error.contains("a quote not closed"),
        "{error}"
    );
}

#[test]
fn numbers_that_a_float_cannot_hold_are_no_infinities() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 70_000.0, f64::INFINITY]));
    write_parquet(&at.join("a.parquet"), vec![("id", ids(0..3)), ("v", values)]);
    let read = import(
        at,
        &["a.parquet", "--key", "id", "--as", "v=FP16", "--allow-bad-rows", "1"],
    );
    assert_eq!(read.header.rows, 2);
    fs::write(at.join("a.csv"), "id,v\n1,0.5\n2,1e400\n3,inf\n").unwrap();
    assert_eq!(
        import(at, &["a.csv", "--key", "id", "--allow-bad-rows", "1"])
            .header
            .rows,
        2
    );
    let bad = fs::read_to_string(at.join("f/t.bad.jsonl")).unwrap();
    assert!(bad.contains("beyond the largest"), "{bad}");
    import(
        at,
        &["a.parquet", "--key", "id", "--as", "v=FP16", "--allow-bad-rows", "1"],
    );
    let bad = fs::read_to_string(at.join("f/t.bad.jsonl")).unwrap();
    assert!(bad.contains("70000 does not fit FP16"), "{bad}");
}

#[test]
fn numbers_of_a_dictionary_are_the_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let keys = Int8Array::from(vec![Some(1), None, Some(0)]);
    let values: ArrayRef = Arc::new(DictionaryArray::new(keys, ids(10..12)));
    write_parquet(&at.join("a.parquet"), vec![("id", ids(0..3)), ("v", values)]);
    let read = import(at, &["a.parquet", "--key", "id", "--nulls", "7"]);
    let found: Vec<i64> = (0..3).map(|key| long(&read, key, "v")).collect();
    assert_eq!(found, [11, 7, 10]);
}

#[test]
fn streams_that_were_cut_off_or_put_behind_each_other_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let batch = |range| RecordBatch::try_from_iter([("id", ids(range)), ("v", ids(0..10))]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch(0..10).schema()).unwrap();
    writer.write(&batch(0..10)).unwrap();
    let cut = writer.get_ref().clone();
    writer.write(&batch(10..20)).unwrap();
    let whole = writer.into_inner().unwrap();
    fs::write(at.join("a.arrows"), &whole).unwrap();
    assert_eq!(import(at, &["a.arrows", "--key", "id"]).header.rows, 20);
    for (name, bytes, word) in [
        ("cut", cut, "without an end marker"),
        ("two", [&whole[..], &whole[..]].concat(), "bytes follow"),
    ] {
        fs::write(at.join("b.arrows"), bytes).unwrap();
        let error = refused(at, &["b.arrows", "--key", "id"]);
        assert!(error.contains(word) && error.contains("offset"), "{name}: {error}");
    }
}

#[test]
fn times_of_96_bits_are_microseconds_that_do_not_wrap_around() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let field = |name: &str, physical| {
        let field = Type::primitive_type_builder(name, physical);
        Arc::new(field.with_repetition(Repetition::REQUIRED).build().unwrap())
    };
    let fields = vec![field("id", PhysicalType::INT64), field("t", PhysicalType::INT96)];
    let schema = Type::group_type_builder("schema").with_fields(fields).build().unwrap();
    let file = fs::File::create(at.join("a.parquet")).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[1, 2], None, None).unwrap();
    column.close().unwrap();
    // 9999-12-31 and 1970-01-01, each at a time of day of 1,000,000,002,000 ns.
    let time = |day: u32| {
        let nanos = 1_000_000_002_000_u64;
        let mut time = Int96::new();
        time.set_data(nanos as u32, (nanos >> 32) as u32, day);
        time
    };
    let mut column = group.next_column().unwrap().unwrap();
    let times = [time(5_373_484), time(2_440_588)];
    column.typed::<Int96Type>().write_batch(&times, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let read = import(at, &["a.parquet", "--key", "id"]);
    assert_eq!(
        long(&read, 1, "t"),
        (5_373_484 - 2_440_588) * 86_400_000_000 + 1_000_000_002
    );
    assert_eq!(long(&read, 2, "t"), 1_000_000_002);
}

#[test]
fn a_footer_that_says_more_rows_than_there_are_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_parquet(&at.join("a.parquet"), vec![("id", ids(0..10)), ("v", ids(0..10))]);
    let bytes = fs::read(at.join("a.parquet")).unwrap();
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&bytes::Bytes::from(bytes.clone()))
        .unwrap();
    for rows in [9, 11] {
        let mut builder = metadata.clone().into_builder();
        let groups = builder.take_row_groups().into_iter();
        let lie =
            |group: parquet::file::metadata::RowGroupMetaData| group.into_builder().set_num_rows(rows).build().unwrap();
        let lying = builder.set_row_groups(groups.map(lie).collect()).build();
        let mut out = bytes.clone();
        ParquetMetaDataWriter::new(&mut out, &lying).finish().unwrap();
        fs::write(at.join("b.parquet"), out).unwrap();
        let error = refused(at, &["b.parquet", "--key", "id"]);
        assert!(error.contains("b.parquet"), "{rows}: {error}");
    }
}

#[test]
fn a_buffer_that_claims_more_than_any_memory_is_refused_by_its_offset() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let batch = RecordBatch::try_from_iter([("id", ids(0..1000)), ("v", ids(0..1000))]).unwrap();
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
        let mut file = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options.clone()).unwrap();
        file.write(&batch).unwrap();
        let mut stream = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        stream.write(&batch).unwrap();
        for mut bytes in [file.into_inner().unwrap(), stream.into_inner().unwrap()] {
            fs::write(at.join("a.arrow"), &bytes).unwrap();
            assert_eq!(import(at, &["a.arrow", "--key", "id"]).header.rows, 1000);
            let length = 8000_i64.to_le_bytes();
            let offset = bytes.windows(8).position(|window| window == length).unwrap();
            bytes[offset..offset + 8].copy_from_slice(&(1_i64 << 45).to_le_bytes());
            fs::write(at.join("a.arrow"), &bytes).unwrap();
            let error = refused(at, &["a.arrow", "--key", "id"]);
            assert!(
                error.contains("a.arrow") && error.contains("offset") && error.contains("35184372088832"),
                "{error}"
            );
        }
    }
}

#[test]
fn rows_of_megabytes_come_a_few_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // 240 rows of 1 MiB, in one row group that compresses well.
    let width = 1 << 18;
    let file = fs::File::create(at.join("a.parquet")).unwrap();
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_compression(parquet::basic::Compression::SNAPPY)
        .build();
    let batch = |first: i64| {
        let mut vectors = FixedSizeListBuilder::new(Float32Builder::new(), width);
        for row in 0..60 {
            for _ in 0..width {
                vectors.values().append_value((first + row) as f32);
            }
            vectors.append(true);
        }
        RecordBatch::try_from_iter([
            ("id", ids(first..first + 60)),
            ("v", Arc::new(vectors.finish()) as ArrayRef),
        ])
        .unwrap()
    };
    let mut writer = ArrowWriter::try_new(file, batch(0).schema(), Some(properties)).unwrap();
    for first in 0..4 {
        writer.write(&batch(first * 60)).unwrap();
    }
    writer.close().unwrap();
    let output = Command::new("bash")
        .current_dir(at)
        .args([
            "-c",
            "ulimit -d 250000; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_tierlab-models"),
        ])
        .args(BASE)
        .args(["a.parquet", "--key", "id", "--memory-mib", "64"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = Read::table(&at.join("f/t.rows"));
    assert_eq!(read.header.rows, 240);
    let last = read.column(&239_i64.to_le_bytes(), "v").unwrap();
    assert_eq!(last[last.len() - 4..], 239_f32.to_le_bytes());
}

/// Keys whose rows lie in the first of 16 buckets.
fn ids_of_one_bucket(count: usize) -> ArrayRef {
    let own = (0..).filter(|id: &i64| KeyHash::of(&id.to_le_bytes()).bucket(4) == 0);
    Arc::new(Int64Array::from_iter_values(own.take(count)))
}

#[test]
fn a_bucket_much_larger_than_the_others_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let width = 1 << 18;
    let mut vectors = FixedSizeListBuilder::new(Float32Builder::new(), width);
    for row in 0..24 {
        vectors.values().append_slice(&vec![row as f32; width as usize]);
        vectors.append(true);
    }
    let vectors: ArrayRef = Arc::new(vectors.finish());
    let few = vectors.slice(0, 12);
    write_parquet(&at.join("a.parquet"), vec![("id", ids_of_one_bucket(12)), ("v", few)]);
    assert_eq!(
        import(at, &["a.parquet", "--key", "id", "--memory-mib", "64"])
            .header
            .rows,
        12
    );
    write_parquet(
        &at.join("a.parquet"),
        vec![("id", ids_of_one_bucket(24)), ("v", vectors)],
    );
    let error = refused(at, &["a.parquet", "--key", "id", "--memory-mib", "64"]);
    assert!(error.contains("--memory-mib 97"), "{error}");
    let go_on = [
        "import-table",
        "--name",
        "t",
        "--out",
        "f",
        "--replace",
        "a.parquet",
        "--key",
        "id",
        "--memory-mib",
        "97",
    ];
    succeed(at, &go_on);
    assert_eq!(Read::table(&at.join("f/t.rows")).header.rows, 24);
}

#[test]
fn buckets_are_as_many_as_the_rows_of_all_files_need() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("p")).unwrap();
    write_parquet(&at.join("p/0.parquet"), vec![("id", ids(0..100)), ("v", ids(0..100))]);
    // Compresses to almost nothing.
    let same = || -> ArrayRef { Arc::new(Int64Array::from_value(7, 1_000_000)) };
    write_parquet(&at.join("p/1.parquet"), vec![("id", same()), ("v", same())]);
    succeed(
        at,
        &[&BASE[..], &["p", "--key", "id", "--memory-mib", "32", "--part", "1/2"]].concat(),
    );
    let plan: serde_json::Value = serde_json::from_slice(&fs::read(at.join("f/.t.import/plan.json")).unwrap()).unwrap();
    // 48 bytes a row, a MiB a bucket.
    assert_eq!(plan["bucket_bits"], 6);
}

#[test]
fn a_key_column_of_texts_takes_no_numbers_that_look_alike() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("p")).unwrap();
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["1", "01", " 1", "1.0"]));
    write_parquet(&at.join("p/0.parquet"), vec![("id", texts), ("v", ids(0..4))]);
    assert_eq!(import(at, &["p", "--key", "id"]).header.rows, 4);
    write_parquet(&at.join("p/1.parquet"), vec![("id", ids(0..4)), ("v", ids(0..4))]);
    let error = refused(at, &["p", "--key", "id"]);
    assert!(error.contains("1.parquet") && error.contains("Int64"), "{error}");
}

#[test]
fn a_process_with_the_same_id_on_another_host_does_not_disturb() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("a.csv"), "id,v\n1,2\n").unwrap();
    let script = "echo $$; read line; exec \"$0\" \"$@\"";
    let mut process = Command::new("sh")
        .current_dir(at)
        .args(["-c", script, env!("CARGO_BIN_EXE_tierlab-models")])
        .args(["import-table", "a.csv", "--key", "id", "--name", "t", "--out", "f"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut id = String::new();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    stdout.read_line(&mut id).unwrap();
    // The other process is about to write the plan of its own part.
    fs::create_dir_all(at.join("f/.t.import")).unwrap();
    let plan = at.join(format!("f/.t.import/.plan.{}.partial", id.trim()));
    let other = fs::File::create(plan).unwrap();
    other.lock().unwrap();
    process.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(process.wait().unwrap().success());
    assert_eq!(Read::table(&at.join("f/t.rows")).header.rows, 1);
}

#[test]
fn a_list_of_zeros_that_is_longer_than_a_row_is_refused_before_it_is_read() {
    const WRITE: &str = r#"
import numpy, pyarrow as pa, pyarrow.parquet as pq
count = 40_000_000
lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.array(numpy.zeros(count, numpy.float32)))
id = pa.array([1], pa.int64())
pq.write_table(pa.table({"id": id, "v": lists, "w": id}), "a.parquet")
"#;
    let folder = super::lakes::made_by(WRITE);
    let bounded = "ulimit -d 250000; exec \"$0\" \"$@\"";
    let import = |columns: &[&str]| {
        let output = Command::new("bash")
            .current_dir(folder.path())
            .args(["-c", bounded, env!("CARGO_BIN_EXE_tierlab-models")])
            .args(BASE)
            .args(["a.parquet", "--key", "id", "--memory-mib", "64"])
            .args(columns)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = import(&[]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("lists of 40000000 values"), "{stderr}");
    // The message advises this.
    let (code, stderr) = import(&["--columns", "w"]);
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn times_of_96_bits_in_lists_do_not_wrap_around_either() {
    const WRITE: &str = r#"
import datetime, pyarrow as pa, pyarrow.parquet as pq
last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)
times = pa.array([[datetime.datetime(1970, 1, 1), last]], pa.list_(pa.timestamp("us")))
rows = pa.table({"id": pa.array([1], pa.int64()), "t": times})
pq.write_table(rows, "a.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
"#;
    let folder = super::lakes::made_by(WRITE);
    let read = import(folder.path(), &["a.parquet", "--key", "id"]);
    let times = read.column(&1_i64.to_le_bytes(), "t").unwrap();
    assert_eq!(times[..8], [0; 8]);
    assert_eq!(times[8..], 253_402_300_799_999_999_i64.to_le_bytes());
}
