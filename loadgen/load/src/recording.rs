//! Recorded requests with their times. In: JSON lines (also traces of Mooncake's form), a HAR file, an access log of nginx or
//! Apache, or CSV. Out: requests in the order of their times. Knows nothing of schedules.
//!
//! The form follows from the file: `.har` by name, JSON lines by the first `{`, an access log by a time in brackets in its first line;
//! anything else is CSV.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use csv::Trim;
use hyper::header::HeaderValue;
use hyper::{Method, Uri};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Maximum size of a file of requests, which is kept in memory.
const FILE_BYTES: u64 = 256 << 20;
/// Maximum requests of a recording.
const MAX_REQUESTS: usize = 4_000_000;
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Unit of recorded times that are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Times in seconds.
    S,
    /// Times in milliseconds.
    Ms,
    /// Times in microseconds.
    Us,
    /// Times in nanoseconds.
    Ns,
}

impl Unit {
    /// Number of units in a second.
    const fn per_s(self) -> f64 {
        match self {
            Self::S => 1.0,
            Self::Ms => 1e3,
            Self::Us => 1e6,
            Self::Ns => 1e9,
        }
    }
}

/// File of a recording, and its form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingSpec {
    /// Path of the file.
    pub file: PathBuf,
    /// Column or key of the times in CSV and JSON lines.
    pub column: String,
    /// Unit of times that are numbers (default: seconds; milliseconds in Mooncake's traces).
    pub unit: Option<Unit>,
}

/// Recorded values by name.
pub type Row = BTreeMap<String, String>;

/// Request line of a recorded request, in place of the route's.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// HTTP method.
    pub method: Method,
    /// Path and query, behind the prefix of the server's address.
    pub path: String,
    /// Type of the recorded body, if it is known.
    pub content_type: Option<HeaderValue>,
}

/// Recorded request, or a row of values for a template.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Call {
    /// Seconds since the first request.
    pub at_s: f64,
    /// Request line, if it was recorded.
    pub line: Option<Arc<Line>>,
    /// Body, if it was recorded.
    pub body: Option<String>,
    /// Other recorded values by name, for the placeholders of a template.
    pub values: Row,
    /// Line, row or entry of its file, from 1.
    pub place: (&'static str, usize),
}

impl Call {
    /// Place in its file, such as `line 7`.
    pub fn place(&self) -> String {
        let (unit, number) = self.place;
        format!("{unit} {number}")
    }
}

/// Requests of a recording.
#[derive(Debug)]
pub struct Recording {
    /// Requests, ascending by time.
    pub calls: Vec<Call>,
    /// Number of requests to other servers, which are left out.
    pub other_servers: usize,
}

impl RecordingSpec {
    /// Reads the requests; those of a HAR file to the server of its first one.
    ///
    /// # Errors
    /// A file that cannot be read or is too large, a time or a request that cannot be read, or fewer than two requests.
    pub fn read(&self) -> Result<Recording> {
        let file = self.file.display();
        let text = read_text(&self.file)?;
        let text = text.trim_start_matches('\u{feff}');
        let first = text.trim_start().lines().next().unwrap_or_default();
        let ending = self.file.extension();
        let is_har = ending.is_some_and(|ending| ending.eq_ignore_ascii_case("har"));
        let of_lines = |call: &dyn Fn(&str) -> Result<Option<Call>>| {
            let lines = text.lines().map(|line| match line.trim() {
                "" => Ok(None),
                line => call(line),
            });
            collect_calls("line", lines)
        };
        let mut other_servers = 0;
        let calls = if is_har {
            har(text, &mut other_servers)
        } else if first.starts_with('{') {
            of_lines(&|line| self.fields(parse_json_line(line)?).map(Some))
        } else if first == "[" || first.starts_with("[{") {
            Err(anyhow!("a JSON array; write one object a line, as `jq -c '.[]'` does"))
        } else if first.contains('[') {
            of_lines(&parse_log_line)
        } else {
            rows(text, Trim::All).and_then(|rows| collect_calls("row", rows.map(|row| self.fields(row?).map(Some))))
        };
        let mut calls = calls.map_err(|error| anyhow!("{file}: {error}"))?;
        // Stable: requests of one time keep their order.
        calls.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let [first, .., last] = &calls[..] else {
            bail!("{file}: {} requests; a recording needs at least two", calls.len());
        };
        let (first_s, last_s) = (first.at_s, last.at_s);
        ensure!(first_s < last_s, "{file}: all requests have the same time");
        calls.iter_mut().for_each(|call| call.at_s -= first_s);
        Ok(Recording { calls, other_servers })
    }

    /// Creates a request from named values: its time, `method`, `path`, `content_type` and `body`; the others fill
    /// templates.
    fn fields(&self, mut fields: Row) -> Result<Call> {
        let Some(time) = fields.remove(&self.column) else {
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            bail!("no column `{}`; found {}", self.column, names.join(", "));
        };
        let is_mooncake = fields.contains_key("hash_ids");
        let default = if is_mooncake { Unit::Ms } else { Unit::S };
        let at_s = seconds(&time, self.unit.unwrap_or(default))?;
        let body = fields.remove("body");
        let line = match (fields.remove("path"), fields.remove("method")) {
            (None, _) => None,
            (Some(path), method) => {
                let default = if body.is_some() { "POST" } else { "GET" };
                let method = method.as_deref().unwrap_or(default).to_ascii_uppercase();
                Some(line(&method, &path, fields.remove("content_type").as_deref())?)
            }
        };
        Ok(Call {
            at_s,
            line,
            body,
            values: fields,
            ..Call::default()
        })
    }
}

/// Reads a file of requests.
///
/// # Errors
/// A file that cannot be read, is not UTF-8, or is too large.
pub(crate) fn read_text(file: &Path) -> Result<String> {
    let at = |error: std::io::Error| anyhow!("{}: {error}", file.display());
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(at)?;
    opened.take(FILE_BYTES + 1).read_to_string(&mut text).map_err(at)?;
    if text.len() as u64 > FILE_BYTES {
        bail!(
            "{}: larger than {} MiB, the limit of a file kept in memory; shorten it",
            file.display(),
            FILE_BYTES >> 20
        );
    }
    Ok(text)
}

/// Collects requests; `unit` names one of them in the file.
pub(crate) fn collect_calls(
    unit: &'static str,
    calls: impl Iterator<Item = Result<Option<Call>>>,
) -> Result<Vec<Call>> {
    let mut all = Vec::new();
    for (number, call) in (1..).zip(calls) {
        let call = call.map_err(|error| anyhow!("{unit} {number}: {error}"))?;
        let place = (unit, number);
        all.extend(call.map(|call| Call { place, ..call }));
        if all.len() > MAX_REQUESTS {
            bail!("more than {MAX_REQUESTS} requests; shorten the file");
        }
    }
    Ok(all)
}

/// Rows of a CSV file, with the names of its header.
pub(crate) fn rows(text: &str, trim: Trim) -> Result<impl Iterator<Item = Result<Row>>> {
    let mut reader = csv::ReaderBuilder::new().trim(trim).from_reader(text.as_bytes());
    let columns = reader.headers()?.clone();
    Ok(reader.into_records().map(move |record| {
        let record = record?;
        let cells = columns.iter().zip(&record);
        let cells = cells.map(|(column, cell)| (column.to_owned(), cell.to_owned()));
        Ok(cells.collect())
    }))
}

/// Values of a JSON object: texts without quotes, anything else as it is written. Null is no value.
fn parse_json_line(line: &str) -> Result<Row> {
    let read = serde_json::from_str::<BTreeMap<String, Option<Box<RawValue>>>>(line);
    let fields = read?.into_iter();
    let value = |raw: Box<RawValue>| serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
    Ok(fields.filter_map(|(name, raw)| Some((name, value(raw?)))).collect())
}

fn line(method: &str, path: &str, content_type: Option<&str>) -> Result<Arc<Line>> {
    let method = method.parse().map_err(|_| anyhow!("invalid HTTP method: `{method}`"))?;
    let uri = path.parse::<Uri>().ok();
    // A name alone is read as that of a server.
    let found = uri.as_ref().and_then(Uri::path_and_query);
    let found = found.filter(|found| found.as_str().starts_with('/'));
    let found = found.with_context(|| format!("invalid URL path: `{path}`; begin it with `/`, and encode spaces"))?;
    let content_type = content_type.filter(|text| !text.is_empty());
    let content_type = content_type.map(HeaderValue::from_str).transpose();
    Ok(Arc::new(Line {
        method,
        path: found.as_str().to_owned(),
        content_type: content_type.map_err(|_| anyhow!("its content type is not a valid header value"))?,
    }))
}

/// Reads a line of an access log: the time in brackets, then the request line in quotes. Lines that hold no request, such
/// as those of port scans, are left out.
fn parse_log_line(text: &str) -> Result<Option<Call>> {
    let parts = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let timed = parts.and_then(|(time, rest)| Some((log_time(time)?, rest)));
    let Some((at_s, rest)) = timed else {
        bail!("no time in brackets, such as [10/Oct/2026:13:55:36 -0700]");
    };
    let mut fields = rest.split('"').nth(1).unwrap_or_default().split(' ');
    let (Some(method), Some(path)) = (fields.next(), fields.next().filter(|path| path.starts_with('/'))) else {
        return Ok(None);
    };
    Ok(line(method, path, None).ok().map(|line| Call {
        at_s,
        line: Some(line),
        ..Call::default()
    }))
}

#[derive(Deserialize)]
struct Har {
    log: HarLog,
}

#[derive(Deserialize)]
struct HarLog {
    entries: Vec<HarEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HarEntry {
    started_date_time: String,
    request: HarRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HarRequest {
    method: String,
    url: String,
    post_data: Option<HarBody>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HarBody {
    mime_type: Option<String>,
    text: Option<String>,
    params: Option<Vec<IgnoredAny>>,
}

/// Requests of a HAR file to the server of the first one. Requests to other servers or over other protocols, as in a
/// browser's file, are counted and left out.
fn har(text: &str, other_servers: &mut usize) -> Result<Vec<Call>> {
    let har: Har = serde_json::from_str(text)?;
    let entries = har.log.entries;
    let first = entries.iter().find_map(|entry| authority(&entry.request.url));
    let first = first.unwrap_or_default().to_owned();
    let calls = entries.into_iter().map(|entry| {
        let HarRequest { method, url, post_data } = entry.request;
        if authority(&url) != Some(first.as_str()) {
            *other_servers += 1;
            return Ok(None);
        }
        let body = post_data.unwrap_or_default();
        if body.text.is_none() && body.params.is_some_and(|params| !params.is_empty()) {
            bail!("its `postData` has `params` but no `text`; export the file with bodies");
        }
        Ok(Some(Call {
            at_s: seconds(&entry.started_date_time, Unit::S)?,
            line: Some(line(&method, &url, body.mime_type.as_deref())?),
            body: body.text,
            ..Call::default()
        }))
    });
    collect_calls("entry", calls)
}

/// Name and port of the server of an HTTP URL, as they are written.
fn authority(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let is_http = matches!(scheme, "http" | "https");
    rest.split(['/', '?', '#']).next().filter(|_| is_http)
}

/// Seconds of a time: a number in a unit, or a time of RFC 3339.
fn seconds(text: &str, unit: Unit) -> Result<f64> {
    let number = text.parse::<f64>().ok().filter(|time| time.is_finite());
    number
        .map(|time| time / unit.per_s())
        .or_else(|| rfc3339(text))
        .with_context(|| format!("invalid time `{text}`: give a number, or 2026-11-20T12:00:00.5+01:00"))
}

/// Seconds since 1970 of a time of RFC 3339, with `Z` or an offset; `None` for any other text.
fn rfc3339(text: &str) -> Option<f64> {
    let split = text.len().checked_sub(6).and_then(|at| text.split_at_checked(at));
    let (utc, offset) = match split {
        Some((time, offset)) if offset.starts_with(['+', '-']) => (format!("{time}Z"), offset),
        _ => (text.to_owned(), "+00:00"),
    };
    let (hours, minutes) = offset[1..].split_once(':')?;
    let offset_s = f64::from(hours.parse::<u8>().ok()?) * 3_600.0 + f64::from(minutes.parse::<u8>().ok()?) * 60.0;
    let time = humantime::parse_rfc3339(&utc).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let ahead_s = if offset.starts_with('-') { -offset_s } else { offset_s };
    Some(time.as_secs_f64() - ahead_s)
}

/// Seconds since 1970 of `10/Oct/2026:13:55:36 -0700`, or of a time of RFC 3339.
fn log_time(text: &str) -> Option<f64> {
    let Some((date, offset)) = text.split_once(' ') else {
        return rfc3339(text);
    };
    let mut parts = date.splitn(3, '/');
    let (day, month) = (parts.next()?, parts.next()?);
    let (year, time) = parts.next()?.split_once(':')?;
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let (hours, minutes) = offset.split_at_checked(3)?;
    rfc3339(&format!("{year}-{month:02}-{day}T{time}{hours}:{minutes}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(name: &str, text: &str) -> Result<Vec<Call>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        let spec = RecordingSpec {
            file,
            column: "timestamp".into(),
            unit: None,
        };
        spec.read().map(|recording| recording.calls)
    }

    fn summary(call: &Call) -> (f64, &str, &str, &str) {
        let line = call.line.as_ref().unwrap();
        let body = call.body.as_deref().unwrap_or_default();
        ((call.at_s * 1e6).round() / 1e6, line.method.as_str(), &line.path, body)
    }

    #[test]
    fn requests_of_every_form_come_in_the_order_of_their_times() {
        let lines = "{\"timestamp\":2.5,\"path\":\"/b\",\"method\":null,\"body\":{\"z\":1,\"a\":2.50}}\n\n\
                     {\"timestamp\":1,\"method\":\"put\",\"path\":\"/a?x=1\",\"body\":\"plain\"}\n";
        let calls = read("r.jsonl", lines).unwrap();
        assert_eq!(summary(&calls[0]), (0.0, "PUT", "/a?x=1", "plain"));
        assert_eq!(summary(&calls[1]), (1.5, "POST", "/b", "{\"z\":1,\"a\":2.50}"));
        let log = "::1 - - [10/Oct/2026:23:59:59 -0700] \"GET /a?b=%20 HTTP/1.1\" 200 12 \"-\" \"curl\"\n\
                   ::1 - - [11/Oct/2026:07:00:00 +0000] \"\\x16\\x03\" 400 0\n\
                   ::1 - - [11/Oct/2026:07:00:01 +0000] \"POST /c HTTP/2.0\" 200 1\n";
        let calls = read("access.log", log).unwrap();
        assert_eq!(
            calls.iter().map(summary).collect::<Vec<_>>(),
            [(0.0, "GET", "/a?b=%20", ""), (2.0, "POST", "/c", "")]
        );
        let har = r#"{"log":{"entries":[
            {"startedDateTime":"2026-11-20T13:00:00.250+01:00","request":{"method":"POST","url":"https://h/p?q=1",
             "postData":{"mimeType":"text/plain","text":"hi"}}},
            {"startedDateTime":"2026-11-20T12:00:00Z","request":{"method":"GET","url":"http://h/"}}]}}"#;
        let calls = read("r.har", har).unwrap();
        assert_eq!(
            calls.iter().map(summary).collect::<Vec<_>>(),
            [(0.0, "GET", "/", ""), (0.25, "POST", "/p?q=1", "hi")]
        );
        assert_eq!(
            calls[1].line.as_ref().unwrap().content_type.as_ref().unwrap(),
            "text/plain"
        );
        let calls = read(
            "r.csv",
            "timestamp,path,n\n2026-11-20T12:00:01Z,/b,7\n2026-11-20T12:00:00-00:00,/a,8\n",
        )
        .unwrap();
        assert_eq!(
            (summary(&calls[0]), calls[0].values["n"].as_str()),
            ((0.0, "GET", "/a", ""), "8")
        );
    }

    #[test]
    fn a_json_array_is_not_taken_for_an_access_log() {
        for text in [
            "[{\"timestamp\":1},{\"timestamp\":2}]",
            "[\n {\"timestamp\": 1},\n {\"timestamp\": 2}\n]",
        ] {
            let error = read("r.json", text).unwrap_err().to_string();
            assert!(
                error.ends_with("r.json: a JSON array; write one object a line, as `jq -c '.[]'` does"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_har_file_is_replayed_to_the_server_of_its_first_request() {
        let entry = |second: u32, url: &str| {
            format!(
                "{{\"startedDateTime\":\"2026-11-20T12:00:0{second}Z\",\"request\":{{\"method\":\"GET\",\"url\":\"{url}\"}}}}"
            )
        };
        let entries = [
            entry(0, "data:text/plain,x"),
            entry(1, "https://shop.example/a"),
            entry(2, "https://ads.example/pixel?q=a|b"),
            entry(3, "wss://shop.example/live"),
            entry(4, "http://shop.example/b?c"),
            entry(5, "https://shop.example:8443/other"),
        ];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("browser.har");
        let text = format!("{{\"log\":{{\"entries\":[{}]}}}}", entries.join(","));
        std::fs::write(&file, text).unwrap();
        let spec = RecordingSpec {
            file,
            column: "timestamp".into(),
            unit: None,
        };
        let Recording { calls, other_servers } = spec.read().unwrap();
        assert_eq!(
            calls.iter().map(summary).collect::<Vec<_>>(),
            [(0.0, "GET", "/a", ""), (3.0, "GET", "/b?c", "")]
        );
        assert_eq!((other_servers, calls[1].place()), (4, "entry 5".to_owned()));
    }

    #[test]
    fn traces_of_mooncake_are_in_milliseconds() {
        let trace = "{\"timestamp\": 0, \"input_length\": 700, \"output_length\": 52, \"hash_ids\": [46, 47]}\n\
                     {\"timestamp\": 27482, \"input_length\": 2, \"output_length\": 1, \"hash_ids\": [46]}\n";
        let calls = read("mooncake.jsonl", trace).unwrap();
        assert_eq!(calls[1].at_s, 27.482);
        assert_eq!(calls[0].values["hash_ids"], "[46, 47]");
        assert!(calls[0].line.is_none());
    }

    #[test]
    fn errors_name_the_line() {
        for (name, text, at) in [
            (
                "r.jsonl",
                "{\"timestamp\":1}\n{\"at\":2}\n",
                "line 2: no column `timestamp`; found at",
            ),
            (
                "r.jsonl",
                "{\"timestamp\":1}\n",
                "1 requests; a recording needs at least two",
            ),
            (
                "r.jsonl",
                "{\"timestamp\":1}\n{\"timestamp\":1}\n",
                "all requests have the same time",
            ),
            ("r.jsonl", "{\"timestamp\":\"noon\"}\n", "invalid time `noon`"),
            ("r.csv", "timestamp,path\n1,a b\n", "row 1: invalid URL path: `a b`"),
            (
                "r.csv",
                "timestamp,path\n1,predict\n",
                "row 1: invalid URL path: `predict`",
            ),
            ("r.har", "{}", "missing field `log`"),
            (
                "r.har",
                r#"{"log":{"entries":[{"startedDateTime":"1","request":{"method":"GET","url":"http://h/","postData":null}},
                   {"startedDateTime":"2","request":{"method":"POST","url":"http://h/",
                    "postData":{"mimeType":"application/x-www-form-urlencoded","params":[{"name":"a","value":"b"}]}}}]}}"#,
                "entry 2: its `postData` has `params` but no `text`",
            ),
            ("a.log", "hello\nyou\n", "row 1: no column `timestamp`; found hello"),
            (
                "a.log",
                "::1 [10/Oct/2026:23:59:59 -0700] \"GET / HTTP/1.1\"\nhello\n",
                "line 2: no time in brackets",
            ),
        ] {
            let error = read(name, text).unwrap_err().to_string();
            assert!(error.contains(at), "{error}");
        }
        assert!(
            RecordingSpec {
                file: "/no/such".into(),
                column: String::new(),
                unit: None
            }
            .read()
            .is_err()
        );
    }

    #[test]
    fn offsets_count() {
        assert_eq!(rfc3339("1970-01-01T01:30:00+01:00"), Some(1_800.0));
        assert_eq!(rfc3339("1970-01-01T00:00:00.5-00:30"), Some(1_800.5));
        assert_eq!(log_time("01/Jan/1970:00:00:07 +0000"), Some(7.0));
        assert_eq!(log_time("1970-01-01T00:00:07+00:00"), Some(7.0));
        for bad in [
            "",
            "1970-01-01",
            "+00:00",
            "1970-01-01T00:00:00+é:0",
            "01/Foo/1970:00:00:07 +0000",
        ] {
            assert_eq!((rfc3339(bad), log_time(bad)), (None, None), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(text in "[\\[\\]{}\":,0-9TZ/+ a-zé\n-]{0,120}", name in 0_usize..4) {
            let _ = read(["r.har", "r.csv", "r.log", "r.jsonl"][name], &text);
        }
    }
}
