//! The terminal table of a run.
//!
//! In: a summarised run. Out: text of at most 160 columns: the answer where a question was asked, a table per mode, model and
//! batch size, then the legend, a sentence per tier, and what to beware of. Knows nothing of files.

use crate::content::Report;
use crate::content::answer::AnswerText;
use crate::content::figures::{Cell, meets};
use crate::content::group::Group;
use crate::content::point_row::{PointRow, has_goodput};
use crate::content::reach::REACH;
use crate::content::side_tables::SideTable;
use crate::text_style::{STYLE, shown};
use crate::units::{NONE, dollars_spread, latency_interval, percent, rate, thousands};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table};
use tierlab_analysis::record::Run;

const HEADER: [&str; 12] = [
    "tier",
    "cache",
    "offered/s",
    "p50",
    "p95",
    "p99",
    "good/s",
    "goodput/s",
    "hits",
    "errors",
    "$/10k inferences",
    "verdict",
];

/// Place of the goodput among the columns.
const GOODPUT: usize = 7;

const LEGEND: &str = "Latency runs from the scheduled send to the last byte of the reply; [lo–hi] and ± are 95 % intervals; \
                      ~: rough, without an upper bound; n/a: too few requests.\nsaturated: the server could not keep up at this rate or failed \
                      too many requests; invalid: the instrument or the machine failed (reasons below).";

/// The answer of a run, as its table opens with it; `None` where nothing was asked.
#[must_use]
pub fn answer_text(run: &Run) -> Option<String> {
    Report::of(run).answer.as_ref().map(answer).as_deref().map(shown)
}

/// The table of a run, with what it says and what to beware of.
#[must_use]
pub fn table(run: &Run) -> String {
    let report = Report::of(run);
    let mut text = report.answer.as_ref().map_or_else(String::new, answer);
    for sentence in &report.requests {
        text += &format!("{}\n\n", wrapped(&format!("{sentence}."), 0));
    }
    for group in &report.groups {
        text += &format!("{}\n{}\n\n", group.name, grid(group));
    }
    text += &report.side_tables.iter().map(side_table).collect::<String>();
    text += LEGEND;
    text += "\n\n";
    for group in &report.groups {
        text += &list(&group.sentences);
        text += &list(&group.mix_shares);
    }
    if !report.reached.is_empty() {
        text += &format!("\n{REACH}\n{}\n", list(&report.reached));
    }
    let instrument = &report.instrument;
    if instrument.has_noise_floor {
        text += &format!("• {}\n", instrument.noise_floor);
    }
    // Those that prove nothing stand among what to beware of.
    for sentence in instrument.not_refused() {
        text += &format!("• {sentence}\n");
    }
    if let Some(sources) = report.price_sources {
        text += "\nPrices:\n";
        for source in sources {
            text += &format!("  {source}\n");
        }
    }
    if !report.cautions.is_empty() {
        text += "\nBeware:\n";
        for caution in &report.cautions {
            text += &format!("  {caution}\n");
        }
    }
    shown(&text)
}

/// The answer, the ranking, why each variant is where it is, what was left open, and how sure it all is.
fn answer(answer: &AnswerText) -> String {
    let mut table = Table::new();
    let columns = answer.columns.iter().map(|(name, _)| *name);
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(COLUMNS)
        .set_header(["#", "variant", "SLO"].into_iter().chain(columns));
    for row in &answer.rows {
        let figures = row.cells.iter().map(Cell::text);
        let who = [row.rank.clone(), row.tier.labelled(), meets(row.outcome).to_owned()];
        table.add_row(who.into_iter().chain(figures));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    for (index, _) in answer
        .columns
        .iter()
        .enumerate()
        .filter(|(_, (_, is_number))| *is_number)
    {
        if let Some(column) = table.column_mut(3 + index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = format!("{}\n\n{table}\n", wrapped(&format!("{}.", answer.sentence), 0));
    for row in &answer.rows {
        text += &format!(
            "{}\n",
            wrapped(&format!("{}. {}: {}", row.rank, row.tier.name, row.why), 3)
        );
    }
    for (title, lines) in answer.lists() {
        if !lines.is_empty() {
            text += &format!("\n{title}:\n");
        }
        for line in lines {
            text += &format!("{}\n", wrapped(&format!("• {line}."), 2));
        }
    }
    text + "\n"
}

/// Closed loops or journeys.
fn side_table(side: &SideTable) -> String {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(side.columns.iter().map(|(name, _)| name.as_ref()));
    for row in &side.rows {
        table.add_row(row);
    }
    for (index, (_, is_figure)) in side.columns.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 1));
            if *is_figure {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let mut text = format!("{}\n{table}\n{}\n", side.title, wrapped(&format!("{}.", side.intro), 0));
    for note in &side.notes {
        text += &format!("{}\n", wrapped(&format!("• {note}."), 2));
    }
    text + "\n"
}

/// Columns of a terminal that text is written for.
const COLUMNS: u16 = 160;

/// Text over several lines, all but the first moved in.
fn wrapped(text: &str, indent: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > usize::from(COLUMNS) {
            out += &format!("\n{:indent$}", "");
            column = indent;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += length;
    }
    out
}

fn list(lines: &[String]) -> String {
    lines.iter().map(|line| format!("• {line}\n")).collect()
}

fn grid(group: &Group<'_>) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(HEADER);
    for (number, curve) in group.rows.iter().enumerate() {
        if number > 0 {
            table.add_row([""; 12]);
        }
        for (index, point) in curve.points.iter().enumerate() {
            table.add_row(row(point, index == 0));
        }
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    let points = || group.rows.iter().flat_map(|curve| &curve.points);
    if let Some(column) = table.column_mut(GOODPUT).filter(|_| !has_goodput(points())) {
        column.set_constraint(ColumnConstraint::Hidden);
    }
    for index in 2..11 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn row(point: &PointRow<'_>, is_first: bool) -> [String; 12] {
    // A curve is named once: the eye finds the next one by the name.
    let [tier, cache] = if is_first {
        [point.tier.printed.clone(), point.cache.clone()]
    } else {
        [String::new(), String::new()]
    };
    let offered = point.offered.clone();
    let Some(figures) = &point.figures else {
        let none = || NONE.to_owned();
        return [
            tier,
            cache,
            offered,
            none(),
            none(),
            none(),
            none(),
            none(),
            none(),
            none(),
            none(),
            "not summarised".to_owned(),
        ];
    };
    let summary = figures.summary;
    [
        tier,
        cache,
        offered,
        latency_interval(summary.p50_us.as_ref()),
        latency_interval(summary.p95_us.as_ref()),
        latency_interval(summary.p99_us.as_ref()),
        rate(summary.achieved_rps.value),
        figures.goodput(),
        summary.cache_hit_ratio.map_or_else(|| "–".to_owned(), percent),
        thousands(summary.errors),
        dollars_spread(summary.usd_per_10k.as_ref()),
        figures.verdict.to_owned(),
    ]
}
