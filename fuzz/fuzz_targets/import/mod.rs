//! An import of a folder that the fuzzer wrote.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use tempfile::TempDir;
use tierlab_models::stop::Stop;
use tierlab_models::tables::import::{ColumnRequest, CsvOptions, DuplicateRule, NullRule, TableRequest, import_table};

/// One folder for the whole run, in memory where there is such a place.
fn folder() -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        TempDir::new_in("/dev/shm")
            .or_else(|_| TempDir::new())
            .expect("a folder")
    });
    folder.path().to_path_buf()
}

/// Request for the folder, with the rules that refuse least.
pub(crate) fn request() -> TableRequest {
    TableRequest {
        inputs: vec![folder().join("in").display().to_string()],
        out: folder().join("out"),
        columns: ColumnRequest {
            name: "t".into(),
            key: "id".into(),
            key_kind: None,
            max_key_bytes: 256,
            only: Vec::new(),
            vectors: Vec::new(),
            types: Vec::new(),
            hashed: Vec::new(),
            nulls: NullRule::Value(0.0),
            duplicates: DuplicateRule::Last,
        },
        csv: CsvOptions::default(),
        memory_mib: 32,
        max_bad_rows: 1000,
        allow_bad_rows: 0,
        part: None,
        finish: false,
        restart: true,
        replace: true,
    }
}

/// Writes the files, and imports them.
pub(crate) fn import(files: &[(&str, &[u8])], request: &TableRequest) {
    let from = folder().join("in");
    let _ = fs::remove_dir_all(&from);
    for (name, bytes) in files {
        let path = from.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
    // Refusals are answers.
    let _ = import_table(request, &Stop::never());
}
