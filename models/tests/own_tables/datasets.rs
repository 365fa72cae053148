//! Data sets that are made, and the presets that read such.

use super::{Read, fail, succeed};
use arrow_array::{Float64Array, Int32Array, Int64Array};
use std::fs;
use std::path::Path;

#[test]
fn criteos_text_is_made_and_becomes_vectors_by_its_preset() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let make = [
        "dataset", "--like", "criteo", "--rows", "20000", "--seed", "5", "--to", "day_0",
    ];
    let said = succeed(at, &make);
    assert!(said.contains("20000 rows"), "{said}");
    let refused = fail(at, &make);
    assert!(refused.contains("day_0") && refused.contains("--to"), "{refused}");
    let base = [
        "import-table",
        "day_0",
        "--preset",
        "criteo",
        "--name",
        "c",
        "--out",
        "f",
    ];
    // Values are missing, and nobody said what becomes of them.
    let refused = fail(at, &base);
    assert!(refused.contains("null") && refused.contains("row"), "{refused}");
    let with = [&base[..], &["--nulls", "zero", "--hash", "C3=7", "--restart"]].concat();
    let said = succeed(at, &with);
    assert!(said.contains("column dense FP32 [13]"), "{said}");
    assert!(said.contains("column categorical INT64 [26]"), "{said}");
    let table = Read::table(&at.join("f/c.rows"));
    assert_eq!(table.header.rows, 20_000);
    let text = fs::read_to_string(at.join("day_0")).unwrap();
    let mut thirds = std::collections::BTreeMap::new();
    for (row, line) in text.lines().enumerate().step_by(997) {
        let fields: Vec<&str> = line.split('\t').collect();
        let key = (row as i64).to_le_bytes();
        let dense = table.column(&key, "dense").unwrap();
        for (at, value) in dense.chunks_exact(4).enumerate() {
            let value = f32::from_le_bytes(value.try_into().unwrap());
            let wanted: f32 = fields[1 + at].parse().unwrap_or(0.0);
            assert_eq!(value, wanted, "row {row}, I{}", at + 1);
        }
        let categories = table.column(&key, "categorical").unwrap();
        let third = i64::from_le_bytes(categories[16..24].try_into().unwrap());
        assert!((0..7).contains(&third), "{third}");
        assert_eq!(*thirds.entry(fields[16].to_owned()).or_insert(third), third);
        let label = table.column(&key, "label").unwrap();
        assert_eq!(
            i64::from_le_bytes(label.try_into().unwrap()),
            fields[0].parse::<i64>().unwrap()
        );
    }
}

#[test]
fn taxi_trips_are_made_and_read_by_their_row_numbers_in_one_file_only() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (name, rows) in [("a.parquet", "30000"), ("again.parquet", "30000"), ("b.parquet", "10")] {
        succeed(at, &["dataset", "--like", "taxi", "--rows", rows, "--to", name]);
    }
    assert!(fs::read(at.join("a.parquet")).unwrap() == fs::read(at.join("again.parquet")).unwrap());
    let base = [
        "import-table",
        "--key",
        "@row",
        "--name",
        "t",
        "--out",
        "f",
        "--nulls",
        "-1",
    ];
    let columns = [
        "--columns",
        "trip_distance,PULocationID,tpep_pickup_datetime,passenger_count,fare_amount",
    ];
    let refused = fail(at, &[&base[..], &columns, &["a.parquet", "b.parquet"]].concat());
    assert!(refused.contains("@row") && refused.contains("2 files"), "{refused}");
    let refused = fail(at, &[&base[..], &["a.parquet"]].concat());
    assert!(refused.contains("store_and_fwd_flag"), "{refused}");
    succeed(at, &[&base[..], &columns, &["a.parquet"]].concat());
    let table = Read::table(&at.join("f/t.rows"));
    assert_eq!(table.header.rows, 30_000);
    let file = fs::File::open(at.join("a.parquet")).unwrap();
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file);
    let reader = reader.unwrap();
    assert_eq!(reader.schema().fields().len(), 19);
    let (mut row, mut unknown) = (0_i64, 0);
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let miles: &Float64Array = batch
            .column_by_name("trip_distance")
            .unwrap()
            .as_any()
            .downcast_ref()
            .unwrap();
        let zones: &Int32Array = batch
            .column_by_name("PULocationID")
            .unwrap()
            .as_any()
            .downcast_ref()
            .unwrap();
        let people = batch.column_by_name("passenger_count").unwrap();
        let people: &Int64Array = people.as_any().downcast_ref().unwrap();
        for ((miles, zone), people) in miles.iter().zip(zones).zip(people) {
            let key = row.to_le_bytes();
            assert_eq!(
                table.column(&key, "trip_distance").unwrap(),
                miles.unwrap().to_le_bytes()
            );
            assert_eq!(table.column(&key, "PULocationID").unwrap(), zone.unwrap().to_le_bytes());
            let found = table.column(&key, "passenger_count").unwrap();
            assert_eq!(found, people.unwrap_or(-1).to_le_bytes());
            unknown += u32::from(people.is_none());
            row += 1;
        }
    }
    assert!(row == 30_000 && (900..2100).contains(&unknown), "{row} {unknown}");
}

/// Records as Krizhevsky's page describes them.
fn cifar(path: &Path, labels: usize, rows: usize) {
    let record = |row: usize| {
        let pixel = move |at: usize| ((row * 31 + at * 7) % 256) as u8;
        (0..labels)
            .map(move |label| (row + label) as u8)
            .chain((0..3072).map(pixel))
    };
    fs::write(path, (0..rows).flat_map(record).collect::<Vec<u8>>()).unwrap();
}

#[test]
fn cifars_binaries_become_labels_and_images_and_a_cut_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (preset, labels) in [
        ("cifar10", &["label"][..]),
        ("cifar100", &["coarse_label", "fine_label"]),
    ] {
        cifar(&at.join("batch.bin"), labels.len(), 2500);
        let import = [
            "import-table",
            "batch.bin",
            "--preset",
            preset,
            "--name",
            preset,
            "--out",
            "f",
        ];
        succeed(at, &import);
        let table = Read::table(&at.join(format!("f/{preset}.rows")));
        assert_eq!(table.header.rows, 2500);
        for row in [0_usize, 1023, 1024, 2499] {
            let key = (row as i64).to_le_bytes();
            for (number, label) in labels.iter().enumerate() {
                assert_eq!(table.column(&key, label).unwrap(), [(row + number) as u8]);
            }
            let image = table.column(&key, "image").unwrap();
            assert_eq!(
                (image.len(), image[0], image[3071]),
                (3072, (row * 31 % 256) as u8, ((row * 31 + 3071 * 7) % 256) as u8)
            );
        }
        let whole = fs::read(at.join("batch.bin")).unwrap();
        fs::write(at.join("batch.bin"), &whole[..whole.len() - 5]).unwrap();
        let cut = [&import[..], &["--replace", "--restart"]].concat();
        let refused = fail(at, &cut);
        assert!(
            refused.contains("batch.bin") && refused.contains("records"),
            "{refused}"
        );
    }
}
