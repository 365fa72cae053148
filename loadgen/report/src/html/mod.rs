//! `report.html`: one self-contained page over one run or several.
//!
//! In: summarised runs. Out: the page, with its style, its drawings (SVG) and a little script inside; it loads nothing,
//! and says everything without the script too. Must not compute statistics of its own.

mod cdf;
mod chart;
mod cost;
mod economics;
mod gpu;
mod heat;
mod latency;
mod markup;
mod notes;
mod series;
mod stages;
mod tables;

use crate::content::{percentiles, reach, words};
use crate::units::thousands;
use markup::escape;
use series::Series;
use tierlab_analysis::curves::{Curve, common_rate};
use tierlab_analysis::record::Run;

const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

/// The page.
#[must_use]
pub fn page(runs: &[&Run]) -> String {
    let names: Vec<String> = runs.iter().map(|run| escape(&run.name)).collect();
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"generator\" content=\"tierlab-loadgen {}\"><title>Tierlab: {}</title>\n<style>\n{CSS}</style></head>\n\
         <body><main>\n",
        env!("CARGO_PKG_VERSION"),
        names.join(", ")
    );
    if runs.len() > 1 {
        out += "<nav><ul class=\"plain\">";
        for (index, name) in names.iter().enumerate() {
            out += &format!("<li><a href=\"#run{index}\">{name}</a></li>");
        }
        out += "</ul></nav>";
    }
    for (index, run) in runs.iter().enumerate() {
        out += &format!("<article id=\"run{index}\">{}</article>\n", article(run));
    }
    out + &format!("</main><div id=\"tip\" role=\"status\"></div>\n<script>\n{JS}</script></body></html>\n")
}

/// A run from top to bottom: what came out, how it looks, why, what it costs, and what it rests on.
fn article(run: &Run) -> String {
    let groups = words::groups(run);
    let mut out = header(run);
    let mut section = |title: &str, intro: &str, body: &dyn Fn(&[Curve<'_>], &[Series<'_>]) -> String| {
        let mut text = String::new();
        for (name, curves) in &groups {
            let part = body(curves, &Series::of(run, curves));
            if !part.is_empty() {
                text += &format!("<h3>{}</h3>{part}", escape(name));
            }
        }
        if !text.is_empty() {
            out += &format!("<section><h2>{title}</h2>{intro}{text}</section>\n");
        }
    };
    // Where a figure that everybody asks for is missing, the reader is told above the table that lacks it.
    let missing = percentiles::missing_p99(run);
    let missing = missing.map_or_else(String::new, |missing| {
        format!("<p class=\"missing\">{}.</p>", escape(&missing))
    });
    section("What came out", &(OUTCOME.to_owned() + &missing), &|curves, series| {
        tables::headline(run, series, common(curves)) + &sentences(run, curves)
    });
    section("Latency against rate", "", &|_, series| latency::figure(series));
    section("From the fastest to the slowest", WHOLE, &|curves, series| {
        cdf::figure(series, common(curves))
    });
    let parts = PARTS.to_owned() + &stages::legend(run);
    section("Where the time goes", &parts, &|curves, series| {
        stages::cards(series, common(curves))
    });
    let over_time = OVER_TIME.to_owned() + &heat::legend();
    section("Latency over time", &over_time, &|curves, series| {
        heat::cards(series, common(curves))
    });
    section("What it costs", "", &|curves, series| {
        cost::figure(series)
            + &cost::mix_shares(run, curves)
            + &economics::instances(run, series)
            + &economics::break_evens(run, curves, series)
    });
    section("Every point", EVERY, &|_, series| tables::full(run, series));
    let cold = crate::content::cold_starts::text(run);
    if !cold.is_empty() {
        out += &format!(
            "<section><h2>Cold starts</h2><pre>{}</pre></section>\n",
            notes::plain(&cold)
        );
    }
    let gpus = gpu::section(run);
    if !gpus.is_empty() {
        out += &format!("<section><h2>The GPUs</h2>{gpus}</section>\n");
    }
    for (title, body) in [
        ("What to beware of", notes::cautions(run)),
        ("The instrument", notes::instrument(run)),
        ("Where it was measured", notes::environment(run)),
        ("Prices", notes::prices(run)),
        ("The plan", notes::plan(run)),
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

fn common(curves: &[Curve<'_>]) -> Option<f64> {
    common_rate(&curves.iter().collect::<Vec<_>>())
}

fn sentences(run: &Run, curves: &[Curve<'_>]) -> String {
    let mut out = String::from("<ul class=\"findings\">");
    for curve in curves {
        out += &format!("<li>{}.</li>", escape(&words::sentence(run, curve)));
    }
    out += "</ul>";
    let reached = reach::reaches(run, curves);
    if !reached.is_empty() {
        out += &format!("<p class=\"soft\">{}</p><ul class=\"findings\">", escape(reach::REACH));
        for line in reached {
            out += &format!("<li>{}.</li>", escape(&line));
        }
        out += "</ul>";
    }
    out
}

fn header(run: &Run) -> String {
    let verdicts = || {
        run.points
            .iter()
            .filter_map(|point| point.summary.as_ref())
            .map(|summary| &summary.verdict)
    };
    let mut out = format!("<h1>{}</h1><div class=\"facts\">", escape(&run.name));
    let repeats = run.points.iter().map(|point| point.repeats.len()).max().unwrap_or(0);
    for fact in [
        run.started_at.clone(),
        format!(
            "{} points × {repeats} repeats, {} requests",
            run.points.len(),
            thousands(words::requests(run))
        ),
        format!("{}, {} cores", run.environment.cpu, run.environment.cores),
        format!("commit {}", run.environment.git_commit),
    ] {
        out += &format!("<span>{}</span>", escape(&fact));
    }
    out += "</div><p>";
    for word in ["valid", "saturated", "invalid"] {
        let count = verdicts().filter(|verdict| words::verdict(verdict) == word).count();
        if count > 0 {
            out += &format!("<span class=\"badge {word}\">{count} {word}</span> ");
        }
    }
    if run.interrupted {
        out += "<span class=\"badge invalid\">stopped early</span> ";
    }
    let failed = run.selfcheck.iter().filter(|check| !check.passed).count();
    if failed > 0 {
        out += &format!(
            "<span class=\"badge invalid\">{failed} failed self-check{}</span> ",
            if failed == 1 { "" } else { "s" }
        );
    }
    let tiers = words::tiers(run);
    if tiers.iter().any(|tier| words::is_emulated(run, tier)) {
        out += "<span class=\"badge emulated\">partly emulated</span>";
    }
    out + "</p>"
}
