//! `report.html`: one self-contained page over one run or several.
//!
//! In: summarised runs. Out: the page, with its style, its data, the chart library and a little script inside; it loads
//! nothing, and says everything in tables without the script too. The first screen has the answer; everything else is
//! in collapsed sections. Must not compute statistics of its own.

pub(crate) mod chart;
mod costs;
mod heat;
mod latency;
pub(crate) mod markup;
mod stages;

use crate::content::Report;
use crate::content::group::{self, Group};
use crate::content::highest_rate::EXPLANATION;
use chart::Series;
use markup::{findings, prose, soft, table, with_links};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use tierlab_analysis::record::Run;

/// Chart library uPlot; its origin is in `vendor/uplot/README.md`.
const LIBRARY: [&str; 2] = [
    include_str!("../../vendor/uplot/uPlot.min.css"),
    include_str!("../../vendor/uplot/uPlot.iife.min.js"),
];
const LICENSE: &str = include_str!("../../vendor/uplot/LICENSE");
const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

/// Returns the page of some runs.
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
            article id={ "run" (index) } { (article(&Report::of(run), index)) }
            "\n"
        }
    };
    document("tierlab-loadgen", &names.join(", "), &body)
}

/// Returns a whole document around a body, with style, chart library and script inside, so that it loads nothing.
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

/// Collapsed section: the end of its address, its title and its body.
type RunSection = (&'static str, &'static str, Markup);

/// Page of a run: the first screen, the contents, and the sections.
fn article(report: &Report<'_>, index: usize) -> Markup {
    let addressed = |(name, title, body): RunSection| (format!("run{index}-{name}"), title, body);
    let sections: Vec<markup::Section> = sections(report).into_iter().map(addressed).collect();
    html! {
        (first_screen(report))
        (markup::sections(&sections))
    }
}

/// The answer: a sentence, a table, the leading charts, and the most important remarks.
fn first_screen(report: &Report<'_>) -> Markup {
    let group = report.groups.first();
    html! {
        (header(report))
        @match &report.answer {
            Some(answer) => {
                @let (class, word) = answer.badge();
                div.answer.(class) { p.said { (prose(&answer.sentence)) ". " span.badge.(class) { (word) } } }
                (table(&answer.decision_columns(), "brief ranking"))
            }
            None => {
                p.said { (prose(&report.sentence)) "." }
                (table(&group::table(group), "brief"))
            }
        }
        @if let Some(group) = group { (latency::leading(report.answer.as_ref(), group)) }
        (findings(&report.remarks))
    }
}

/// Sections below the first screen, in reading order; empty ones are left out later.
fn sections(report: &Report<'_>) -> Vec<RunSection> {
    let over = |body: GroupPart| over_groups(report, body);
    let side_tables = report.side_tables.iter().map(markup::side_table);
    let gpus = report.gpus.as_ref();
    let gpus = gpus.map(|gpus| html! { (soft(&gpus.intro)) (table(gpus, "")) });
    let points = |group: &Group<'_>| html! { h3 { (group.name) } (table(&report.points(group), "full")) };
    let points = joined(report.groups.iter().map(points));
    let time = html! { (soft(STAGES_NOTE)) (stages::legend(&report.parts)) };
    let time = with_intro(&time, &over(|group, series| stages::cards(series, group.common_rps)));
    let heat = html! { (soft(HEAT_NOTE)) (heat::legend()) };
    let heat = with_intro(&heat, &over(|group, series| heat::cards(series, group.common_rps)));
    let curves = with_intro(&outcome(report), &over(|group, _| curves(group)));
    vec![
        ("answer", "How the answer was found", answer_details(report)),
        ("curves", "Side by side", curves),
        ("time", "Where the time goes", time),
        ("over-time", "Latency over time", heat),
        ("distributions", "Distributions", over(distributions)),
        ("costs", "Costs", over(costs::of_group)),
        ("beside", "Streams, cold starts, loops and fleets", joined(side_tables)),
        ("gpus", "GPUs", gpus.unwrap_or_default()),
        ("points", "Every point", with_intro(&soft(POINTS_NOTE), &points)),
        ("evidence", "Evidence and environment", evidence(report)),
    ]
}

fn joined(parts: impl Iterator<Item = Markup>) -> Markup {
    html! { @for part in parts { (part) } }
}

/// Whole ranking with its reasons, and its consequences.
fn answer_details(report: &Report<'_>) -> Markup {
    let Some(answer) = &report.answer else {
        return Markup::default();
    };
    html! {
        p { (prose(&answer.terms)) "." }
        (table(&answer.ranking, "brief ranking reasons"))
        @for (title, lines) in answer.lists() {
            @if !lines.is_empty() { h3 { (title) } (findings(lines)) }
        }
    }
}

fn curves(group: &Group<'_>) -> Markup {
    html! {
        (table(&group::table([group]), "brief"))
        (findings(&group.sentences))
        @if !group.slo_rates.is_empty() { (soft(EXPLANATION)) (findings(&group.slo_rates)) }
    }
}

fn distributions(group: &Group<'_>, series: &[Series<'_>]) -> Markup {
    html! {
        (latency::percentiles(group, series))
        (soft(DISTRIBUTION_NOTE))
        (latency::distribution(series, group.common_rps))
    }
}

/// Part of a section about one group of curves; empty if there is nothing to show.
type GroupPart = fn(&Group<'_>, &[Series<'_>]) -> Markup;

/// Part of every group, each below the group's name; nothing if no group has any.
fn over_groups(report: &Report<'_>, part: GroupPart) -> Markup {
    let groups = report.groups.iter();
    let parts = groups.map(|group| (group, part(group, &Series::of(group))));
    html! {
        @for (group, part) in parts {
            @if !part.0.is_empty() { h3 { (group.name) } (part) }
        }
    }
}

/// Explanation before a body; nothing without a body.
fn with_intro(intro: &Markup, body: &Markup) -> Markup {
    html! { @if !body.0.is_empty() { (intro) (body) } }
}

/// Explanation of the figures, with the advice for a missing p99.
fn outcome(report: &Report<'_>) -> Markup {
    html! {
        p.soft {
            "Latency runs from the scheduled send to the last byte of the reply, so that waiting behind a slow request counts. \
             [lo–hi] are 95 % intervals over the repeats; ~ marks a rough figure, which has no upper bound. "
            em { "Valid" } ": the load was offered and answered as planned; "
            em { "saturated" } ": the server could not keep up or failed too many requests; "
            em { "invalid" } ": the instrument or the machine failed."
        }
        @if let Some(missing) = &report.missing_p99 { p.missing { (prose(missing)) "." } }
    }
}

const DISTRIBUTION_NOTE: &str = "At the rate that all have in common, or else each at its highest.";
const HEAT_NOTE: &str = "Each column is a piece of the measured window, each row a band of latency; the darker, \
                         the more of the column's requests. A stall is a column that reaches up, a saturated server a \
                         slope, a cache that fills a slope downwards. At the same rates as above.";
const STAGES_NOTE: &str = "The mean latency of the fastest half of the requests (p0-50) to the slowest 1 % \
                     (p99-100), split into the server's own stages and the time outside it. Every repeat is split into bands separately; \
                     [lo–hi] is the 95 % interval of the mean over the repeats. At the rate that all have in common, or \
                     else the highest valid one.";
const POINTS_NOTE: &str = "n/a: fewer than 10 requests lie beyond it (p99: 1,000 requests, p99.9: 10,000). ~: rough, without an upper bound. Service: actual send to last byte. \
                     Send lag: scheduled to actual send. In flight: counted by the load generator, and checked by Little's law from five on.";

fn header(report: &Report<'_>) -> Markup {
    let run = report.run;
    let failed = run.selfcheck.iter().filter(|check| !check.passed).count();
    html! {
        h1 { (run.name) }
        div.facts {
            span { (run.started_at) }
            span { (report.amount) }
            span { (run.environment.cpu) ", " (run.environment.cores) " cores" }
        }
        p.verdicts {
            @for (word, count) in &report.verdicts { span.badge.(word) { (count) " " (word) } " " }
            @if run.interrupted { span.badge.invalid { "stopped early" } " " }
            @if failed > 0 {
                span.badge.invalid { (failed) " failed self-check" @if failed > 1 { "s" } } " "
            }
            @if report.is_emulated { span.badge.emulated { "partly emulated" } }
        }
    }
}

/// Evidence behind the figures.
fn evidence(report: &Report<'_>) -> Markup {
    html! {
        h3 { "Cautions" }
        @if report.cautions.is_empty() {
            p { "Every point is valid, and nothing shared the machine's cores with the server." }
        }
        (findings(&report.cautions))
        h3 { "The instrument" }
        (findings(&report.instrument.sound))
        @if let Some(checks) = &report.instrument.checks { (table(checks, "")) }
        @if !report.requests.is_empty() { h3 { "The requests" } (findings(&report.requests)) }
        h3 { "The machine" }
        dl { @for (name, value) in &report.environment { dt { (name) } dd { (prose(value)) } } }
        h3 { "Prices" }
        (prices(report))
        h3 { "The plan" }
        details { summary { "As read" } pre tabindex="0" { (report.run.plan_toml) } }
        details {
            summary { "Configuration files by SHA-256" }
            pre tabindex="0" { @for (path, hash) in &report.run.config_sha256 { (hash) "  " (path) "\n" } }
        }
    }
}

/// Prices with their sources.
fn prices(report: &Report<'_>) -> Markup {
    let Some(pricing) = &report.run.pricing else {
        return html! { p { "The plan has no prices." } };
    };
    html! {
        p {
            "$/10k inferences = (instance $/h ÷ 3600 ÷ inferences/s + tier requests per inference × price + bytes per inference × \
             price) × 10,000, at list prices:"
        }
        ul.plain { @for source in &pricing.sources { li { (with_links(source)) } } }
    }
}
