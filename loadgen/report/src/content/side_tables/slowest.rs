//! Slowest requests with their rows in the files of requests.

use crate::content::table::{Cell, Table, figures, words as text};
use crate::content::words;
use crate::units::latency;
use tierlab_analysis::record::Run;

const INTRO: &str = "The slowest good replies of each step whose requests were kept. A request is the row of that number, from 0, of its \
                     Parquet file in the run's folder";
/// Maximum rows of the table.
const MOST: usize = 20;

/// Table of a run; `None` unless requests were kept.
pub(super) fn table(run: &Run) -> Option<Table> {
    let mut slow = Vec::new();
    for point in &run.points {
        for repeat in &point.repeats {
            let file = repeat.requests_file.as_deref().unwrap_or_default();
            let rows = repeat.slowest.iter();
            slow.extend(rows.map(|one| (&point.factors, repeat.index, file, one)));
        }
    }
    slow.sort_by_key(|(.., one)| std::cmp::Reverse(one.latency_us));
    slow.truncate(MOST);
    let rows = slow.iter().map(|(factors, repeat, file, one)| {
        let stage = one.stage.as_ref();
        let stage = stage.map(|(name, us)| format!("{name} {}", latency(*us as f64)));
        let cells = [
            Some(words::name(run, factors)),
            Some((repeat + 1).to_string()),
            Some(one.request.to_string()),
            Some(latency(one.latency_us as f64)),
            Some(latency(one.lag_us as f64)),
            stage,
            Some((*file).to_owned()),
        ];
        cells.map(Cell::of).into()
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let numbers = ["repeat", "request", "latency", "send lag"].map(figures);
    let columns = std::iter::once(text("point"))
        .chain(numbers)
        .chain(["longest stage", "file"].map(text));
    (!rows.is_empty()).then(|| Table {
        intro: INTRO.to_owned(),
        ..Table::new(columns, rows).known().titled("Slowest requests")
    })
}
