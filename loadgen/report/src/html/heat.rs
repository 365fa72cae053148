//! Latency over time: a heat map per series, repeats side by side, each with as many columns as are discernible.
//!
//! In: the series of a group and the rate to show. Out: a card per series. Knows nothing of other figures.
//!
//! One hue of rising strength, readable in grey and by colour-blind readers; bands of latency are the same in all cards
//! of a group.

use super::chart::Series;
use crate::content::labels::trimmed;
use crate::units::{digits3, latency, percent, rate};
use maud::{Markup, html};
use tierlab_analysis::latency::distribution::{LatencyGrid, OverTime, over_time, range};
use tierlab_analysis::record::Point;

const BANDS: usize = 24;
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 170.0;
/// Area of the cells: left, top, right, bottom.
const AREA: (f64, f64, f64, f64) = (52.0, 6.0, WIDTH - 4.0, HEIGHT - 22.0);
/// Distance between two repeats.
const GAP: f64 = 6.0;
/// Minimum width of a column.
const COLUMN: f64 = 2.2;
/// Number of strengths: cells of one strength are one path, which keeps the page small.
const STRENGTHS: usize = 12;

/// Cards of a group; nothing without a valid point.
pub(super) fn cards(series: &[Series<'_>], common: Option<f64>) -> Markup {
    let shown = series.iter().filter_map(|one| Some((one, one.shown_at(common)?)));
    let shown: Vec<(&Series<'_>, &Point)> = shown.collect();
    let all = shown.iter().filter_map(|(_, point)| range(point));
    let Some((low, high)) = all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
        return Markup::default();
    };
    let grid = LatencyGrid {
        from_us: low / 1.05,
        to_us: high * 1.05,
        bands: BANDS,
    };
    html! {
        div.cards { @for (one, point) in &shown { (card(one, point, &grid)) } }
    }
}

fn card(one: &Series<'_>, point: &Point, grid: &LatencyGrid) -> Markup {
    let count = point.repeats.len().max(1);
    let (left, _, right, _) = AREA;
    let width = (right - left - GAP * (count - 1) as f64) / count as f64;
    let repeats = over_time(point, grid, (width / COLUMN) as usize);
    let window_s = point.repeats.first().map_or(0.0, |repeat| repeat.window_s);
    let column_s = repeats.first().map_or(0.0, |repeat| repeat.column_s);
    html! {
        div.card {
            h4 { (one.style.label) }
            p {
                "at " (rate(point.factors.offered_rps)) " requests per second; "
                @if repeats.len() == 1 { "one repeat" } @else { (repeats.len()) " repeats" }
                " of " (rate(window_s)) " s each, a column for " (digits3(column_s)) " s"
            }
            svg.heat viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label="latency over time" {
                (axis(grid))
                @for (index, repeat) in repeats.iter().enumerate() {
                    (columns(index, repeat, left + index as f64 * (width + GAP), width))
                }
            }
        }
    }
}

fn axis(grid: &LatencyGrid) -> Markup {
    let (left, _, right, _) = AREA;
    let ticks = log_ticks(grid.from_us, grid.to_us);
    // Two labels never touch.
    let every = ticks.len().div_ceil(6).max(1);
    html! {
        @for us in ticks.into_iter().step_by(every) {
            @let at = height(grid, us);
            path.grid d={ "M" (left) " " (coordinate(at)) "H" (right) } {}
            text.tick x=(coordinate(left - 5.0)) y=(coordinate(at + 4.0)) text-anchor="end" { (tick_label(us)) }
        }
    }
}

/// Rounds to a tenth of a pixel.
fn coordinate(at: f64) -> String {
    format!("{at:.1}")
}

/// Height of a latency.
fn height(grid: &LatencyGrid, us: f64) -> f64 {
    let (_, top, _, bottom) = AREA;
    bottom - (us / grid.from_us).ln() / (grid.to_us / grid.from_us).ln() * (bottom - top)
}

/// Repeat with its number below it.
fn columns(index: usize, repeat: &OverTime, from: f64, width: f64) -> Markup {
    let (_, top, _, bottom) = AREA;
    let ground = format!("M{from:.1} {top}h{width:.1}V{bottom}h-{width:.1}z");
    html! {
        text.tick x=(coordinate(from + width / 2.0)) y=(coordinate(bottom + 15.0)) text-anchor="middle" {
            @if width > 60.0 { "repeat " }
            (index + 1)
        }
        path.heat-ground d=(ground) {}
        @for (strength, path) in cells(repeat, from, width).iter().enumerate() {
            @if !path.is_empty() {
                path.heat-cell fill-opacity=(format!("{:.2}", strength as f64 / STRENGTHS as f64)) d=(path) {}
            }
        }
    }
}

/// Path of the cells of each strength.
fn cells(repeat: &OverTime, from: f64, width: f64) -> Vec<String> {
    let (_, top, _, bottom) = AREA;
    let cell_w = width / repeat.columns.len().max(1) as f64;
    let cell_h = (bottom - top) / BANDS as f64;
    let mut paths = vec![String::new(); STRENGTHS + 1];
    for (column, shares) in repeat.columns.iter().enumerate() {
        for (band, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let strength = (opacity(*share) * STRENGTHS as f64).round() as usize;
            let (x, y) = (from + column as f64 * cell_w, bottom - band as f64 * cell_h);
            paths[strength.min(STRENGTHS)] += &format!("M{x:.1} {y:.1}h{cell_w:.2}v-{cell_h:.2}h-{cell_w:.2}z");
        }
    }
    paths
}

/// Opacity of a share. The square root lifts the few slow requests above the ground.
fn opacity(share: f64) -> f64 {
    (0.12 + 0.88 * share.sqrt()).min(1.0)
}

/// Round numbers between `from` and `to` for a logarithmic axis: decades, with 2 and 5 if few decades are shown, and equal steps
/// within a decade.
fn log_ticks(from: f64, to: f64) -> Vec<f64> {
    let steps: &[f64] = match (to / from).log10() {
        decades if decades <= 1.0 => return even_ticks(from, to),
        decades if decades <= 2.6 => &[1.0, 2.0, 5.0],
        decades if decades <= 4.0 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let ticks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
    let is_shown = |tick: &f64| *tick >= from * 0.999 && *tick <= to * 1.001;
    ticks.filter(is_shown).collect()
}

/// Two to six round numbers at equal distances.
fn even_ticks(from: f64, to: f64) -> Vec<f64> {
    let least = (to - from) / 5.0;
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|times| times * power);
    let step = steps.into_iter().find(|step| *step >= least).unwrap_or(10.0 * power);
    let steps = (from / step).ceil() as u64..=(to / step).floor() as u64;
    steps.map(|at| at as f64 * step).collect()
}

/// Latency at an axis: `100 µs` rather than `100.0 µs`, because a tick is a round number.
fn tick_label(us: f64) -> String {
    let text = latency(us);
    let Some((number, unit)) = text.split_once(' ') else {
        return text;
    };
    format!("{} {unit}", trimmed(number))
}

/// Legend of the strengths.
pub(super) fn legend() -> Markup {
    html! {
        div.legend.heat-scale {
            span { "share of a column's requests:" }
            @for share in [0.01_f64, 0.05, 0.2, 0.5, 1.0] {
                span {
                    svg viewBox="0 0 18 12" aria-hidden="true" {
                        rect.heat-cell width="18" height="12" fill-opacity=(format!("{:.2}", opacity(share))) {}
                    }
                    (percent(share))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(
            log_ticks(90.0, 5_100.0),
            [100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0]
        );
        for (from, to) in [(1.0, 1.3), (100.0, 1e4), (1.0, 1e7), (333.0, 444.0)] {
            let ticks = log_ticks(from, to);
            assert!((2..=9).contains(&ticks.len()), "{from}..{to}: {ticks:?}");
        }
    }
}
