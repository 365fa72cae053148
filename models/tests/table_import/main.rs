//! `import-table` and `export-table`, the real binary with real files: rows, keys, nulls, duplicates and damage, for
//! every way of reading.

mod declared;
mod edge_cases;
mod lakes;
mod stores;
mod tables;
mod text;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tierlab_formats::table::{KeyIndex, TableHeader};

fn run(at: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-models"));
    command
        .current_dir(at)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn succeed(at: &Path, args: &[&str]) -> String {
    let output = run(at, args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn fail(at: &Path, args: &[&str]) -> String {
    let output = run(at, args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {stderr}");
    stderr
}

/// Table as a reader sees it.
struct Read {
    header: TableHeader,
    index: KeyIndex,
    file: Vec<u8>,
}

impl Read {
    fn table(path: &Path) -> Self {
        let file = fs::read(path).unwrap();
        let header = TableHeader::decode(&file, file.len() as u64).unwrap();
        let range = header.index_range().unwrap();
        let index = KeyIndex::decode(&file[range.start as usize..range.end as usize], header.rows).unwrap();
        Self { header, index, file }
    }

    /// Returns the bytes of a column in the row of a key; `None` if the key is missing.
    fn column(&self, key: &[u8], column: &str) -> Option<&[u8]> {
        let row = self.index.row(key)?.cast_signed();
        let range = self.header.row_range(row).unwrap();
        let row_bytes = &self.file[range.start as usize..range.end as usize];
        self.header.check_row(row, row_bytes).unwrap();
        let found = self.header.schema.key.as_ref().unwrap().get(row_bytes).unwrap();
        if found != key {
            return None;
        }
        let column = self.header.schema.column(column).unwrap();
        let at = column.offset as usize;
        Some(&row_bytes[at..at + column.byte_len().unwrap()])
    }

    fn float(&self, key: &[u8], column: &str) -> f32 {
        f32::from_le_bytes(self.column(key, column).unwrap().try_into().unwrap())
    }
}
