//! The report on a run that never happened: files, table, page and comparison.

mod synthetic;

use tierlab_loadgen::report;

#[test]
fn the_table_fits_a_terminal_and_says_what_matters() {
    let run = synthetic::run(3, 1.0);
    let table = report::table(&run);
    if let Ok(path) = std::env::var("TIERLAB_TABLE") {
        std::fs::write(path, &table).unwrap();
    }
    let widest = table
        .lines()
        .take_while(|line| !line.starts_with("Prices"))
        .map(|line| line.chars().count())
        .max();
    assert!(widest <= Some(160), "{widest:?} columns");
}

#[test]
fn a_folder_reads_back() {
    let run = synthetic::run(3, 1.0);
    let dir = std::env::var("TIERLAB_RENDER")
        .map(std::path::PathBuf::from)
        .unwrap_or_else(|_| tempfile::tempdir().unwrap().keep());
    report::write(&run, &dir).unwrap();
    report::load(&dir).unwrap();
}
