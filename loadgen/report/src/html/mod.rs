//! `report.html`: one self-contained page over one run or several.
//!
//! In: summarised runs. Out: the page, with its style, its data, the chart library and a little script inside; it loads
//! nothing, and says everything in tables without the script too. Must not compute statistics of its own.

mod answer;
mod cdf;
pub(crate) mod chart;
mod cost;
mod economics;
mod gpu;
mod heat;
mod latency;
pub(crate) mod markup;
mod notes;
mod series;
mod side_tables;
mod stages;
mod tables;

use crate::content::Report;
use crate::content::group::Group;
use crate::content::reach::REACH;
use crate::content::report::Amount;
use crate::units::thousands;
use markup::escape;
use series::Series;
use tierlab_analysis::record::Run;

/// uPlot, as `vendor/uplot/README.md` says where it comes from.
const LIBRARY: [&str; 2] = [
    include_str!("../../vendor/uplot/uPlot.min.css"),
    include_str!("../../vendor/uplot/uPlot.iife.min.js"),
];
const LICENSE: &str = include_str!("../../vendor/uplot/LICENSE");
const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

/// The page.
#[must_use]
pub fn page(runs: &[&Run]) -> String {
    let names: Vec<String> = runs.iter().map(|run| escape(&run.name)).collect();
    let mut out = String::new();
    if runs.len() > 1 {
        out += "<nav><ul class=\"plain\">";
        for (index, name) in names.iter().enumerate() {
            out += &format!("<li><a href=\"#run{index}\">{name}</a></li>");
        }
        out += "</ul></nav>";
    }
    for (index, run) in runs.iter().enumerate() {
        out += &format!("<article id=\"run{index}\">{}</article>\n", article(&Report::of(run)));
    }
    document("tierlab-loadgen", &names.join(", "), &out)
}

/// A whole document around a body: style, chart library and script inside, so that it loads nothing. `title` and `body` are
/// HTML already.
#[must_use]
pub fn document(program: &str, title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"generator\" content=\"{program} {}\"><title>Tierlab: {title}</title>\n<style>\n{}\n{CSS}</style></head>\n\
         <body><main>\n{body}</main><div id=\"tip\" role=\"status\"></div>\n<script>\n/*\n{LICENSE}\n*/\n{}\n{JS}</script></body></html>\n",
        env!("CARGO_PKG_VERSION"),
        LIBRARY[0],
        LIBRARY[1]
    )
}

/// A run from top to bottom: what came out, how it looks, why, what it costs, and what it rests on.
fn article(report: &Report<'_>) -> String {
    let mut out = header(report);
    out += &report.answer.as_ref().map_or_else(String::new, answer::section);
    let mut section = |title: &str, intro: &str, body: &dyn Fn(&Group<'_>, &[Series<'_>]) -> String| {
        let mut text = String::new();
        for group in &report.groups {
            let part = body(group, &Series::of(group));
            if !part.is_empty() {
                text += &format!("<h3>{}</h3>{part}", escape(&group.name));
            }
        }
        if !text.is_empty() {
            out += &format!("<section><h2>{title}</h2>{intro}{text}</section>\n");
        }
    };
    // Where a figure that everybody asks for is missing, the reader is told above the table that lacks it.
    let missing = report.missing_p99.as_ref().map_or_else(String::new, |missing| {
        format!("<p class=\"missing\">{}.</p>", escape(missing))
    });
    section("What came out", &(OUTCOME.to_owned() + &missing), &|group, _| {
        tables::headline(group) + &sentences(group)
    });
    section("Latency against rate", "", &|group, series| {
        latency::figure(group, series)
    });
    section("From the fastest to the slowest", WHOLE, &|group, series| {
        cdf::figure(series, group.common_rps)
    });
    let parts = PARTS.to_owned() + &stages::legend(&report.parts);
    section("Where the time goes", &parts, &|group, series| {
        stages::cards(series, group.common_rps)
    });
    let over_time = OVER_TIME.to_owned() + &heat::legend();
    section("Latency over time", &over_time, &|group, series| {
        heat::cards(series, group.common_rps)
    });
    section("What it costs", "", &|group, series| {
        cost::figure(series)
            + &cost::against_rate(series)
            + &cost::mix_shares(group)
            + &economics::of_group(group, series)
    });
    section("Every point", EVERY, &|group, _| tables::full(group));
    out += &side_tables::sections(&report.side_tables);
    if !report.gpus.is_empty() {
        out += &format!("<section><h2>The GPUs</h2>{}</section>\n", gpu::section(&report.gpus));
    }
    for (title, body) in [
        ("What to beware of", notes::cautions(&report.cautions)),
        ("The instrument", notes::instrument(&report.instrument)),
        ("Where it was measured", notes::environment(&report.environment)),
        ("Prices", notes::prices(report.price_sources)),
        ("The plan", notes::plan(report)),
    ] {
        out += &format!("<section><h2>{title}</h2>{body}</section>\n");
    }
    out
}

const OUTCOME: &str = "<p class=\"soft\">Latency runs from the scheduled send to the last byte of the reply, so that waiting \
                       behind a slow request counts. [lo–hi] are 95 % intervals over the repeats. <em>Valid</em>: the load \
                       was offered and answered as planned; <em>saturated</em>: the server could not keep up; \
                       <em>invalid</em>: the measurement broke one of its own rules.</p>";
const WHOLE: &str = "<p class=\"soft\">At the rate that all have in common, or else each at its highest.</p>";
const OVER_TIME: &str = "<p class=\"soft\">Each column is a piece of the measured window, each row a band of latency; the darker, \
                         the more of the column's requests. A stall is a column that reaches up, a saturated server a \
                         slope, a cache that fills a slope downwards. At the same rates as above.</p>";
const PARTS: &str = "<p class=\"soft\">The mean latency of the fastest half of the requests (p0-50) to the slowest 1 % \
                     (p99-100), cut into the server's own stages and what lies outside it. Every repeat is cut into bands by \
                     itself; [lo–hi] is the 95 % interval of the mean over the repeats. At the rate that all have in common, or \
                     else the highest valid one.</p>";
const EVERY: &str = "<p class=\"soft\">n/a: too few independent samples (a p95 needs 72, a p99 368, and four times as many and more where requests may depend on each other). Service: actual send to last byte. \
                     Send lag: scheduled to actual send. In flight: counted by the load generator, and held against Little's law from five on.</p>";

fn sentences(group: &Group<'_>) -> String {
    let list = |lines: &[String]| {
        let items: String = lines.iter().map(|line| format!("<li>{}.</li>", escape(line))).collect();
        format!("<ul class=\"findings\">{items}</ul>")
    };
    let mut out = list(&group.sentences);
    if !group.reaches.is_empty() {
        out += &format!("<p class=\"soft\">{}</p>{}", escape(REACH), list(&group.reaches));
    }
    out
}

fn header(report: &Report<'_>) -> String {
    let mut out = format!("<h1>{}</h1><div class=\"facts\">", escape(report.name));
    let Amount {
        points,
        repeats,
        requests,
    } = report.amount;
    for fact in [
        report.started_at.to_owned(),
        format!("{points} points × {repeats} repeats, {} requests", thousands(requests)),
        format!("{}, {} cores", report.cpu, report.cores),
        format!("commit {}", report.commit),
    ] {
        out += &format!("<span>{}</span>", escape(&fact));
    }
    out += "</div>";
    for sentence in &report.requests {
        out += &format!("<p class=\"soft\">{}.</p>", escape(sentence));
    }
    out += "<p>";
    for (word, count) in &report.verdicts {
        out += &format!("<span class=\"badge {word}\">{count} {word}</span> ");
    }
    if report.is_interrupted {
        out += "<span class=\"badge invalid\">stopped early</span> ";
    }
    let failed = report.failed_checks;
    if failed > 0 {
        out += &format!(
            "<span class=\"badge invalid\">{failed} failed self-check{}</span> ",
            if failed == 1 { "" } else { "s" }
        );
    }
    if report.is_emulated {
        out += "<span class=\"badge emulated\">partly emulated</span>";
    }
    out + "</p>"
}
