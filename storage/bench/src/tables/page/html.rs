//! `report.html`. It says everything in tables without a script too.

use super::{Bars, Block, Page};
use crate::report::parts::{badges, facts, list, pre, section, under};
use tierlab_report::document;
use tierlab_report::parts::escape;

const STYLE: &str = "<style>.levels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:6px 26px}.levels h4{margin:8px 0 4px;\
     font-size:13.5px}.level{display:grid;grid-template-columns:8.5em 1fr 6em;gap:8px;align-items:center;font-size:13px;line-height:1.7}\
     .level i{display:block;height:.8em;background:var(--heat);min-width:1px}.level b{font-weight:400;text-align:right;white-space:nowrap}</style>";

impl Page<'_> {
    /// The page.
    pub(in crate::tables) fn html(&self) -> String {
        let ran = self.ran;
        let mut body = format!("{STYLE}<h1>{}</h1>{}", escape(&ran.name), facts(&self.all_facts()));
        body += &format!("<p>{}</p>", badges(ran.interrupted, &ran.tiers));
        body += &section("What it says", &list(&self.findings));
        for part in &self.sections {
            let blocks: String = part.blocks.iter().map(block).collect();
            let note = match part.note {
                "" => String::new(),
                note => format!("<p class=\"soft\">{}</p>", escape(note)),
            };
            body += &section(part.title, &format!("{}{blocks}{note}", part.curves));
        }
        body += &section("The plan", &pre(ran.plan.trim_end()));
        document("tierlab-storage-bench", &escape(&ran.name), &body)
    }
}

fn block(block: &Block) -> String {
    let charts: String = block.bars.iter().map(chart).collect();
    let charts = match charts.as_str() {
        "" => String::new(),
        charts => format!("<div class=\"levels\">{charts}</div>"),
    };
    let body = charts + &table(block);
    match block.title.as_str() {
        "" => body,
        title => under(title, &body),
    }
}

fn table(block: &Block) -> String {
    let class = |at: usize| if at < block.words { "" } else { " class=\"n\"" };
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| -> String {
        let cell = |(at, cell)| format!("<{tag}{}>{}</{tag}>", class(at), escape(cell));
        cells.enumerate().map(cell).collect()
    };
    let row = |row: &Vec<String>| format!("<tr>{}</tr>", cells("td", &mut row.iter().map(String::as_str)));
    let rows: String = block.rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>{rows}</tbody></table></div>\n",
        cells("th", &mut block.header.iter().copied())
    )
}

/// A value that is not there has no bar.
fn chart(chart: &Bars) -> String {
    let values = chart.bars.iter().filter_map(|(_, value)| *value);
    let most = values.fold(f64::MIN_POSITIVE, f64::max);
    let bar = |(name, value): &(String, Option<f64>)| {
        format!(
            "<div class=\"level\"><span>{}</span><span><i style=\"width:{:.1}%\"></i></span><b>{}</b></div>",
            escape(name),
            value.unwrap_or(0.0) / most * 100.0,
            value.map_or_else(|| "n/a".to_owned(), chart.text)
        )
    };
    format!(
        "<div><h4>{}</h4>{}</div>",
        escape(&chart.title),
        chart.bars.iter().map(bar).collect::<String>()
    )
}
