//! Presets that read the files of public data sets.

use super::{Read, fail, succeed};
use std::fs;
use std::path::Path;

/// Lines of Criteo's text: a label, 13 integers and 26 categories; every third integer and every fifth category is missing.
fn criteo(rows: usize) -> String {
    let line = |row: usize| {
        let label = u8::from(row.is_multiple_of(4)).to_string();
        let integers = (0..13).map(|at| match (row + at) % 3 {
            0 => String::new(),
            _ => (row * 17 % 1000 + at).to_string(),
        });
        let categories = (0..26).map(|at| match (row + at) % 5 {
            0 => String::new(),
            _ => format!("{:08x}", (row % 50 * 0x9e37_79b9 + at) as u32),
        });
        let fields: Vec<String> = std::iter::once(label).chain(integers).chain(categories).collect();
        fields.join("\t") + "\n"
    };
    (0..rows).map(line).collect()
}

#[test]
fn criteos_text_becomes_vectors_by_its_preset() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let text = criteo(20_000);
    fs::write(at.join("day_0"), &text).unwrap();
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
    // Values are missing, and no rule says what they become.
    let refused = fail(at, &base);
    assert!(refused.contains("null") && refused.contains("row"), "{refused}");
    let with = [&base[..], &["--nulls", "zero", "--hash", "C3=7", "--restart"]].concat();
    let said = succeed(at, &with);
    assert!(said.contains("column dense FP32 [13]"), "{said}");
    assert!(said.contains("column categorical INT64 [26]"), "{said}");
    let table = Read::table(&at.join("f/c.rows"));
    assert_eq!(table.header.rows, 20_000);
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
fn row_numbers_are_keys_of_one_file_only() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for name in ["a.csv", "b.csv"] {
        fs::write(at.join(name), "x\n5\n6\n7\n").unwrap();
    }
    let base = ["import-table", "--key", "@row", "--name", "t", "--out", "f"];
    let refused = fail(at, &[&base[..], &["a.csv", "b.csv"]].concat());
    assert!(refused.contains("@row") && refused.contains("2 files"), "{refused}");
    succeed(at, &[&base[..], &["a.csv"]].concat());
    let table = Read::table(&at.join("f/t.rows"));
    for row in 0..3_i64 {
        assert_eq!(table.column(&row.to_le_bytes(), "x").unwrap(), (5 + row).to_le_bytes());
    }
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
