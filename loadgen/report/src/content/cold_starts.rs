//! Cold starts side by side. In: a run. Out: a table of medians, since few are measured of each.

use tierlab_analysis::record::{ColdStart, ColdWay, PageCache, Run};

/// What the figures are.
pub(crate) const NOTE: &str = "ready: from the call of load, or from the start of the server's process; the stages are \
                               the server's own.";

/// The medians of every tier and way.
pub(crate) struct ColdStarts {
    /// Names of the columns.
    pub(crate) header: Vec<String>,
    /// A row for each tier and way.
    pub(crate) rows: Vec<Vec<String>>,
}

impl ColdStarts {
    /// Of a run; `None` where no cold start was measured.
    pub(crate) fn of(run: &Run) -> Option<Self> {
        let first = run.cold_starts.first()?;
        let stages: Vec<&str> = first.stages_s.iter().map(|(stage, _)| stage.as_str()).collect();
        let mut header = vec!["tier", "by", "page cache", "n", "ready ms"];
        header.extend(&stages);
        header.extend(["first reply ms", "in all ms"]);
        Some(Self {
            header: header.into_iter().map(str::to_owned).collect(),
            rows: groups(run).into_iter().map(|group| row(&group, stages.len())).collect(),
        })
    }
}

fn row(group: &Group<'_>, stages: usize) -> Vec<String> {
    let millis = |of: &dyn Fn(&ColdStart) -> f64| {
        let all = group.starts.iter().map(|&start| of(start)).collect();
        format!("{:.1}", median(all) * 1e3)
    };
    let mut row = vec![
        group.tier.to_owned(),
        group.way.to_string(),
        group.page_cache.to_string(),
        group.starts.len().to_string(),
    ];
    row.push(millis(&|start| start.ready_s));
    row.extend((0..stages).map(|stage| millis(&|start| start.stages_s[stage].1)));
    row.push(millis(&|start| start.first_reply_s));
    row.push(millis(&|start| start.ready_s + start.first_reply_s));
    row
}

/// Those of one tier and way.
struct Group<'a> {
    tier: &'a str,
    way: ColdWay,
    page_cache: PageCache,
    starts: Vec<&'a ColdStart>,
}

fn groups(run: &Run) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for start in &run.cold_starts {
        let is_same = |group: &&mut Group<'_>| {
            (group.tier, group.way, group.page_cache) == (start.tier.as_str(), start.way, start.page_cache)
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.starts.push(start),
            None => groups.push(Group {
                tier: &start.tier,
                way: start.way,
                page_cache: start.page_cache,
                starts: vec![start],
            }),
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
