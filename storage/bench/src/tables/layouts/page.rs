//! What a run is shown as: text, Markdown, CSV and one page of HTML that loads nothing. In: what is kept. Out: text.

use super::kept::Kept;
use super::statements::{Access, Statement, findings};
use crate::units::{bytes_text, digits3, time_text};
use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use tierlab_analysis::record::Interval;
use tierlab_report::document;
use tierlab_report::parts::escape;

const HEADER: [&str; 14] = [
    "layout",
    "stored",
    "objects",
    "open",
    "one p50",
    "one p95",
    "requests",
    "batch p50",
    "requests/row",
    "scan rows/s",
    "of files",
    "bytes/row",
    "decode/row",
    "CPU/row",
];
const NOTE: &str = "stored: all objects, indexes among them. open: until every index or footer was read, which lies in memory from then on. one: \
                    a single entity, in a call of its own, one after another, and its requests; batch: likewise, a call for all of its entities. scan: rows \
                    in order, ± half of the 95 % interval over the repeats, with what each row takes: bytes that the tier moved, time from these bytes to a \
                    checked row, and CPU of the whole process. of files: rows a second over those of a file for each entity in the same repeat. n/a: too few \
                    calls.";

fn row(one: &Statement) -> [String; 14] {
    let time = |us: Option<f64>| us.map_or_else(|| "n/a".to_owned(), time_text);
    let ratio = |of: Option<Interval>| of.map_or_else(String::new, |of| format!("{}x", digits3(of.value)));
    [
        one.layout.to_string(),
        bytes_text(one.stored_bytes),
        one.objects.to_string(),
        time_text(one.open_ms * 1e3),
        time(one.point.p50_us),
        time(one.point.p95_us),
        digits3(one.point.requests_per_sample),
        time(one.batch.p50_us),
        digits3(one.batch.requests_per_sample),
        spread(&one.scan.samples_per_s),
        ratio(one.scan.of_files),
        digits3(one.scan.bytes_per_sample),
        time_text(one.scan.decode_us_per_sample),
        time_text(one.scan.cpu_us_per_sample),
    ]
}

fn spread(interval: &Interval) -> String {
    let half = (interval.hi - interval.lo) / 2.0;
    match interval.value > 0.0 && half > 0.0 {
        true => format!("{} ±{:.0} %", digits3(interval.value), half / interval.value * 100.0),
        false => digits3(interval.value),
    }
}

fn tiers(kept: &Kept) -> Vec<(&str, Vec<&Statement>)> {
    let mut tiers: Vec<(&str, Vec<&Statement>)> = Vec::new();
    for one in &kept.statements {
        match tiers.iter_mut().find(|(tier, _)| *tier == one.tier) {
            Some((_, here)) => here.push(one),
            None => tiers.push((&one.tier, vec![one])),
        }
    }
    tiers
}

fn facts(kept: &Kept) -> Vec<String> {
    let environment = &kept.environment;
    let mut facts = vec![
        format!(
            "{}, {} cores, Linux {}",
            environment.cpu, environment.cores, environment.kernel
        ),
        environment.date.clone(),
        format!(
            "{} rows of {} bytes, {} rounds, batches of {}, {} pieces of a scan at a time",
            kept.rows, kept.row_bytes, kept.repeats, kept.batch_rows, kept.scan_depth
        ),
    ];
    facts.extend(
        kept.tiers
            .iter()
            .map(|(tier, notes)| format!("{tier}: {}", notes.join(", "))),
    );
    facts
}

pub(super) fn text(kept: &Kept) -> String {
    let mut out = String::new();
    for (tier, here) in tiers(kept) {
        let mut table = Table::new();
        table
            .load_style(crate::report::STYLE)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(HEADER);
        for one in here {
            table.add_row(row(one));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        out += &format!("\n{tier}\n{table}\n");
    }
    out += &format!("{NOTE}\n\n");
    out.extend(
        findings(&kept.statements, kept.batch_rows)
            .iter()
            .map(|line| format!("  {line}\n")),
    );
    out
}

pub(super) fn markdown(kept: &Kept) -> String {
    let mut out = format!("# {}\n\n{}\n", kept.name, facts(kept).join("  \n"));
    for line in findings(&kept.statements, kept.batch_rows) {
        out += &format!("\n- {line}.");
    }
    out += "\n";
    for (tier, here) in tiers(kept) {
        out += &format!(
            "\n## {tier}\n\n| {} |\n|:--|{}\n",
            HEADER.join(" | "),
            "--:|".repeat(HEADER.len() - 1)
        );
        for one in here {
            out += &format!("| {} |\n", row(one).join(" | "));
        }
    }
    out + &format!("\n{NOTE}\n\n## The plan\n\n```toml\n{}\n```\n", kept.plan.trim_end())
}

pub(super) fn csv(kept: &Kept) -> Result<String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record([
        "tier",
        "layout",
        "access",
        "stored_bytes",
        "objects",
        "open_ms",
        "samples_per_s",
        "samples_per_s_lo",
        "samples_per_s_hi",
        "p50_us",
        "p95_us",
        "requests_per_sample",
        "bytes_per_sample",
        "decode_us_per_sample",
        "cpu_us_per_sample",
        "of_files",
        "of_files_lo",
        "of_files_hi",
    ])?;
    let some = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for one in &kept.statements {
        for (name, access) in one.accesses() {
            out.write_record([
                one.tier.clone(),
                one.layout.to_string(),
                name.to_owned(),
                one.stored_bytes.to_string(),
                one.objects.to_string(),
                one.open_ms.to_string(),
                access.samples_per_s.value.to_string(),
                access.samples_per_s.lo.to_string(),
                access.samples_per_s.hi.to_string(),
                some(access.p50_us),
                some(access.p95_us),
                access.requests_per_sample.to_string(),
                access.bytes_per_sample.to_string(),
                access.decode_us_per_sample.to_string(),
                access.cpu_us_per_sample.to_string(),
                some(access.of_files.map(|of| of.value)),
                some(access.of_files.map(|of| of.lo)),
                some(access.of_files.map(|of| of.hi)),
            ])?;
        }
    }
    Ok(String::from_utf8(out.into_inner()?)?)
}

const STYLE: &str = "<style>.levels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:6px 26px}.levels h4{margin:8px 0 4px;\
     font-size:13.5px}.level{display:grid;grid-template-columns:8.5em 1fr 6em;gap:8px;align-items:center;font-size:13px;line-height:1.7}\
     .level i{display:block;height:.8em;background:var(--heat);min-width:1px}.level b{font-weight:400;text-align:right;white-space:nowrap}</style>";

pub(super) fn html(kept: &Kept) -> String {
    let spans = |lines: &[String]| -> String {
        lines
            .iter()
            .map(|line| format!("<span>{}</span>", escape(line)))
            .collect()
    };
    let mut body = format!(
        "{STYLE}<h1>{}</h1><div class=\"facts\">{}</div><p>",
        escape(&kept.name),
        spans(&facts(kept))
    );
    if kept.interrupted {
        body += "<span class=\"badge invalid\">stopped early</span> ";
    }
    for word in ["emulated", "embedded"] {
        if kept.tiers.values().flatten().any(|note| note.contains(word)) {
            body += &format!("<span class=\"badge emulated\">partly {word}</span> ");
        }
    }
    let items: String = findings(&kept.statements, kept.batch_rows)
        .iter()
        .map(|line| format!("<li>{}.</li>", escape(line)))
        .collect();
    body += &format!("</p><section><h2>What it says</h2><ul class=\"findings\">{items}</ul></section>\n");
    for (tier, here) in tiers(kept) {
        let heads: String = HEADER
            .iter()
            .map(|head| format!("<th class=\"n\">{head}</th>"))
            .collect();
        let cells = |one: &&Statement| -> String {
            let cells: String = row(one)
                .iter()
                .map(|cell| format!("<td class=\"n\">{}</td>", escape(cell)))
                .collect();
            format!("<tr>{cells}</tr>")
        };
        let rows: String = here.iter().map(cells).collect();
        let p50 = |of: fn(&Statement) -> &Access| move |one: &Statement| of(one).p50_us;
        let charts = [
            chart(
                "One entity, p50 (less is better)",
                &here,
                &p50(|one| &one.point),
                time_text,
            ),
            chart(
                "A batch, p50 (less is better)",
                &here,
                &p50(|one| &one.batch),
                time_text,
            ),
            chart(
                "A scan, rows a second (more is better)",
                &here,
                &|one| Some(one.scan.samples_per_s.value),
                digits3,
            ),
        ];
        body += &format!(
            "<section><h2>{}</h2><div class=\"levels\">{}</div><div class=\"scroll\"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>\
             </div></section>\n",
            escape(tier),
            charts.concat()
        );
    }
    body += &format!(
        "<p class=\"soft\">{}</p><section><h2>The plan</h2><pre>{}</pre></section>",
        escape(NOTE),
        escape(kept.plan.trim_end())
    );
    document("tierlab-storage-bench", &escape(&kept.name), &body)
}

/// Bars from nothing to the largest; a value that is not there has none.
fn chart(
    title: &str,
    here: &[&Statement],
    value: &dyn Fn(&Statement) -> Option<f64>,
    text: fn(f64) -> String,
) -> String {
    let most = here
        .iter()
        .filter_map(|one| value(one))
        .fold(f64::MIN_POSITIVE, f64::max);
    let bar = |one: &&Statement| {
        let found = value(one);
        format!(
            "<div class=\"level\"><span>{}</span><span><i style=\"width:{:.1}%\"></i></span><b>{}</b></div>",
            one.layout,
            found.unwrap_or(0.0) / most * 100.0,
            found.map_or_else(|| "n/a".to_owned(), text)
        )
    };
    format!(
        "<div><h4>{title}</h4>{}</div>",
        here.iter().map(bar).collect::<String>()
    )
}
