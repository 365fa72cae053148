//! Charts of curves. In: lines. Out: a chart over a logarithmic axis.

use tierlab_report::parts::{Axis, Chart, Line, Unit};

/// Chart of lines over a logarithmic axis; `None` if no line has two points, since a single point is no curve.
pub(crate) fn curves(
    title: String,
    (name, unit): (&'static str, Unit),
    y: Axis,
    mut lines: Vec<Line>,
) -> Option<Chart> {
    lines.retain(|line| !line.x.is_empty());
    lines.iter().find(|line| line.x.len() > 1)?;
    let mut places: Vec<f64> = lines.iter().flat_map(|line| line.x.iter().copied()).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    Some(Chart {
        title,
        x: Axis {
            name,
            unit,
            log: true,
            range: (places.first()? / 1.15, places.last()? * 1.15),
        },
        y,
        lines,
        limits: Vec::new(),
        here: None,
        crosses: Vec::new(),
        rows: (places, 0.0),
    })
}
