//! Scales and axes of an SVG chart.
//!
//! In: ranges of numbers. Out: places in the drawing, ticks, and the frame around the data. Knows nothing of what is
//! drawn.

use super::markup::escape;
use crate::units::latency;

/// Size of a chart's drawing, in its own units.
pub(super) const WIDTH: f64 = 520.0;
/// See [`WIDTH`].
pub(super) const HEIGHT: f64 = 330.0;
/// Where the data lies: left, top, right, bottom.
pub(super) const AREA: (f64, f64, f64, f64) = (60.0, 30.0, WIDTH - 14.0, HEIGHT - 44.0);

/// Numbers to places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    log: bool,
    start: f64,
    end: f64,
}

impl Scale {
    /// A scale over `from..to` drawn at `start..end`; logarithmic where asked, and possible.
    pub(super) fn new(from: f64, to: f64, log: bool, start: f64, end: f64) -> Self {
        Self {
            from,
            to,
            log: log && from > 0.0,
            start,
            end,
        }
    }

    /// The place of a number.
    pub(super) fn at(&self, value: f64) -> f64 {
        let warp = |value: f64| {
            if self.log {
                value.max(self.from * 1e-3).ln()
            } else {
                value
            }
        };
        let span = warp(self.to) - warp(self.from);
        // A range without width has everything in its middle.
        let share = if span > 0.0 {
            (warp(value) - warp(self.from)) / span
        } else {
            0.5
        };
        self.start + share * (self.end - self.start)
    }
}

/// Round numbers between `from` and `to` for a logarithmic axis: decades, with 2 and 5 where few decades are shown.
pub(super) fn log_ticks(from: f64, to: f64) -> Vec<f64> {
    let steps: &[f64] = match (to / from).log10() {
        decades if decades <= 1.2 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        decades if decades <= 2.6 => &[1.0, 2.0, 5.0],
        decades if decades <= 4.0 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let first = from.log10().floor() as i32;
    (first..=to.log10().ceil() as i32)
        .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
        .filter(|tick| *tick >= from * 0.999 && *tick <= to * 1.001)
        .collect()
}

/// A latency at an axis: `100 µs` rather than `100.0 µs`, since a tick is a round number.
pub(super) fn tick_label(us: f64) -> String {
    let text = latency(us);
    let Some((number, unit)) = text.split_once(' ') else {
        return text;
    };
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number} {unit}")
}

/// Values of which no two lie closer than `gap` on the scale; the first and the last are kept.
pub(super) fn thinned(values: &[f64], scale: &Scale, gap: f64) -> Vec<f64> {
    let mut kept: Vec<f64> = Vec::new();
    for &value in values {
        if kept
            .last()
            .is_none_or(|last| (scale.at(value) - scale.at(*last)).abs() >= gap)
        {
            kept.push(value);
        }
    }
    if let (Some(last), Some(value)) = (kept.last_mut(), values.last()) {
        *last = *value;
    }
    kept
}

/// An axis: where numbers lie, and which are written at it.
pub(super) struct Axis<'a> {
    /// Numbers to places.
    pub(super) scale: &'a Scale,
    /// Numbers with their labels.
    pub(super) ticks: &'a [(f64, String)],
}

/// The frame: title, axes with ticks and their labels, and the name of the horizontal axis.
pub(super) fn frame(title: &str, x_name: &str, x: &Axis<'_>, y: &Axis<'_>) -> String {
    let (left, _, right, bottom) = AREA;
    let mut out = format!("<text class=\"title\" x=\"{left}\" y=\"16\">{}</text>", escape(title));
    for (value, label) in y.ticks {
        let at = y.scale.at(*value);
        out += &format!(
            "<path class=\"grid\" d=\"M{left} {at:.1}H{right}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            left - 7.0,
            at + 4.0,
            escape(label)
        );
    }
    for (value, label) in x.ticks {
        let at = x.scale.at(*value);
        out += &format!(
            "<path class=\"axis\" d=\"M{at:.1} {bottom}v5\"/><text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            bottom + 19.0,
            escape(label)
        );
    }
    out += &format!("<path class=\"axis\" d=\"M{left} {bottom}H{right}\"/>");
    out += &format!(
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        left.midpoint(right),
        bottom + 38.0,
        escape(x_name)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_reach_both_ends_and_stand_a_single_value() {
        let log = Scale::new(10.0, 1_000.0, true, 0.0, 200.0);
        assert!(
            (log.at(10.0)).abs() < 1e-9
                && (log.at(100.0) - 100.0).abs() < 1e-9
                && (log.at(1_000.0) - 200.0).abs() < 1e-9
        );
        assert!((Scale::new(5.0, 5.0, true, 0.0, 200.0).at(5.0) - 100.0).abs() < 1e-9);
        assert!(log.at(0.0).is_finite());
    }

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(
            log_ticks(90.0, 5_100.0),
            [100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0]
        );
        for (from, to) in [(1.0, 1.3), (100.0, 1e4), (1.0, 1e7), (333.0, 444.0)] {
            assert!(log_ticks(from, to).len() <= 9, "{from}..{to}");
        }
    }

    #[test]
    fn close_ticks_are_thinned_and_the_last_kept() {
        let scale = Scale::new(0.0, 100.0, false, 0.0, 100.0);
        assert_eq!(
            thinned(&[0.0, 5.0, 40.0, 95.0, 100.0], &scale, 20.0),
            [0.0, 40.0, 100.0]
        );
    }
}
