//! `cold_starts.csv`. In: a run. Out: one row for each cold start.

use crate::content::cold_stages::{stage_s, stages};
use crate::csv_cell::text;
use tierlab_analysis::record::{ColdStart, Run};

/// `cold_starts.csv`: one row for each; a stage that a server did not tell is empty.
///
/// # Errors
/// None that a run can cause: the text is made in memory.
pub fn cold_starts_csv(run: &Run) -> Result<Vec<u8>, csv::Error> {
    let stages = stages(&run.cold_starts);
    let before = ["tier", "way", "page_cache", "repeat", "ready_s", "first_reply_s"].map(str::to_owned);
    let after = ["servers", "jitter_s", "earliest_reply_s", "tier_bytes"].map(str::to_owned);
    let of_stages = stages.iter().map(|stage| text(&format!("{stage}_s")));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(before.into_iter().chain(of_stages).chain(after))?;
    for start in &run.cold_starts {
        writer.write_record(row(start, &stages))?;
    }
    writer
        .into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))
}

fn row(start: &ColdStart, stages: &[&str]) -> Vec<String> {
    let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let mut row = vec![
        text(&start.tier),
        start.way.to_string(),
        start.page_cache.to_string(),
        start.index.to_string(),
        start.ready_s.to_string(),
        start.first_reply_s.to_string(),
    ];
    row.extend(stages.iter().map(|stage| optional(stage_s(start, stage))));
    row.extend([
        start.servers.to_string(),
        start.jitter_s.to_string(),
        optional(start.earliest_reply_s),
        start.tier_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
    ]);
    row
}
