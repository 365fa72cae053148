//! Text for a cell of a CSV file. In: what a plan or a server calls something. Out: the same, so that a spreadsheet that opens the file takes
//! it for text: what begins like a formula would be run by it. Quotes, commas and line ends are the CSV writer's matter.

/// What a formula begins with, and what is skipped in front of one.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// The text, behind an apostrophe where a spreadsheet would run it. Plain names with a dash in front stay as they are.
pub(crate) fn text(text: &str) -> String {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    match text.starts_with(FORMULA) && !is_plain {
        true => format!("'{text}"),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_spreadsheet_would_run_is_text() {
        for formula in ["=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd|x", "@SUM(A1)", "\t=1"] {
            assert_eq!(text(formula), format!("'{formula}"));
        }
        for plain in ["", "s3", "-1", "a=b", "x, \"y\"\nz"] {
            assert_eq!(text(plain), plain);
        }
    }
}
