//! Cold starts as a table and as `cold_starts.csv`. In: a run. Out: text. Medians, since few are measured of each.

use crate::style::STYLE;
use comfy_table::{ContentArrangement, Table};
use tierlab_analysis::record::{ColdStart, ColdWay, PageCache, Run};

/// Those of one tier and way.
fn groups(run: &Run) -> Vec<(&str, ColdWay, PageCache, Vec<&ColdStart>)> {
    let mut groups: Vec<(&str, ColdWay, PageCache, Vec<&ColdStart>)> = Vec::new();
    for start in &run.cold_starts {
        let known = groups
            .iter_mut()
            .find(|(tier, way, pages, _)| (*tier, *way, *pages) == (&start.tier, start.way, start.page_cache));
        match known {
            Some((.., starts)) => starts.push(start),
            None => groups.push((&start.tier, start.way, start.page_cache, vec![start])),
        }
    }
    groups
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => values[middle - 1].midpoint(values[middle]),
        _ => values[middle],
    }
}

/// The table; nothing where no cold start was measured.
pub(crate) fn text(run: &Run) -> String {
    let Some(first) = run.cold_starts.first() else {
        return String::new();
    };
    let mut table = Table::new();
    let stages: Vec<&str> = first.stages_s.iter().map(|(stage, _)| stage.as_str()).collect();
    let mut header = vec!["tier", "by", "page cache", "n", "ready ms"];
    header.extend(&stages);
    header.extend(["first reply ms", "in all ms"]);
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    for (tier, way, pages, starts) in groups(run) {
        let millis = |of: &dyn Fn(&ColdStart) -> f64| {
            let all = starts.iter().map(|&start| of(start)).collect();
            format!("{:.1}", median(all) * 1e3)
        };
        let mut row = vec![
            tier.to_owned(),
            way.to_string(),
            pages.to_string(),
            starts.len().to_string(),
        ];
        row.push(millis(&|start| start.ready_s));
        row.extend((0..stages.len()).map(|stage| millis(&|start| start.stages_s[stage].1)));
        row.push(millis(&|start| start.first_reply_s));
        row.push(millis(&|start| start.ready_s + start.first_reply_s));
        table.add_row(row);
    }
    format!(
        "cold starts, medians\n{table}\nready: from the call of load, or from the start of the server's process; the stages are \
         the server's own.\n\n"
    )
}

/// `cold_starts.csv`: one row for each.
#[must_use]
pub fn csv(run: &Run) -> String {
    let mut text = String::from("tier,way,page_cache,repeat,ready_s,first_reply_s");
    for (stage, _) in run.cold_starts.first().iter().flat_map(|start| &start.stages_s) {
        text += &format!(",{stage}_s");
    }
    text.push('\n');
    for start in &run.cold_starts {
        text += &format!(
            "{},{},{},{},{},{}",
            start.tier, start.way, start.page_cache, start.index, start.ready_s, start.first_reply_s
        );
        for (_, seconds) in &start.stages_s {
            text += &format!(",{seconds}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }
}
