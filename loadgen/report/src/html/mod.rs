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
use markup::{findings, soft};
use maud::{DOCTYPE, Markup, PreEscaped, html};
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
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let body = html! {
        @if runs.len() > 1 {
            nav {
                ul.plain {
                    @for (index, name) in names.iter().enumerate() { li { a href={ "#run" (index) } { (name) } } }
                }
            }
        }
        @for (index, run) in runs.iter().enumerate() {
            article id={ "run" (index) } { (article(&Report::of(run))) }
            "\n"
        }
    };
    document("tierlab-loadgen", &names.join(", "), &body)
}

/// A whole document around a body: style, chart library and script inside, so that it loads nothing.
#[must_use]
pub fn document(program: &str, title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE) "\n"
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="generator" content={ (program) " " (env!("CARGO_PKG_VERSION")) };
                title { "Tierlab: " (title) } "\n"
                style { "\n" (PreEscaped(LIBRARY[0])) "\n" (PreEscaped(CSS)) }
            }
            "\n"
            body {
                main { "\n" (body) }
                div #tip role="status" {}
                "\n"
                script { "\n/*\n" (PreEscaped(LICENSE)) "\n*/\n" (PreEscaped(LIBRARY[1])) "\n" (PreEscaped(JS)) }
            }
        }
        "\n"
    };
    page.into_string()
}

/// A run from top to bottom: what came out, how it looks, why, what it costs, and what it rests on.
fn article(report: &Report<'_>) -> Markup {
    html! {
        (header(report))
        @if let Some(answer) = &report.answer { (answer::section(answer)) }
        (figures(report))
        (side_tables::sections(&report.side_tables))
        @if !report.gpus.is_empty() { (section("The GPUs", &gpu::section(&report.gpus))) }
        (section("What to beware of", &notes::cautions(&report.cautions)))
        (section("The instrument", &notes::instrument(&report.instrument)))
        (section("Where it was measured", &notes::environment(&report.environment)))
        (section("Prices", &notes::prices(report.price_sources)))
        (section("The plan", &notes::plan(report)))
    }
}

/// The sections over groups of curves.
fn figures(report: &Report<'_>) -> Markup {
    let over_groups = |title, intro, part: Part| over_groups(report, title, &intro, part);
    let nothing = Markup::default;
    let parts = html! { (soft(PARTS)) (stages::legend(&report.parts)) };
    let over_time = html! { (soft(OVER_TIME)) (heat::legend()) };
    html! {
        (over_groups("What came out", outcome(report), |group, _| headline(group)))
        (over_groups("Latency against rate", nothing(), latency::figure))
        (over_groups("From the fastest to the slowest", soft(WHOLE), |group, series| {
            cdf::figure(series, group.common_rps)
        }))
        (over_groups("Where the time goes", parts, |group, series| stages::cards(series, group.common_rps)))
        (over_groups("Latency over time", over_time, |group, series| heat::cards(series, group.common_rps)))
        (over_groups("What it costs", nothing(), costs))
        (over_groups("Every point", soft(EVERY), |group, _| tables::full(group)))
    }
}

/// What a section shows of a group; nothing where there is nothing to show.
type Part = fn(&Group<'_>, &[Series<'_>]) -> Markup;

fn section(title: &str, body: &Markup) -> Markup {
    html! {
        section { h2 { (title) } (body) }
        "\n"
    }
}

/// A section with a part for every group; nothing where no group has any.
fn over_groups(report: &Report<'_>, title: &str, intro: &Markup, part: Part) -> Markup {
    let parts = report
        .groups
        .iter()
        .map(|group| (group, part(group, &Series::of(group))));
    let parts: Vec<(&Group<'_>, Markup)> = parts.filter(|(_, part)| !part.0.is_empty()).collect();
    if parts.is_empty() {
        return Markup::default();
    }
    let body = html! {
        (intro)
        @for (group, part) in &parts { h3 { (group.name) } (part) }
    };
    section(title, &body)
}

/// Where a figure that everybody asks for is missing, the reader is told above the table that lacks it.
fn outcome(report: &Report<'_>) -> Markup {
    html! {
        p.soft {
            "Latency runs from the scheduled send to the last byte of the reply, so that waiting behind a slow request counts. \
             [lo–hi] are 95 % intervals over the repeats; ~ marks a rough figure, which has no upper bound. "
            em { "Valid" } ": the load was offered and answered as planned; "
            em { "saturated" } ": the server could not keep up or failed too many requests; "
            em { "invalid" } ": the instrument or the machine failed."
        }
        @if let Some(missing) = &report.missing_p99 { p.missing { (missing) "." } }
    }
}

fn costs(group: &Group<'_>, series: &[Series<'_>]) -> Markup {
    html! {
        (cost::figure(series))
        (cost::against_rate(series))
        (cost::mix_shares(group))
        (economics::of_group(group, series))
    }
}

const WHOLE: &str = "At the rate that all have in common, or else each at its highest.";
const OVER_TIME: &str = "Each column is a piece of the measured window, each row a band of latency; the darker, \
                         the more of the column's requests. A stall is a column that reaches up, a saturated server a \
                         slope, a cache that fills a slope downwards. At the same rates as above.";
const PARTS: &str = "The mean latency of the fastest half of the requests (p0-50) to the slowest 1 % \
                     (p99-100), cut into the server's own stages and what lies outside it. Every repeat is cut into bands by \
                     itself; [lo–hi] is the 95 % interval of the mean over the repeats. At the rate that all have in common, or \
                     else the highest valid one.";
const EVERY: &str = "n/a: fewer than 10 requests lie beyond it (p99: 1,000 requests, p99.9: 10,000). ~: rough, without an upper bound. Service: actual send to last byte. \
                     Send lag: scheduled to actual send. In flight: counted by the load generator, and held against Little's law from five on.";

fn headline(group: &Group<'_>) -> Markup {
    html! {
        (tables::headline(group))
        (findings(&group.sentences))
        @if !group.reaches.is_empty() { (soft(REACH)) (findings(&group.reaches)) }
    }
}

fn header(report: &Report<'_>) -> Markup {
    let Amount {
        points,
        repeats,
        requests,
    } = report.amount;
    let failed = report.failed_checks;
    html! {
        h1 { (report.name) }
        div.facts {
            span { (report.started_at) }
            span { (points) " points × " (repeats) " repeats, " (thousands(requests)) " requests" }
            span { (report.cpu) ", " (report.cores) " cores" }
            span { "commit " (report.commit) }
        }
        @for sentence in &report.requests { p.soft { (sentence) "." } }
        p {
            @for (word, count) in &report.verdicts { span.badge.(word) { (count) " " (word) } " " }
            @if report.is_interrupted { span.badge.invalid { "stopped early" } " " }
            @if failed > 0 {
                span.badge.invalid { (failed) " failed self-check" @if failed > 1 { "s" } } " "
            }
            @if report.is_emulated { span.badge.emulated { "partly emulated" } }
        }
    }
}
