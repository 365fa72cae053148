//! What a run is shown as: text, Markdown, CSV and one page of HTML that loads nothing. In: what is kept. Out: text.

use super::kept::Kept;
use super::statements::Statement;
use crate::units::{bytes_text, digits3, time_text};
use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use tierlab_analysis::record::Interval;
use tierlab_report::document;
use tierlab_report::parts::escape;

const HEADER: [&str; 13] = [
    "tier",
    "layout",
    "workload",
    "loader rows/s",
    "model rows/s",
    "both rows/s",
    "one by one rows/s",
    "of the slower",
    "idle",
    "for reads, decoding, batching",
    "CPU/row",
    "peak memory",
    "$/million",
];
const NOTE: &str = "loader: rows read, decoded, shuffled and put together as batches that nobody takes; model: the same batches from memory; both: the \
                    batches of the loader through the model; one by one: one read, its batch through the model, then the next read. ± is half of the 95 % \
                    interval over the repeats. of the slower: both over the slower of loader and model. idle: share of the sessions' time that they waited \
                    for a batch in both, and what for: while the thread that makes batches waits for a piece, its time is split as the pieces' own between \
                    reading and decoding. CPU: of the whole process, in both. $: the instance for as long as it takes, and what the tier charges.";

fn row(one: &Statement) -> [String; 13] {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let usd = |usd: Option<f64>| usd.map_or_else(|| "n/a".to_owned(), usd_text);
    [
        one.tier.clone(),
        one.layout.to_string(),
        one.workload.clone(),
        spread(&one.loader_per_s),
        spread(&one.inference_per_s),
        spread(&one.both_per_s),
        spread(&one.naive_per_s),
        percent(one.of_slower.value),
        percent(one.idle_share),
        format!(
            "{}, {}, {}",
            percent(one.idle_reading_share),
            percent(one.idle_decoding_share),
            percent(one.idle_batching_share)
        ),
        time_text(one.both_cpu_us),
        bytes_text(one.peak_bytes),
        usd(one.usd_per_million),
    ]
}

/// Dollars with two digits at least that are not zero: a million samples can cost far less than a cent.
fn usd_text(usd: f64) -> String {
    let digits = (1.0 - usd.max(1e-9).log10().floor()).clamp(2.0, 9.0) as usize;
    format!("{usd:.digits$}")
}

fn spread(interval: &Interval) -> String {
    let half = (interval.hi - interval.lo) / 2.0;
    match interval.value > 0.0 && half > 0.0 {
        true => format!("{} ±{:.0} %", digits3(interval.value), half / interval.value * 100.0),
        false => digits3(interval.value),
    }
}

/// Each place with what it says.
fn findings(kept: &Kept) -> Vec<String> {
    let told = |one: &Statement| {
        let place = format!("{} as {} on {}", one.workload, one.layout, one.tier);
        format!("{place}: {}", one.diagnosis.join("; "))
    };
    kept.statements.iter().map(told).chain(kept.failed.clone()).collect()
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
            "{} rounds of {} s; sessions: {}, threads of each: {}",
            kept.repeats, kept.window_s, kept.sessions, kept.session_threads
        ),
    ];
    facts.extend(kept.tables.iter().map(|(name, table)| {
        format!(
            "{name}: {} rows of {}, batches of {}, drawn among {}",
            table.rows,
            bytes_text(table.row_bytes),
            table.batch_rows,
            table.shuffle_rows
        )
    }));
    facts.extend(
        kept.tiers
            .iter()
            .map(|(tier, notes)| format!("{tier}: {}", notes.join(", "))),
    );
    if let Some(prices) = &kept.prices {
        facts.extend(prices.sources.iter().map(|source| format!("price of {source}")));
    }
    facts
}

pub(super) fn text(kept: &Kept) -> String {
    let mut table = Table::new();
    table
        .load_style(crate::report::STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(HEADER);
    for one in &kept.statements {
        table.add_row(row(one));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut out = format!("\n{table}\n{NOTE}\n\n");
    out.extend(findings(kept).iter().map(|line| format!("  {line}\n")));
    out
}

pub(super) fn markdown(kept: &Kept) -> String {
    let mut out = format!("# {}\n\n{}\n", kept.name, facts(kept).join("  \n"));
    for line in findings(kept) {
        out += &format!("\n- {line}.");
    }
    out += &format!(
        "\n\n| {} |\n|:--|:--|:--|{}\n",
        HEADER.join(" | "),
        "--:|".repeat(HEADER.len() - 3)
    );
    for one in &kept.statements {
        out += &format!("| {} |\n", row(one).join(" | "));
    }
    out + &format!("\n{NOTE}\n\n## The plan\n\n```toml\n{}\n```\n", kept.plan.trim_end())
}

/// Every figure of a statement by its name.
fn cells(one: &Statement) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    for (name, interval) in [
        ("loader_per_s", one.loader_per_s),
        ("inference_per_s", one.inference_per_s),
        ("both_per_s", one.both_per_s),
        ("naive_per_s", one.naive_per_s),
        ("of_slower", one.of_slower),
        ("of_naive", one.of_naive),
    ] {
        out.push((name.to_owned(), interval.value.to_string()));
        out.push((format!("{name}_lo"), interval.lo.to_string()));
        out.push((format!("{name}_hi"), interval.hi.to_string()));
    }
    for (name, value) in [
        ("idle_share", Some(one.idle_share)),
        ("idle_reading_share", Some(one.idle_reading_share)),
        ("idle_decoding_share", Some(one.idle_decoding_share)),
        ("idle_batching_share", Some(one.idle_batching_share)),
        ("naive_idle_share", Some(one.naive_idle_share)),
        ("requests_per_row", Some(one.requests_per_row)),
        ("bytes_per_row", Some(one.bytes_per_row)),
        ("loader_cpu_us", Some(one.loader_cpu_us)),
        ("inference_cpu_us", Some(one.inference_cpu_us)),
        ("both_cpu_us", Some(one.both_cpu_us)),
        ("taken_share", Some(one.taken_share)),
        ("peak_bytes", Some(one.peak_bytes as f64)),
        ("usd_per_million", one.usd_per_million),
        ("naive_usd_per_million", one.naive_usd_per_million),
    ] {
        out.push((
            name.to_owned(),
            value.map_or_else(String::new, |value| value.to_string()),
        ));
    }
    out
}

pub(super) fn csv(kept: &Kept) -> Result<String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    for (at, one) in kept.statements.iter().enumerate() {
        let cells = cells(one);
        let of_place = |names: [&str; 3]| names.map(str::to_owned).into_iter();
        if at == 0 {
            out.write_record(
                of_place(["tier", "layout", "workload"]).chain(cells.iter().map(|(name, _)| name.clone())),
            )?;
        }
        let place = of_place([&one.tier, one.layout.as_str(), &one.workload]);
        out.write_record(place.chain(cells.into_iter().map(|(_, value)| value)))?;
    }
    Ok(String::from_utf8(out.into_inner()?)?)
}

const STYLE: &str = "<style>.levels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:6px 26px}.levels h4{margin:8px 0 4px;\
     font-size:13.5px}.level{display:grid;grid-template-columns:7em 1fr 6em;gap:8px;align-items:center;font-size:13px;line-height:1.7}\
     .level i{display:block;height:.8em;background:var(--heat);min-width:1px}.level b{font-weight:400;text-align:right;white-space:nowrap}</style>";

pub(super) fn html(kept: &Kept) -> String {
    let facts: String = facts(kept)
        .iter()
        .map(|line| format!("<span>{}</span>", escape(line)))
        .collect();
    let mut body = format!(
        "{STYLE}<h1>{}</h1><div class=\"facts\">{facts}</div><p>",
        escape(&kept.name)
    );
    if kept.interrupted {
        body += "<span class=\"badge invalid\">stopped early</span> ";
    }
    for word in ["emulated", "embedded"] {
        if kept.tiers.values().flatten().any(|note| note.contains(word)) {
            body += &format!("<span class=\"badge emulated\">partly {word}</span> ");
        }
    }
    let items: String = findings(kept)
        .iter()
        .map(|line| format!("<li>{}.</li>", escape(line)))
        .collect();
    let charts: String = kept.statements.iter().map(chart).collect();
    let heads: String = HEADER
        .iter()
        .map(|head| format!("<th class=\"n\">{head}</th>"))
        .collect();
    let cells = |one: &Statement| -> String {
        let cells: String = row(one)
            .iter()
            .map(|cell| format!("<td class=\"n\">{}</td>", escape(cell)))
            .collect();
        format!("<tr>{cells}</tr>")
    };
    let rows: String = kept.statements.iter().map(cells).collect();
    body += &format!(
        "</p><section><h2>What it says</h2><ul class=\"findings\">{items}</ul></section>\n\
         <section><h2>Rows a second</h2><div class=\"levels\">{charts}</div><div class=\"scroll\"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>\
         </table></div></section>\n<p class=\"soft\">{}</p><section><h2>The plan</h2><pre>{}</pre></section>",
        escape(NOTE),
        escape(kept.plan.trim_end())
    );
    document("tierlab-storage-bench", &escape(&kept.name), &body)
}

/// The four rates of a place as bars.
fn chart(one: &Statement) -> String {
    let rates = [
        ("loader", one.loader_per_s.value),
        ("model", one.inference_per_s.value),
        ("both", one.both_per_s.value),
        ("one by one", one.naive_per_s.value),
    ];
    let most = rates.iter().map(|(_, rate)| *rate).fold(f64::MIN_POSITIVE, f64::max);
    let bars: String = rates
        .iter()
        .map(|(name, rate)| {
            format!(
                "<div class=\"level\"><span>{name}</span><span><i style=\"width:{:.1}%\"></i></span><b>{}</b></div>",
                rate / most * 100.0,
                digits3(*rate)
            )
        })
        .collect();
    format!(
        "<div><h4>{} as {} on {}</h4>{bars}</div>",
        escape(&one.workload),
        one.layout,
        escape(&one.tier)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sums_are_not_shown_as_nothing() {
        for (usd, text) in [
            (0.000_377, "0.00038"),
            (0.0604, "0.060"),
            (0.604, "0.60"),
            (12.345, "12.35"),
            (0.0, "0.000000000"),
        ] {
            assert_eq!(usd_text(usd), text);
        }
    }
}
