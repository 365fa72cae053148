//! `server.toml`, with a tier beside it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::OnceLock;
use tempfile::TempDir;
use tierlab_server::{Config, Sources};

/// One folder for the whole run, in memory where there is such a place.
fn folder() -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = TempDir::new_in("/dev/shm")
            .or_else(|_| TempDir::new())
            .expect("a folder");
        std::fs::create_dir(folder.path().join("tiers")).expect("a folder");
        std::fs::write(folder.path().join("tiers/memory.toml"), "kind = \"memory\"").expect("a file");
        folder
    });
    folder.path().to_path_buf()
}

fuzz_target!(|data: &[u8]| {
    let config = folder().join("server.toml");
    std::fs::write(&config, data).expect("a file");
    let sources = Sources {
        config,
        tier: Some("memory".into()),
        ..Sources::default()
    };
    if let Ok(config) = Config::read(&sources) {
        assert!(!format!("{config:?}").is_empty());
    }
});
