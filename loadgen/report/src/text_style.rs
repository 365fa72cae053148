//! How tables of text look, and what of them a terminal is shown.

use comfy_table::{LineStyle, TableStyle};

/// A rule below the header and at the end, and nothing else: rows are told apart by their alignment.
pub(crate) const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// Text that a terminal shows as it is: what a run says was written by others, and could move the cursor, colour what follows, or turn
/// the direction of the letters.
pub(crate) fn shown(text: &str) -> String {
    let is_order = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_told = |c: char| c == '\n' || !(c.is_control() || is_order(c));
    text.chars().map(|c| if is_told(c) { c } else { '\u{fffd}' }).collect()
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
