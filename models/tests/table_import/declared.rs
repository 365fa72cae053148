//! Declarations override values. Missing rows have their own exit code. Every place that detects something by values,
//! the declaration that overrides it, and the test, of this file if none is named:
//!
//! - Types of the first CSV rows: `--as`; `a_declared_type_is_that_of_every_row`,
//!   `integers_of_text_are_rounded_only_by_a_declared_type`, `digits_behind_a_zero_are_numbers_in_a_declared_column_only`.
//! - Nulls of CSV: `--null-values`, `--as`; `words_for_nulls_are_named_and_never_hashed_away`.
//! - Booleans, dates and times of CSV: none, because their words are read in one way only;
//!   `truth_values_dates_and_times_of_csv_are_numbers`.
//! - Types of the first samples: `--as`; shards.rs `a_declared_float_is_the_type_of_every_sample`.
//! - Numbers by a file's extension: `--hash`, `--key-type`; shards.rs `a_declared_text_is_one_under_any_extension`.
//! - Types of the first file: `--as`; `a_part_with_finer_numbers_is_not_rounded_unasked`.
//! - Columns of the first file and samples: `--columns`; shards.rs
//!   `a_column_that_the_first_samples_lack_is_not_left_out_in_silence`.
//! - Types of folder names: `--as`; `names_of_folders_are_columns`.
//! - Names and types in the files of Delta and Iceberg: the schema of the table; lakes.rs
//!   `columns_are_those_of_the_current_schema_whatever_their_names_in_the_files`.
//! - Keys that look like numbers: `--key-type`; `a_declared_key_is_text_in_every_row`, and for UUIDs tables.rs
//!   `integers_in_any_order_and_uuids_are_keys`.
//! - Format, separator and header line of text: `--delimiter`, `--header`; text.rs
//!   `declared_text_without_an_ending_becomes_vectors`.

use super::tables::write_parquet;
use super::{Read, fail, run, succeed};
use arrow_array::{
    ArrayRef, Decimal128Array, Float32Array, Float64Array, Int64Array, Time32MillisecondArray, Time64MicrosecondArray,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const BASE: [&str; 7] = ["import-table", "--name", "t", "--out", "f", "--replace", "--key"];

fn import(at: &Path, args: &[&str]) -> Read {
    succeed(at, &[&BASE[..], args, &["--restart"]].concat());
    Read::table(&at.join("f/t.rows"))
}

fn refused(at: &Path, args: &[&str]) -> String {
    fail(at, &[&BASE[..], args, &["--restart"]].concat())
}

/// Returns the bytes of an eight-byte number.
fn bytes(read: &Read, key: i64, column: &str) -> [u8; 8] {
    read.column(&key.to_le_bytes(), column).unwrap().try_into().unwrap()
}

fn long(read: &Read, key: i64, column: &str) -> i64 {
    i64::from_le_bytes(bytes(read, key, column))
}

fn double(read: &Read, key: i64, column: &str) -> f64 {
    f64::from_le_bytes(bytes(read, key, column))
}

fn int(read: &Read, key: i64, column: &str) -> i32 {
    i32::from_le_bytes(read.column(&key.to_le_bytes(), column).unwrap().try_into().unwrap())
}

#[test]
fn words_for_nulls_are_named_and_never_hashed_away() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for word in ["NULL", "NA", "\\N", "None", "-"] {
        fs::write(at.join("a.csv"), format!("id,v\n1,1.5\n2,{word}\n3,878\n")).unwrap();
        let error = refused(at, &["id", "a.csv"]);
        let advice = format!("row 2 has `{word}`");
        assert!(error.contains(&advice) && error.contains("--null-values"), "{error}");
        assert!(!error.contains("--hash"), "{error}");
        let read = import(
            at,
            &["id", "a.csv", "--nulls", "-1", "--null-values", &format!("x,{word}")],
        );
        let found = [1, 2, 3].map(|key| double(&read, key, "v"));
        assert_eq!(found, [1.5, -1.0, 878.0], "{word}");
        // Declared a number, the word makes its row a bad row.
        let declared = [&BASE[..], &["id", "a.csv", "--as", "v=FP64", "--restart"]].concat();
        assert_eq!(run(at, &declared).status.code(), Some(3));
        assert_eq!(Read::table(&at.join("f/t.rows")).header.rows, 2);
    }
    // Only words of a text column are hashed.
    fs::write(at.join("a.csv"), "id,city\n1,Rome\n2,-\n").unwrap();
    assert!(refused(at, &["id", "a.csv"]).contains("--hash city="));
}

#[test]
fn a_declared_type_is_that_of_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let rows = |first: &str, last: &str| {
        let mut text = "id,v,w\n".to_owned();
        for id in 0..10_000 {
            text.push_str(&format!("{id},{first},1\n"));
        }
        text.push_str(&format!("10000,{last},1\n"));
        fs::write(at.join("a.csv"), text).unwrap();
    };
    rows("7", "7.25");
    for types in ["*=FP64", "v=FP64"] {
        let read = import(at, &["id", "a.csv", "--as", types]);
        assert_eq!(
            (read.header.rows, double(&read, 10_000, "v")),
            (10_001, 7.25),
            "{types}"
        );
    }
    rows("", "7.25");
    let error = refused(at, &["id", "a.csv", "--nulls", "zero"]);
    assert!(error.contains("column `v`") && error.contains("--as v=FP32"), "{error}");
    let read = import(
        at,
        &["id", "a.csv", "--nulls", "zero", "--vector", "x=v,w", "--as", "x=FP64"],
    );
    let last = read.column(&10_000_i64.to_le_bytes(), "x").unwrap();
    assert_eq!(last, [7.25_f64.to_le_bytes(), 1_f64.to_le_bytes()].concat());
    rows("7", "18446744073709551615");
    let read = import(at, &["id", "a.csv", "--as", "v=UINT64"]);
    assert_eq!(bytes(&read, 10_000, "v"), u64::MAX.to_le_bytes());
}

#[test]
fn truth_values_dates_and_times_of_csv_are_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let text = "id,b,d,t,big\n1,true,1970-01-03,1970-01-01 00:00:01.5,18446744073709551615\n2,False,1969-12-31,1970-01-01T00:00:00Z,1\n";
    fs::write(at.join("a.csv"), text).unwrap();
    let read = import(at, &["id", "a.csv"]);
    assert_eq!(read.column(&1_i64.to_le_bytes(), "b").unwrap(), [1]);
    assert_eq!((int(&read, 1, "d"), int(&read, 2, "d")), (2, -1));
    assert_eq!((long(&read, 1, "t"), long(&read, 2, "t")), (1_500_000, 0));
    assert_eq!(bytes(&read, 1, "big"), u64::MAX.to_le_bytes());
    // A date key is text.
    assert!(
        import(at, &["d", "a.csv", "--columns", "id"])
            .column(b"1970-01-03", "id")
            .is_some()
    );
}

#[test]
fn integers_of_text_are_rounded_only_by_a_declared_type() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(
        at.join("a.csv"),
        "id,v,w,u\n1,9007199254740993,9007199254740993.0,7.0\n2,0.5,2,3\n",
    )
    .unwrap();
    let whole = ["--as", "w=INT64", "--as", "u=UINT64"];
    let base = [&BASE[..], &["id", "a.csv", "--restart"], &whole].concat();
    assert_eq!(run(at, &base).status.code(), Some(3));
    let bad = fs::read_to_string(at.join("f/t.bad.jsonl")).unwrap();
    assert!(
        bad.contains("FP64 rounds 9007199254740993") && bad.contains("--as v=FP64"),
        "{bad}"
    );
    let read = import(at, &[&["id", "a.csv", "--as", "v=FP64"][..], &whole].concat());
    assert_eq!(double(&read, 1, "v"), 9_007_199_254_740_992.0);
    assert_eq!((long(&read, 1, "w"), long(&read, 1, "u")), (9_007_199_254_740_993, 7));
}

#[test]
fn digits_behind_a_zero_are_numbers_in_a_declared_column_only() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("a.csv"), "id,v\n1,007\n2,8\n").unwrap();
    assert!(refused(at, &["id", "a.csv"]).contains("it is text"));
    let read = import(at, &["id", "a.csv", "--as", "v=INT64"]);
    assert_eq!([1, 2].map(|key| long(&read, key, "v")), [7, 8]);
    // A key has no declared type, and 007 is not the key 7.
    let rows: String = (0..10_000).map(|id| format!("{id},1\n")).collect();
    fs::write(at.join("a.csv"), format!("id,v\n{rows}010001,1\n")).unwrap();
    let declared = [&BASE[..], &["id", "a.csv", "--as", "*=INT64", "--restart"]].concat();
    assert_eq!(run(at, &declared).status.code(), Some(3));
}

#[test]
fn a_declared_key_is_text_in_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let rows: String = (0..10_000).map(|id| format!("{id},1\n")).collect();
    fs::write(at.join("a.csv"), format!("id,v\n{rows}u-1,2.5\n")).unwrap();
    let guessed = [&BASE[..], &["id", "a.csv", "--as", "v=FP64", "--restart"]].concat();
    assert_eq!(run(at, &guessed).status.code(), Some(3));
    // A type by name goes before that of every other column.
    let types = ["--as", "*=FP32", "--as", "v=FP64"];
    let read = import(at, &[&["id", "a.csv", "--key-type", "string"][..], &types].concat());
    assert_eq!(read.header.rows, 10_001);
    let found = [&b"7"[..], b"u-1"].map(|key| read.column(key, "v").unwrap().to_vec());
    assert_eq!(found, [1_f64.to_le_bytes(), 2.5_f64.to_le_bytes()]);
}

#[test]
fn decimals_become_the_float_that_is_declared_and_times_integers() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2));
    let price = Decimal128Array::from(vec![Some(1999), Some(-5)]).with_precision_and_scale(10, 2);
    let whole = Decimal128Array::from(vec![9_007_199_254_740_993, 1]).with_precision_and_scale(20, 0);
    let scaled = Decimal128Array::from(vec![9_007_199_254_740_993_000, -2000]).with_precision_and_scale(38, 3);
    let seconds: ArrayRef = Arc::new(Time32MillisecondArray::from(vec![5, 6]));
    let micros: ArrayRef = Arc::new(Time64MicrosecondArray::from(vec![7, 1 << 40]));
    write_parquet(
        &at.join("a.parquet"),
        vec![
            ("id", ids),
            ("price", Arc::new(price.unwrap())),
            ("whole", Arc::new(whole.unwrap())),
            ("scaled", Arc::new(scaled.unwrap())),
            ("s", seconds),
            ("m", micros),
        ],
    );
    let error = refused(at, &["id", "a.parquet"]);
    assert!(
        error.contains("`price`") && error.contains("--as price=FP64"),
        "{error}"
    );
    let types = ["--as", "price=FP64", "--as", "whole=INT64", "--as", "scaled=INT64"];
    let read = import(at, &[&["id", "a.parquet"][..], &types].concat());
    assert_eq!([0, 1].map(|key| double(&read, key, "price")), [19.99, -0.05]);
    assert_eq!(long(&read, 0, "whole"), 9_007_199_254_740_993);
    assert_eq!(
        [0, 1].map(|key| long(&read, key, "scaled")),
        [9_007_199_254_740_993, -2]
    );
    assert_eq!((int(&read, 1, "s"), long(&read, 1, "m")), (6, 1 << 40));
}

#[test]
fn an_exported_bf16_is_read_back_as_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("a.csv"), "id,v\n1,-21.5\n2,3\n").unwrap();
    import(at, &["id", "a.csv", "--as", "v=BF16"]);
    succeed(at, &["export-table", "f/t.rows", "--to", "b.parquet"]);
    let read = import(at, &["id", "b.parquet"]);
    assert_eq!(read.column(&1_i64.to_le_bytes(), "v").unwrap(), [0xac, 0xc1]);
    assert_eq!(
        double(&import(at, &["id", "b.parquet", "--as", "v=FP64"]), 1, "v"),
        -21.5
    );
}

#[test]
fn every_codec_of_parquet_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let batch = arrow_array::RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from_iter_values(0..9)) as ArrayRef),
        ("v", Arc::new(Float64Array::from(vec![0.5; 9]))),
    ])
    .unwrap();
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ];
    for codec in codecs {
        let file = fs::File::create(at.join("a.parquet")).unwrap();
        let properties = WriterProperties::builder().set_compression(codec).build();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        assert_eq!(double(&import(at, &["id", "a.parquet"]), 8, "v"), 0.5, "{codec}");
    }
}

#[test]
fn a_part_with_finer_numbers_is_not_rounded_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("p")).unwrap();
    let ids = |range| -> ArrayRef { Arc::new(Int64Array::from_iter_values(range)) };
    let narrow: ArrayRef = Arc::new(Float32Array::from(vec![0.5]));
    write_parquet(&at.join("p/0.parquet"), vec![("id", ids(0..1)), ("v", narrow)]);
    let wide: ArrayRef = Arc::new(Float64Array::from(vec![0.1]));
    write_parquet(&at.join("p/1.parquet"), vec![("id", ids(1..2)), ("v", wide)]);
    let error = refused(at, &["id", "p"]);
    assert!(error.contains("1.parquet") && error.contains("--as v=FP64"), "{error}");
    let read = import(at, &["id", "p", "--as", "v=FP64"]);
    assert_eq!([0, 1].map(|key| double(&read, key, "v")), [0.5, 0.1]);
}

#[test]
fn requests_that_contradict_the_columns_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("a.csv"), "id,v,s\n1,1,x\n").unwrap();
    for (more, word) in [
        (
            &["--hash", "id=9", "--hash", "s=9"][..],
            "--hash id=9: the column is the key",
        ),
        (&["--hash", "s=9", "--columns", "v"], "--hash s=9"),
        (
            &["--columns", "v", "--as", "v=FP32", "--as", "v=FP64"],
            "--as v=FP64: it has another type before",
        ),
        (&["--columns", "v", "--vector", "id=v"], "--vector id"),
    ] {
        let error = refused(at, &[&["id", "a.csv"], more].concat());
        assert!(error.contains(word), "{error}");
    }
    let long = |value: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![value])) };
    let fields = ["id", "v", "id"].map(|name| arrow_schema::Field::new(name, arrow_schema::DataType::Int64, false));
    let schema = Arc::new(arrow_schema::Schema::new(fields.to_vec()));
    let batch = arrow_array::RecordBatch::try_new(schema, vec![long(1), long(2), long(3)]).unwrap();
    let file = fs::File::create(at.join("a.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    assert!(refused(at, &["id", "a.parquet"]).contains("two columns are called `id`"));
}

#[test]
fn names_of_folders_are_columns() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (folder, id) in [
        ("day=1970-01-02/shop=7", 1),
        ("day=__HIVE_DEFAULT_PARTITION__/shop=-8", 2),
    ] {
        fs::create_dir_all(at.join("p").join(folder)).unwrap();
        fs::write(at.join("p").join(folder).join("0.csv"), format!("id,v\n{id},1\n")).unwrap();
    }
    let error = refused(at, &["id", "p"]);
    assert!(error.contains("column `day` is null"), "{error}");
    let read = import(at, &["id", "p", "--nulls", "zero"]);
    assert_eq!((int(&read, 1, "day"), int(&read, 2, "day")), (1, 0));
    assert_eq!((long(&read, 1, "shop"), long(&read, 2, "shop")), (7, -8));
    let read = import(at, &["shop", "p", "--columns", "v"]);
    assert!(read.column(&(-8_i64).to_le_bytes(), "v").is_some());
    let read = import(at, &["id", "p", "--columns", "shop", "--as", "shop=FP64"]);
    assert_eq!(double(&read, 2, "shop"), -8.0);
}

#[test]
fn rows_that_are_missing_from_a_table_are_an_exit_code_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("a.csv"), "id,v\n1,1\n2\n").unwrap();
    for (more, code) in [
        (&[][..], 3),
        (&["--allow-bad-rows", "0"], 3),
        (&["--allow-bad-rows", "1"], 0),
    ] {
        let output = run(at, &[&BASE[..], &["id", "a.csv", "--restart"], more].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert_eq!(stderr.contains("--allow-bad-rows 1"), code == 3, "{stderr}");
        assert_eq!(Read::table(&at.join("f/t.rows")).header.rows, 1);
    }
    fs::write(at.join("a.csv"), "id,v\n1,x\n").unwrap();
    let error = refused(at, &["id", "a.csv", "--as", "v=FP32"]);
    let file = error.trim().rsplit_once("every row is bad: see ").unwrap().1;
    assert!(
        fs::read_to_string(at.join(file))
            .unwrap()
            .contains("`x` is not a valid number")
    );
}

#[test]
fn what_a_refusal_advises_goes_on_with_the_same_import() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("a.csv"), "id,v\n1,1\n2,\n1,3\n").unwrap();
    let base = [&BASE[..], &["id", "a.csv"]].concat();
    assert!(fail(at, &base).contains("--nulls"));
    let base = [&base[..], &["--nulls", "7"]].concat();
    assert!(fail(at, &base).contains("--duplicates"));
    succeed(at, &[&base[..], &["--duplicates", "last"]].concat());
    let read = Read::table(&at.join("f/t.rows"));
    assert_eq!((long(&read, 1, "v"), long(&read, 2, "v")), (3, 7));
}
