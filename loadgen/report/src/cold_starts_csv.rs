//! `cold_starts.csv`. In: a run. Out: one row for each cold start.

use tierlab_analysis::record::Run;

/// `cold_starts.csv`: one row for each.
#[must_use]
pub fn cold_starts_csv(run: &Run) -> String {
    let mut text = String::from("tier,way,page_cache,repeat,ready_s,first_reply_s");
    for (stage, _) in run.cold_starts.first().iter().flat_map(|start| &start.stages_s) {
        text += &format!(",{stage}_s");
    }
    text += ",servers,jitter_s,earliest_reply_s,tier_bytes\n";
    for start in &run.cold_starts {
        text += &format!(
            "{},{},{},{},{},{}",
            start.tier, start.way, start.page_cache, start.index, start.ready_s, start.first_reply_s
        );
        for (_, seconds) in &start.stages_s {
            text += &format!(",{seconds}");
        }
        let earliest = start.earliest_reply_s.map(|seconds| seconds.to_string());
        let bytes = start.tier_bytes.map(|bytes| bytes.to_string());
        text += &format!(
            ",{},{},{},{}\n",
            start.servers,
            start.jitter_s,
            earliest.unwrap_or_default(),
            bytes.unwrap_or_default()
        );
    }
    text
}
