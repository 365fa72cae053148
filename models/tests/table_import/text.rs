//! Text without a header line, and row numbers as keys.

use super::{Read, fail, succeed};
use std::fs;

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
fn declared_text_without_an_ending_becomes_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let text = criteo(20_000);
    fs::write(at.join("day_0"), &text).unwrap();
    let columns = |letter: char, count: u32| (1..=count).map(|at| format!("{letter}{at}")).collect::<Vec<_>>();
    let (integers, categories) = (columns('I', 13), columns('C', 26));
    let header = format!("label,{},{}", integers.join(","), categories.join(","));
    let dense = format!("dense={}", integers.join(","));
    let categorical = format!("categorical={}", categories.join(","));
    let hashed: Vec<String> = categories
        .iter()
        .map(|column| format!("{column}={}", if column == "C3" { 7 } else { 1000 }))
        .collect();
    let flags = "import-table day_0 --key @row --name c --out f --delimiter tab --as dense=FP32";
    let base: Vec<&str> = flags
        .split(' ')
        .chain(["--header", &header, "--vector", &dense, "--vector", &categorical])
        .chain(hashed.iter().flat_map(|one| ["--hash", one]))
        .collect();
    // Values are missing, and no rule handles them.
    let refused = fail(at, &base);
    assert!(refused.contains("null") && refused.contains("row"), "{refused}");
    let with = [&base[..], &["--nulls", "zero", "--restart"]].concat();
    let stdout = succeed(at, &with);
    assert!(stdout.contains("column dense FP32 [13]"), "{stdout}");
    assert!(stdout.contains("column categorical INT64 [26]"), "{stdout}");
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
    assert!(
        refused.contains("--key @row: rows are numbered within one file, not 2"),
        "{refused}"
    );
    succeed(at, &[&base[..], &["a.csv"]].concat());
    let table = Read::table(&at.join("f/t.rows"));
    for row in 0..3_i64 {
        assert_eq!(table.column(&row.to_le_bytes(), "x").unwrap(), (5 + row).to_le_bytes());
    }
}
