//! Text on a terminal: tables, wrapped lines, harmless characters.

use crate::content::table as content;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// Style of a table: a rule below the header and nothing else.
pub(crate) const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Returns a table as lines of text, without its heading.
#[must_use]
pub fn table(of: &content::Table) -> Vec<String> {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(of.columns.iter().map(|(name, _)| name))
        .add_rows(of.text());
    for ((_, is_number), column) in of.columns.iter().zip(table.column_iter_mut()) {
        column.set_padding((0, 1));
        if *is_number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Text that a terminal shows unchanged: others wrote the texts of a run, which could move the cursor, set colours, or turn the
/// direction of letters.
pub(crate) fn shown(text: &str) -> String {
    let is_order = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_told = |c: char| c == '\n' || !(c.is_control() || is_order(c));
    text.chars().map(|c| if is_told(c) { c } else { '\u{fffd}' }).collect()
}

/// Text in lines of at most `columns` columns, all but the first moved in.
pub(crate) fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > columns {
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

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_others_wrote_gives_a_terminal_no_orders() {
        assert_eq!(
            shown("a\u{1b}[2Jb\r\u{202e}\u{9b}é–≥\n"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}\u{fffd}é–≥\n"
        );
    }
}
