//! One reading of `/metrics`. In: its text, Prometheus text exposition 0.0.4. Out: the relevant series by name and
//! labels: the project's own, Triton's of inference, and the start of the process.

use std::collections::BTreeMap;
use tierlab_protocol::metrics::PROCESS_START_SECONDS;

/// Prefixes of the metrics that are read; all others are skipped.
const RELEVANT_PREFIXES: [&str; 3] = ["tierlab_", "nv_inference_", PROCESS_START_SECONDS];
/// Maximum series of one reading: each takes some hundred bytes.
const MAX_SERIES: usize = 100_000;
/// Maximum value, so that sums stay finite; no counter comes near it.
const MAX_VALUE: f64 = 1e100;
/// Maximum labels of one series.
const MAX_LABELS: usize = 64;
/// Maximum characters quoted from a bad line.
const QUOTED: usize = 200;

/// One reading of `/metrics`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scrape(Vec<Series>);

#[derive(Debug, Clone, PartialEq)]
struct Series {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Text in another format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMetrics {
    /// Line that is not a sample.
    #[error("line {line} of /metrics is not a sample: `{text}`")]
    Line {
        /// Line number from 1.
        line: usize,
        /// The start of the line.
        text: String,
    },
    /// Too many series.
    #[error("/metrics has more than {MAX_SERIES} relevant series")]
    Series,
}

impl Scrape {
    /// Reads the exposition text.
    ///
    /// # Errors
    /// The first line that is neither a comment nor a sample, or too many series.
    pub fn parse(text: &str) -> Result<Self, BadMetrics> {
        let lines = text.lines().enumerate();
        let mut relevant = Vec::new();
        // A result could hold neither the value nor sums of it.
        let is_useless = |value: f64| value.is_nan() || value.abs() > MAX_VALUE;
        // Names in quotes, which OpenMetrics uses for names with dots, are never relevant.
        let is_skipped = |line: &str| line.is_empty() || line.starts_with('#') || line.starts_with("{\"");
        for (i, line) in lines.filter(|(_, line)| !is_skipped(line.trim_start())) {
            let series = series(line).ok_or_else(|| BadMetrics::Line {
                line: i + 1,
                text: line.chars().take(QUOTED).collect(),
            })?;
            if !RELEVANT_PREFIXES.iter().any(|start| series.name.starts_with(start)) || is_useless(series.value) {
                continue;
            }
            if relevant.len() == MAX_SERIES {
                return Err(BadMetrics::Series);
            }
            relevant.push(series);
        }
        Ok(Self(relevant))
    }

    /// Returns the sum over the series of a name that carry all of `labels`; 0 without any.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.try_sum(name, labels).unwrap_or(0.0)
    }

    /// Returns the same sum; `None` without any.
    pub fn try_sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let values = self.matching(name, labels).map(|series| series.value);
        values.reduce(|sum, value| sum + value)
    }

    /// True if there is a series of that name.
    pub fn has(&self, name: &str) -> bool {
        self.matching(name, &[]).next().is_some()
    }

    /// Returns the start of the process, in seconds since 1970; `None` if it is not reported.
    pub fn started_s(&self) -> Option<f64> {
        let mut starts = self.matching(PROCESS_START_SECONDS, &[]);
        Some(starts.next()?.value)
    }

    /// Returns a label of the first series of a name.
    pub fn label(&self, name: &str, label: &str) -> Option<&str> {
        let mut series = self.0.iter().filter(|series| series.name == name);
        series.find_map(|series| series.labels.get(label)).map(String::as_str)
    }

    /// Labels of every series of a name that carries all of `labels`.
    pub fn labels<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&str, &str)],
    ) -> impl Iterator<Item = &'a BTreeMap<String, String>> {
        self.matching(name, labels).map(|series| &series.labels)
    }

    fn matching<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Series> {
        let is_carried = |series: &Series, (label, value): &(&str, &str)| {
            series.labels.get(*label).is_some_and(|found| found == value)
        };
        let of_name = self.0.iter().filter(move |series| series.name == name);
        of_name.filter(move |series| labels.iter().all(|label| is_carried(series, label)))
    }
}

/// Parses `name{label="value",…} value [timestamp]`.
fn series(line: &str) -> Option<Series> {
    let name_len = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(name_len);
    if name.is_empty() {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        None => (BTreeMap::new(), rest),
        Some(rest) => labels(rest)?,
    };
    let mut fields = rest.split_ascii_whitespace();
    Some(Series {
        name: name.to_owned(),
        labels,
        // `+Inf`, `-Inf` and `NaN` too.
        value: fields.next()?.parse().ok()?,
    })
}

/// Parses everything after `{`: returns the labels, and the text after `}`.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        if labels.len() == MAX_LABELS {
            return None;
        }
        let (name, quoted) = rest.split_once('=')?;
        let mut value = String::new();
        let mut chars = quoted.strip_prefix('"')?.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    escaped => escaped,
                }),
                (_, plain) => value.push(plain),
            }
        };
        labels.insert(name.trim().to_owned(), value);
        rest = &quoted[1 + end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn label_values_are_unescaped() {
        let scrape = Scrape::parse("tierlab_info{note=\"a \\\"b\\\", c\\\\d\\n}\", v=\"1\"} 1").unwrap();
        assert_eq!(scrape.label("tierlab_info", "note"), Some("a \"b\", c\\d\n}"));
        assert_eq!(scrape.label("tierlab_info", "v"), Some("1"));
    }

    #[test]
    fn what_is_no_sample_is_refused_by_line() {
        for bad in ["x{", "x{a=\"1\"", "x{a=1} 2", "x soon", "justaname"] {
            let error = Scrape::parse(&format!("ok 1\n{bad}\n")).unwrap_err();
            assert!(matches!(error, BadMetrics::Line { line: 2, .. }), "{bad}");
        }
    }

    #[test]
    fn what_is_no_number_says_nothing_and_nothing_sums_to_a_plain_zero() {
        let text = "tierlab_x{a=\"1\"} NaN\ntierlab_x{a=\"2\"} +Inf\ntierlab_x{a=\"3\"} 4\nprocess_start_time_seconds NaN\n\
                    tierlab_y -Inf\ntierlab_y 1.7e308\n";
        let scrape = Scrape::parse(text).unwrap();
        assert_eq!((scrape.sum("tierlab_x", &[]), scrape.started_s()), (4.0, None));
        assert_eq!(
            (scrape.try_sum("tierlab_y", &[]), scrape.has("tierlab_y")),
            (None, false)
        );
        assert!(scrape.sum("tierlab_y", &[]).is_sign_positive());
    }

    #[test]
    fn open_metrics_reads_as_well() {
        let text = "# TYPE tierlab_x counter\n# UNIT tierlab_x seconds\ntierlab_x_total 5.0 1700000000.5 # {trace_id=\"a b\"} 1.0\n\
                    tierlab_x_created 1.7e9\n{\"my.metric\",a=\"1\"} 3\n  # indented\n# EOF\n";
        let scrape = Scrape::parse(text).unwrap();
        assert_eq!(scrape.sum("tierlab_x_total", &[]), 5.0);
    }

    #[test]
    fn what_a_reading_may_hold_is_bounded() {
        let text: String = (0..=MAX_SERIES)
            .map(|i| format!("tierlab_x{{i=\"{i}\"}} 1\n"))
            .collect();
        assert_eq!(Scrape::parse(&text), Err(BadMetrics::Series));
        let others = Scrape::parse(&text.replace("tierlab_x", "x")).unwrap();
        assert_eq!(others, Scrape::default());
        let labels: String = (0..=MAX_LABELS).map(|i| format!("l{i}=\"\",")).collect();
        let error = Scrape::parse(&format!("tierlab_x{{{labels}}} {}", "1".repeat(1_000))).unwrap_err();
        assert!(error.to_string().len() < 2 * QUOTED, "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z{}=\",\\\\ 0-9\n.]{0,120}") {
            let _ = Scrape::parse(&text);
        }
    }
}
