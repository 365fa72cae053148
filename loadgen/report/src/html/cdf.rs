//! The distribution of the latency, drawn so that its tail can be read: shares of the requests on an axis of nines, latency
//! on a logarithmic one.
//!
//! In: the series of a group and the rate to show. Out: a figure. Knows nothing of other figures.

use super::chart::{Axis, Chart, Figure, Line, Unit};
use super::series::Series;
use maud::Markup;
use tierlab_analysis::latency::distribution::cumulative;

/// Shares that the table has a row for.
const SHARES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

const CAPTION: &str = "Each step to the right leaves out nine tenths of the requests that were left. A curve ends where too few \
                       requests are left to tell.";

/// The figure of a group, each series at the rate that [`Series::shown_at`] chooses; nothing without a valid point.
pub(super) fn figure(series: &[Series<'_>], common: Option<f64>) -> Markup {
    let mut lines = Vec::new();
    for (index, one) in series.iter().enumerate() {
        let Some(point) = one.shown_at(common) else { continue };
        let mut line = Line {
            series: index,
            plain: true,
            ..Line::default()
        };
        for (share, us) in cumulative(point) {
            line.push(nines(share), us.max(1.0));
        }
        if line.x.len() > 1 {
            lines.push(line);
        }
    }
    let values = || lines.iter().flat_map(|line| &line.y).copied();
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(1.0, f64::max));
    let deepest = lines.iter().flat_map(|line| &line.x).copied().fold(1.0, f64::max);
    let chart = Chart {
        title: "latency that a share of the requests does not exceed".to_owned(),
        x: Axis {
            name: "share of the requests",
            unit: Unit::Nines,
            log: false,
            range: (0.0, deepest),
        },
        y: Axis {
            name: "latency",
            unit: Unit::Latency,
            log: true,
            range: (low / 1.1, high * 1.1),
        },
        rows: (
            SHARES
                .iter()
                .map(|share| nines(*share))
                .filter(|nines| *nines <= deepest + 0.01)
                .collect(),
            0.06,
        ),
        lines,
        here: None,
        limits: Vec::new(),
        crosses: Vec::new(),
    };
    Figure::new(series, vec![chart], CAPTION).html()
}

/// How many nines a share has.
fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}
