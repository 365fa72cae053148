//! Types of text columns: CSV and folder names. In: values as text, and the request's declarations. Out: the column's
//! type, and values of it. Declarations override detected types.

use super::request::{CsvOptions, declared};
use arrow_array::timezone::Tz;
use arrow_array::types::Date32Type;
use arrow_cast::parse::{Parser as _, string_to_datetime};
use arrow_schema::{DataType as Arrow, TimeUnit};
use tierlab_protocol::tensor::DataType;

/// Null markers of other programs. They are nulls only if the request says so.
const NULL_MARKERS: [&str; 12] = [
    "NULL", "null", "Null", "NA", "N/A", "n/a", "\\N", "None", "none", "-", "?", ".",
];

/// Detected type of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Bool,
    /// Integers, none of them below 0.
    Natural,
    /// Integers, some of them below 0.
    Signed,
    /// Integers, some of them above the largest `INT64`.
    Unsigned,
    Float,
    Date,
    Time,
    Text,
}

/// Type detection of a column, value by value.
#[derive(Debug, Clone, Default)]
pub(super) struct TypeGuess {
    kind: Option<TextKind>,
    /// Number of numeric values.
    numbers: u64,
    /// First text value, with its row number.
    text: Option<(u64, String)>,
    /// True if some text is not a null marker of another program.
    has_other_text: bool,
}

impl TypeGuess {
    /// Adds a value; nulls are ignored.
    pub(super) fn add(&mut self, row: u64, field: &[u8], nulls: &[String]) {
        let text = std::str::from_utf8(field).unwrap_or("?").trim();
        if is_null(text, nulls) {
            return;
        }
        let text_kind = detect_kind(text);
        if text_kind == TextKind::Text {
            self.text.get_or_insert_with(|| (row, text.chars().take(40).collect()));
            self.has_other_text |= !NULL_MARKERS.contains(&text);
        }
        self.numbers += u64::from(text_kind.is_number());
        self.kind = Some(self.kind.map_or(text_kind, |kind| kind.merge(text_kind)));
    }

    /// Returns the column's type: the declared one, or that of the values; `Null` if there is neither.
    pub(super) fn arrow(&self, name: &str, options: &CsvOptions) -> Arrow {
        if options.texts.iter().any(|text| text == name) {
            return Arrow::Utf8;
        }
        let guessed = self.kind.map_or(Arrow::Null, TextKind::arrow);
        // Keys are integers or text, so a date key is text.
        if options.is_key(name) && !(guessed.is_integer() || guessed.is_floating()) {
            return Arrow::Utf8;
        }
        let by_name = options.types.iter().any(|entry| entry.column == name);
        match declared(&options.types, name).filter(|_| !options.is_key(name)) {
            // Booleans and times are numbers already, for any requested type.
            Some(_) if matches!(guessed, Arrow::Boolean | Arrow::Date32 | Arrow::Timestamp(..)) => guessed,
            // `*` declares numbers only: words stay text, and are refused by name.
            Some(_) if guessed == Arrow::Utf8 && !by_name => guessed,
            Some(DataType::Uint64) => Arrow::UInt64,
            Some(DataType::Bool) => Arrow::Boolean,
            Some(dtype) if dtype.as_str().contains("INT") => Arrow::Int64,
            Some(_) => Arrow::Float64,
            None => guessed,
        }
    }

    /// Returns advice for a text column, without loss of values.
    pub(super) fn advice(&self, name: &str) -> Option<String> {
        let (row, text) = self.text.as_ref()?;
        if self.has_other_text && self.numbers == 0 {
            return None;
        }
        let first = format!("row {} has `{text}`", row + 1);
        let rest = match (self.has_other_text, self.numbers) {
            (false, _) => format!("if that means null, pass --null-values '{text}' and --nulls"),
            (true, _) => {
                format!("pass --as {name}=FP32 to keep such rows aside, or --null-values '{text}' if it means null")
            }
        };
        Some(format!("{first}, where {} values are numbers: {rest}", self.numbers))
    }
}

impl TextKind {
    const fn is_number(self) -> bool {
        matches!(self, Self::Natural | Self::Signed | Self::Unsigned | Self::Float)
    }

    fn merge(self, other: Self) -> Self {
        match (self, other) {
            (kind, other) if kind == other => kind,
            (Self::Natural, Self::Signed) | (Self::Signed, Self::Natural) => Self::Signed,
            (Self::Natural, Self::Unsigned) | (Self::Unsigned, Self::Natural) => Self::Unsigned,
            (kind, other) if kind.is_number() && other.is_number() => Self::Float,
            _ => Self::Text,
        }
    }

    const fn arrow(self) -> Arrow {
        match self {
            Self::Bool => Arrow::Boolean,
            Self::Natural | Self::Signed => Arrow::Int64,
            Self::Unsigned => Arrow::UInt64,
            Self::Float => Arrow::Float64,
            Self::Date => Arrow::Date32,
            Self::Time => Arrow::Timestamp(TimeUnit::Microsecond, None),
            Self::Text => Arrow::Utf8,
        }
    }
}

fn detect_kind(text: &str) -> TextKind {
    match text {
        text if has_leading_zeros(text) => TextKind::Text,
        text if text.parse::<i64>().is_ok_and(|number| number < 0) => TextKind::Signed,
        text if text.parse::<i64>().is_ok() => TextKind::Natural,
        text if text.parse::<u64>().is_ok() => TextKind::Unsigned,
        text if text.parse::<f64>().is_ok() => TextKind::Float,
        text if parse_bool(text).is_some() => TextKind::Bool,
        text if parse_date(text).is_some() => TextKind::Date,
        text if parse_micros(text).is_some() => TextKind::Time,
        _ => TextKind::Text,
    }
}

/// True if a field is empty, or is one of these null values.
pub(super) fn is_null(text: &str, nulls: &[String]) -> bool {
    let text = text.trim();
    text.is_empty() || nulls.iter().any(|null| null == text)
}

/// True for digits after a zero, as 00123, which may be a key whose zeros count.
pub(super) fn has_leading_zeros(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses `true` and `false` in any capitalisation.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        text if text.eq_ignore_ascii_case("true") => Some(true),
        text if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// Parses an integer, also one written as a float without a fraction, as some programs do for columns with nulls.
pub(super) fn parse_integer(text: &str) -> Option<i64> {
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    let is_exact = |float: &f64| float.fract() == 0.0 && float.abs() < LIMIT;
    let is_zero = |fraction: &str| fraction.bytes().all(|byte| byte == b'0');
    let whole = text.split_once('.').filter(|(_, fraction)| is_zero(fraction));
    let parsed = whole.map_or(text, |(whole, _)| whole).parse::<i64>();
    parsed.ok().or_else(|| Some(text.parse().ok().filter(is_exact)? as i64))
}

/// Parses a date such as 2024-02-29 to days since 1970.
pub(super) fn parse_date(text: &str) -> Option<i32> {
    let has_date_form = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    has_date_form.then(|| Date32Type::parse(text)).flatten()
}

/// Parses a time such as 2024-02-29 12:30:00.5 to microseconds since 1970; UTC unless it has a zone. `None` for finer
/// times.
pub(super) fn parse_micros(text: &str) -> Option<i64> {
    let (day, rest) = text.split_at_checked(10)?;
    let has_time = parse_date(day).is_some() && rest.len() >= 9 && rest.starts_with([' ', 'T']);
    let zone: Tz = has_time.then(|| "+00:00".parse().ok()).flatten()?;
    let time = string_to_datetime(&zone, text).ok()?;
    (time.timestamp_subsec_nanos() % 1000 == 0).then(|| time.timestamp_micros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::import::request::ColumnType;

    fn guess(values: &[&str]) -> TypeGuess {
        let mut guess = TypeGuess::default();
        for (row, value) in (0..).zip(values) {
            guess.add(row, value.as_bytes(), &["NA".to_owned()]);
        }
        guess
    }

    #[test]
    fn values_tell_their_type_and_a_declaration_counts_before_them() {
        let types = [("a", DataType::Fp32), ("*", DataType::Uint64), ("b", DataType::Bool)];
        let types = types.map(|(column, dtype)| ColumnType {
            column: column.to_owned(),
            dtype,
        });
        let options = CsvOptions {
            types: types.to_vec(),
            key: Some("k".to_owned()),
            ..CsvOptions::default()
        };
        let micros = Arrow::Timestamp(TimeUnit::Microsecond, None);
        for (values, key_type, named, others) in [
            (&["1", "NA", ""][..], Arrow::Int64, Arrow::Float64, Arrow::UInt64),
            (&["-1", "1"], Arrow::Int64, Arrow::Float64, Arrow::UInt64),
            (
                &["1", "18446744073709551615"],
                Arrow::UInt64,
                Arrow::Float64,
                Arrow::UInt64,
            ),
            (&["", "NA"], Arrow::Utf8, Arrow::Float64, Arrow::UInt64),
            (&["True", "false"], Arrow::Utf8, Arrow::Boolean, Arrow::Boolean),
            (&["2024-02-29"], Arrow::Utf8, Arrow::Date32, Arrow::Date32),
            (&["2024-02-29T01:02:03Z"], Arrow::Utf8, micros.clone(), micros),
            (&["1", "x"], Arrow::Utf8, Arrow::Float64, Arrow::Utf8),
            (&["2024-02-30"], Arrow::Utf8, Arrow::Float64, Arrow::Utf8),
        ] {
            let guess = guess(values);
            assert_eq!(guess.arrow("k", &options), key_type, "{values:?}");
            assert_eq!(guess.arrow("a", &options), named, "{values:?}");
            assert_eq!(guess.arrow("other", &options), others, "{values:?}");
        }
    }

    #[test]
    fn advice_loses_no_number() {
        assert!(
            guess(&["1.5", "NULL"])
                .advice("a")
                .unwrap()
                .contains("--null-values 'NULL'")
        );
        assert!(
            guess(&["NULL", "-"])
                .advice("a")
                .unwrap()
                .contains("--null-values 'NULL'")
        );
        assert!(guess(&["1.5", "x"]).advice("a").unwrap().contains("--as a=FP32"));
        assert_eq!(guess(&["Rome", "Oslo", "-"]).advice("a"), None);
    }

    #[test]
    fn times_keep_their_microseconds_or_are_no_times() {
        assert_eq!(parse_micros("1970-01-01 00:00:01.000001"), Some(1_000_001));
        assert_eq!(parse_micros("1970-01-01T01:00:00+01:00"), Some(0));
        assert!(parse_micros("9999-12-31 23:59:59").is_some());
        for bad in ["1970-01-01 00:00:01.0000001", "1970-01-01", "1970-01-01 0:0", ""] {
            assert_eq!(parse_micros(bad), None, "{bad}");
        }
        assert_eq!(
            (parse_integer("7.0"), parse_integer("7.5"), parse_integer("1e300")),
            (Some(7), None, None)
        );
        assert_eq!(parse_integer("-9007199254740993.00"), Some(-9_007_199_254_740_993));
    }
}
