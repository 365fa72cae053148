//! Bodies of requests to any HTTP endpoint, built before a step. In: a specification, whose files are read once. Out:
//! bodies in the order of sending.

use super::replies::{BOM, StreamKind, StreamSpec, Success};
use super::spec::{BodySource, CustomSpec, Drawn};
use crate::inputs;
use crate::payload::Body;
use crate::recording::{Call, RecordingSpec, Row, collect_calls, read_text, rows};
use crate::reply::unrequested_coding;
use crate::template::{Part, escape, parts};
use anyhow::{Result, anyhow, bail, ensure};
use bytes::Bytes;
use csv::Trim;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderValue};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Maximum size of all bodies of a step.
const STEP_BYTES: usize = 1 << 30;
/// Maximum words of a drawn text.
const MAX_WORDS: u64 = 1 << 20;
/// Words of a recorded block, as in Mooncake's traces.
const BLOCK_WORDS: u64 = 512;
const VALUE_STREAM: u64 = 4;

/// Requests to an endpoint, with their files read.
#[derive(Debug, Clone)]
pub struct Custom {
    /// HTTP method.
    pub method: Method,
    /// Path and query after the server's prefix.
    pub path: String,
    /// Content type of the body.
    pub content_type: Option<HeaderValue>,
    /// Rule for a successful reply.
    pub success: Arc<Success>,
    /// Set if replies stream.
    pub stream: Option<Arc<StreamSpec>>,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    /// Complete bodies, sent in turn.
    Ready(Arc<[Body]>),
    /// Template filled for each request.
    Filled {
        template: BodyTemplate,
        /// Rows of a CSV file, or recorded requests.
        rows: Arc<[Call]>,
        drawn: BTreeMap<String, Drawn>,
    },
}

impl Custom {
    /// Reads the files of a specification.
    ///
    /// # Errors
    /// A file that cannot be read or is too large, a placeholder without a column, bodies that should be JSON and are
    /// not.
    pub fn open(spec: &CustomSpec) -> Result<Self> {
        let method: Result<Method, _> = spec.method.parse();
        let method = method.map_err(|_| anyhow!("`target.method` = `{}` is not an HTTP method", spec.method))?;
        let is_json = spec.content_type.contains("json");
        let content_type = match spec.content_type.as_str() {
            "" => None,
            text => Some(
                HeaderValue::from_str(text)
                    .map_err(|_| anyhow!("`target.content_type` = `{text}` is not a valid header value"))?,
            ),
        };
        let fill = |text: &str, rows: Option<(&Path, Vec<Call>)>| filled(text, rows, is_json, &spec.values);
        let content = match &spec.body {
            BodySource::Empty => Content::Ready([Body::new(Bytes::new())].into()),
            BodySource::Recorded(file) => Content::Ready(recorded(file, is_json)?.into()),
            BodySource::Text(text) => fill(text, None)?,
            BodySource::File(file) => fill(&read_text(file)?, None)?,
            BodySource::Rows { template, rows } => fill(template, Some((rows.as_path(), rows_of(rows)?)))?,
            BodySource::Replay {
                recording,
                template: Some(template),
            } => fill(template, Some((recording.file.as_path(), recording.read()?.calls)))?,
            BodySource::Replay { recording, .. } => Content::Ready(replayed(recording)?),
        };
        if let Some((name, _)) = spec.values.first_key_value()
            && !matches!(content, Content::Filled { .. })
        {
            return Err(unused(name));
        }
        Ok(Self {
            method,
            path: spec.path.clone(),
            content_type,
            success: Arc::new(spec.success.clone()),
            stream: spec.stream.clone().map(Arc::new),
            content,
        })
    }

    /// Checks the body of a reply by the rule of success, and the form of a stream.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_body(&self, headers: &HeaderMap, body: &[u8]) -> Result<()> {
        let checked = match self.stream.as_ref().map(|stream| stream.kind) {
            Some(StreamKind::Sse) => self.success.check_stream(body, None, |_| {}).map(drop),
            _ => self.success.check_body(headers, body),
        };
        checked.map_err(|fault| unrequested_coding(headers).map_or(fault, anyhow::Error::msg))
    }

    /// True if a request holds one id.
    pub fn needs_id(&self) -> bool {
        matches!(&self.content, Content::Filled { template, .. } if template.has(ENTITY_ID))
    }

    /// True if a request holds as many ids as a load has rows.
    pub fn needs_ids(&self) -> bool {
        matches!(&self.content, Content::Filled { template, .. } if template.has(ENTITY_IDS))
    }

    /// Builds the bodies of `requests` requests, each with `per_request` of `ids` in their text form and values drawn by
    /// the seed; bodies without either are sent in turn.
    ///
    /// # Errors
    /// More bytes than a step may hold.
    pub fn bodies(&self, requests: usize, ids: &[String], per_request: usize, seed: u64) -> Result<Vec<Body>> {
        let (template, rows, drawn) = match &self.content {
            Content::Ready(bodies) => return Ok(bodies.iter().take(requests.max(1)).cloned().collect()),
            Content::Filled { template, rows, drawn } => (template, rows, drawn),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(VALUE_STREAM);
        let (mut bodies, mut bytes) = (Vec::with_capacity(requests), 0);
        let mut ids = ids.chunks(per_request.max(1));
        for index in 0..requests {
            let ids = ids.next().unwrap_or_default();
            let call = (!rows.is_empty()).then(|| &rows[index % rows.len()]);
            let row = call.map(|call| &call.values);
            let values = drawn.iter();
            let values = values.map(|(name, drawn)| Ok((name.as_str(), value(drawn, row, &mut rng)?)));
            let values = values.collect::<Result<BTreeMap<&str, String>>>()?;
            let text = template.fill(|placeholder| match placeholder {
                ENTITY_ID => ids.first().map_or("", String::as_str).into(),
                ENTITY_IDS => ids.join(",").into(),
                name => {
                    let value = values.get(name).or_else(|| row?.get(name));
                    value.map_or("", String::as_str).to_owned().into()
                }
            });
            bytes += text.len();
            if bytes > STEP_BYTES {
                bail!(
                    "the bodies of one step exceed {} MiB; shorten the steps, or shrink the body",
                    STEP_BYTES >> 20
                );
            }
            bodies.push(Body {
                line: call.and_then(|call| call.line.clone()),
                ..Body::new(text.into())
            });
        }
        Ok(bodies)
    }
}

/// Draws a value in its text form.
fn value(drawn: &Drawn, row: Option<&Row>, rng: &mut ChaCha8Rng) -> Result<String> {
    match drawn {
        Drawn::Number(lengths) => Ok(inputs::length(lengths, rng)?.to_string()),
        Drawn::Words(lengths) => {
            let count = inputs::length(lengths, rng)?.min(MAX_WORDS);
            Ok(inputs::words(count as u32, rng))
        }
        Drawn::Recorded { words, blocks } => recorded_words(words, blocks.as_deref(), row, rng),
    }
}

/// Words of a recorded request, in blocks whose ids determine their words.
fn recorded_words(words: &str, blocks: Option<&str>, row: Option<&Row>, rng: &mut ChaCha8Rng) -> Result<String> {
    let missing = |name: &str| anyhow!("`target.values`: `{name}` is missing in a recorded request");
    let recorded = |name: &str| row.and_then(|row| row.get(name)).ok_or_else(|| missing(name));
    let number = recorded(words)?.parse::<f64>();
    let mut left = number.map_err(|error| anyhow!("recorded `{words}`: {error}"))? as u64;
    left = left.min(MAX_WORDS);
    let ids: Vec<u64> = match blocks {
        Some(name) => serde_json::from_str(recorded(name)?).map_err(|error| anyhow!("recorded `{name}`: {error}"))?,
        None => Vec::new(),
    };
    let mut text = Vec::new();
    for id in ids {
        let count = left.min(BLOCK_WORDS);
        left -= count;
        text.push(inputs::words(count as u32, &mut ChaCha8Rng::seed_from_u64(id)));
    }
    text.push(inputs::words(left as u32, rng));
    text.retain(|words| !words.is_empty());
    Ok(text.join(" "))
}

fn recorded(file: &Path, is_json: bool) -> Result<Vec<Body>> {
    let text = Bytes::from(read_text(file)?);
    let mut bodies = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let body = text.slice_ref(line.strip_prefix(BOM).unwrap_or(line));
        if line.trim_ascii().is_empty() {
            continue;
        }
        if is_json {
            is_document(&body).map_err(|error| anyhow!("{}: line {}: {error}", file.display(), number + 1))?;
        }
        bodies.push(Body::new(body));
    }
    ensure!(!bodies.is_empty(), "{}: no bodies; write one per line", file.display());
    Ok(bodies)
}

fn is_document(body: &[u8]) -> Result<()> {
    let document = serde_json::from_slice::<serde::de::IgnoredAny>(body);
    let invalid = |error| anyhow!("not JSON, although `target.content_type` says so: {error}");
    document.map(drop).map_err(invalid)
}

/// Fills a template with the rows of a file, one body per row, or prepares it for ids and drawn values.
fn filled(
    text: &str,
    rows: Option<(&Path, Vec<Call>)>,
    is_json: bool,
    drawn: &BTreeMap<String, Drawn>,
) -> Result<Content> {
    let template = BodyTemplate::parse(text, is_json).map_err(|error| anyhow!("`target.body`: {error}"))?;
    let (file, rows) = rows.map_or((None, Vec::new()), |(file, rows)| (Some(file), rows));
    let is_filled = |name: &str| name == ENTITY_ID || name == ENTITY_IDS || drawn.contains_key(name);
    if template.has(ENTITY_ID) && template.has(ENTITY_IDS) {
        bail!("`target.body` has both {{entity_id}} and {{entity_ids}}; use one");
    }
    if let Some(name) = drawn.keys().find(|name| !template.has(name)) {
        return Err(unused(name));
    }
    let named = |at: usize| match file.zip(rows.get(at)) {
        Some((file, call)) => format!("{}: {}", file.display(), call.place()),
        None => "`target.body`".to_owned(),
    };
    let columns = rows.first().map(|call| &call.values);
    let needed: Vec<&str> = template.placeholders().filter(|name| !is_filled(name)).collect();
    check_columns(&needed, columns)?;
    let recorded = drawn.values().flat_map(Drawn::recorded);
    let needed: Vec<&str> = needed.into_iter().chain(recorded).collect();
    for (at, call) in rows.iter().enumerate() {
        if let Some(missing) = needed.iter().find(|name| !call.values.contains_key(**name)) {
            let at = named(at);
            bail!("{at}: `{missing}` is missing, which `target.body` needs");
        }
    }
    if template.placeholders().any(is_filled) {
        if is_json {
            let example = template.fill(|name| match columns {
                _ if is_filled(name) => "1".into(),
                Some(row) => row.get(name).cloned().unwrap_or_default().into(),
                None => "".into(),
            });
            is_document(example.as_bytes()).map_err(|error| anyhow!("{}: {error}", named(0)))?;
        }
        return Ok(Content::Filled {
            template,
            rows: rows.into(),
            drawn: drawn.clone(),
        });
    }
    let plain = [Call::default()];
    let calls = if rows.is_empty() { &plain[..] } else { rows.as_slice() };
    let body = |call: &Call| {
        let text = template.fill(|name| call.values.get(name).cloned().unwrap_or_default().into());
        Body {
            line: call.line.clone(),
            ..Body::new(text.into())
        }
    };
    let bodies: Vec<Body> = calls.iter().map(body).collect();
    if is_json {
        for (at, body) in bodies.iter().enumerate() {
            is_document(&body.bytes).map_err(|error| anyhow!("{}: {error}", named(at)))?;
        }
    }
    Ok(Content::Ready(bodies.into()))
}

fn unused(value: &str) -> anyhow::Error {
    anyhow!("`target.values.{value}` is unused: {{{value}}} is missing in `target.body`")
}

/// Refuses placeholders that nothing fills.
fn check_columns(needed: &[&str], columns: Option<&Row>) -> Result<()> {
    let is_column = |name: &&&str| columns.is_some_and(|row| row.contains_key(**name));
    let Some(unknown) = needed.iter().find(|name| !is_column(name)) else {
        return Ok(());
    };
    let options = match columns {
        Some(row) => row.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        None => "no columns without `target.rows_file`".to_owned(),
    };
    Err(anyhow!(
        "`target.body`: unknown placeholder {{{unknown}}}; use {{entity_id}}, {{entity_ids}}, a name of \
         `target.values` or a column ({options}), or write {{{{{unknown}}}}} for the text itself"
    ))
}

/// Recorded requests with their own bodies.
fn replayed(recording: &RecordingSpec) -> Result<Arc<[Body]>> {
    let calls = recording.read()?.calls;
    if let Some(bare) = calls.iter().find(|call| call.line.is_none() && call.body.is_none()) {
        bail!(
            "{}: {} has neither a path nor a body; write `target.body`, in which {{NAME}} is a recorded value",
            recording.file.display(),
            bare.place()
        );
    }
    let body = |call: Call| Body {
        line: call.line,
        ..Body::new(call.body.unwrap_or_default().into())
    };
    Ok(calls.into_iter().map(body).collect())
}

fn rows_of(file: &Path) -> Result<Vec<Call>> {
    let at = |error| anyhow!("{}: {error}", file.display());
    let text = read_text(file)?;
    let rows = rows(&text, Trim::None).map_err(at)?.map(|values| {
        Ok(Some(Call {
            values: values?,
            ..Call::default()
        }))
    });
    let rows = collect_calls("row", rows).map_err(at)?;
    ensure!(!rows.is_empty(), "{}: no rows below the header", file.display());
    Ok(rows)
}

/// Place of one entity's id.
pub(super) const ENTITY_ID: &str = "entity_id";
/// Place of all ids of a request, separated by commas.
pub(super) const ENTITY_IDS: &str = "entity_ids";
/// Maximum placeholders of a template.
const MAX_PLACEHOLDERS: usize = 10_000;

/// Body with placeholders.
#[derive(Debug, Clone)]
pub(super) struct BodyTemplate {
    parts: Vec<Part>,
    is_json: bool,
}

impl BodyTemplate {
    /// Parses a text.
    ///
    /// # Errors
    /// Too many placeholders.
    pub(super) fn parse(text: &str, is_json: bool) -> Result<Self> {
        let parts = parts(text);
        let template = Self { parts, is_json };
        if template.placeholders().count() > MAX_PLACEHOLDERS {
            bail!("more than {MAX_PLACEHOLDERS} places in braces");
        }
        Ok(template)
    }

    /// Names of its placeholders.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Placeholder { name, .. } => Some(name.as_str()),
        })
    }

    /// True if the template has a placeholder of that name.
    pub(super) fn has(&self, placeholder: &str) -> bool {
        self.placeholders().any(|name| name == placeholder)
    }

    /// Returns the text with the result of `value` in each placeholder.
    pub(super) fn fill<'a>(&self, mut value: impl FnMut(&str) -> Cow<'a, str>) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(plain) => text += plain,
                Part::Placeholder { name, is_quoted: true } if self.is_json => escape(&value(name), &mut text),
                Part::Placeholder { name, .. } => text += &value(name),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{Law, Lengths};
    use proptest::prelude::*;

    fn spec(body: BodySource) -> CustomSpec {
        CustomSpec {
            method: "POST".into(),
            path: "/p".into(),
            content_type: "application/json".into(),
            body,
            rows_per_request: 1,
            entities: None,
            values: BTreeMap::new(),
            success: Success::default(),
            stream: None,
        }
    }

    fn texts(custom: &Custom, requests: usize, ids: &[i64], per_request: usize) -> Vec<String> {
        let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
        let bodies = custom.bodies(requests, &ids, per_request, 7).unwrap();
        bodies
            .iter()
            .map(|body| String::from_utf8(body.bytes.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn ids_stand_in_their_places() {
        let one = Custom::open(&spec(BodySource::Text(r#"{"id":{entity_id}}"#.into()))).unwrap();
        assert_eq!(texts(&one, 2, &[7, 8], 1), [r#"{"id":7}"#, r#"{"id":8}"#]);
        let many = Custom::open(&spec(BodySource::Text(r#"{"ids":[{entity_ids}]}"#.into()))).unwrap();
        assert!(many.needs_ids() && !many.needs_id());
        assert_eq!(
            texts(&many, 2, &[1, 2, 3, 4], 2),
            [r#"{"ids":[1,2]}"#, r#"{"ids":[3,4]}"#]
        );
    }

    #[test]
    fn drawn_values_stand_in_their_places_and_follow_the_seed() {
        let lengths = |least, most| Lengths {
            law: Law::Uniform,
            least,
            most,
        };
        let mut drawing = spec(BodySource::Text(r#"{"p":"{prompt}","n":{n}}"#.into()));
        drawing.values.insert("prompt".into(), Drawn::Words(lengths(2, 9)));
        drawing.values.insert("n".into(), Drawn::Number(lengths(16, 99)));
        let custom = Custom::open(&drawing).unwrap();
        let drawn = texts(&custom, 50, &[], 1);
        assert_eq!((drawn.len(), &drawn), (50, &texts(&custom, 50, &[], 1)));
        for text in &drawn {
            let body: serde_json::Value = serde_json::from_str(text).unwrap();
            let words = body["p"].as_str().unwrap().split(' ').count();
            assert!((2..=9).contains(&words), "{text}");
            assert!((16..=99).contains(&body["n"].as_u64().unwrap()), "{text}");
        }
        for body in [BodySource::Text("{}".into()), BodySource::Empty] {
            let error = Custom::open(&CustomSpec {
                body,
                ..drawing.clone()
            })
            .unwrap_err();
            assert!(error.to_string().contains("is unused"), "{error}");
        }
    }

    #[test]
    fn rows_and_recorded_bodies_are_sent_in_turn() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.csv");
        std::fs::write(&file, "age,name\n7,\"a \"\"b\"\"\"\n8,c\n").unwrap();
        let rows = |template: &str| {
            let template = template.into();
            Custom::open(&spec(BodySource::Rows {
                template,
                rows: file.clone(),
            }))
        };
        let custom = rows(r#"{"age":{age},"name":"{name}"}"#).unwrap();
        assert_eq!(
            texts(&custom, 9, &[], 1),
            [r#"{"age":7,"name":"a \"b\""}"#, r#"{"age":8,"name":"c"}"#]
        );
        for (template, message) in [
            (r#"{"age":{size}}"#, "unknown placeholder {size}"),
            (r#"{"name":{name}}"#, "row 1: not JSON"),
        ] {
            let error = rows(template).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        std::fs::write(&file, "\u{feff}{\"a\":1}\n\n{\"a\":2}\n").unwrap();
        let custom = Custom::open(&spec(BodySource::Recorded(file.clone()))).unwrap();
        assert_eq!(texts(&custom, 9, &[], 1), ["{\"a\":1}", "{\"a\":2}"]);
        std::fs::write(&file, "{\"a\":1}\n{\"a\":\n").unwrap();
        let error = Custom::open(&spec(BodySource::Recorded(file))).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(Custom::open(&spec(BodySource::File("/no/such".into()))).is_err());
    }

    #[test]
    fn every_recorded_request_has_what_its_body_takes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.jsonl");
        let opened = |text: &str, template: Option<&str>, drawn: Option<Drawn>| {
            std::fs::write(&file, text).unwrap();
            let mut replaying = spec(BodySource::Replay {
                recording: RecordingSpec {
                    file: file.clone(),
                    column: "timestamp".into(),
                    unit: None,
                },
                template: template.map(str::to_owned),
            });
            replaying.values.extend(drawn.map(|drawn| ("p".to_owned(), drawn)));
            Custom::open(&replaying)
        };
        let recorded = Drawn::Recorded {
            words: "n".into(),
            blocks: None,
        };
        let whole = "{\"timestamp\":0,\"n\":1}\n\n{\"timestamp\":2,\"n\":3}\n{\"timestamp\":1,\"n\":2}\n";
        let (some, template) = (whole.replace("2,\"n\":3", "2"), Some("{\"n\":{n}}"));
        let custom = opened(whole, template, None).unwrap();
        assert_eq!(texts(&custom, 9, &[], 1), ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}"]);
        opened(whole, Some("{\"p\":\"{p}\"}"), Some(recorded.clone())).unwrap();
        for (template, drawn) in [(template, None), (Some("{\"p\":\"{p}\"}"), Some(recorded))] {
            let error = opened(&some, template, drawn).unwrap_err().to_string();
            assert!(error.contains("trace.jsonl: line 3: `n` is missing"), "{error}");
        }
        let bodies = whole.replace("\"n\"", "\"body\"");
        opened(&bodies, None, None).unwrap();
        let error = opened(&bodies.replace("2,\"body\":3", "2"), None, None).unwrap_err();
        assert!(
            error.to_string().contains("line 3 has neither a path nor a body"),
            "{error}"
        );
        // A request without a body is one.
        opened(&bodies.replace("2,\"body\":3", "2,\"path\":\"/\""), None, None).unwrap();
    }

    fn filled(text: &str, value: &str) -> String {
        BodyTemplate::parse(text, true)
            .unwrap()
            .fill(|_| value.to_owned().into())
    }

    #[test]
    fn places_are_told_from_the_braces_of_json() {
        for (text, value, body) in [
            (
                r#"{"instances":[{"id":{entity_id}}]}"#,
                "7",
                r#"{"instances":[{"id":7}]}"#,
            ),
            (r#"{"a":{"b":{}}}"#, "7", r#"{"a":{"b":{}}}"#),
            (r#"{"text":"{t}"}"#, "say \"x\"\n", r#"{"text":"say \"x\"\n"}"#),
            (r#"{"text":"\"{t}"}"#, "\"", r#"{"text":"\"\""}"#),
            (r#"{"text":"{{t}}"}"#, "7", r#"{"text":"{t}"}"#),
            ("no places", "7", "no places"),
            ("{", "7", "{"),
            ("{a", "7", "{a"),
            ("{0} {a b}", "7", "{0} {a b}"),
        ] {
            assert_eq!(filled(text, value), body);
        }
        let template = BodyTemplate::parse("{a}{b}", false).unwrap();
        assert!(template.placeholders().eq(["a", "b"]) && template.has("b") && !template.has("c"));
    }

    proptest! {
        #[test]
        fn what_stands_within_quotes_stays_there(value: String) {
            let body = filled(r#"{"a": "x{v}y"}"#, &value);
            let read: serde_json::Value = serde_json::from_str(&body).unwrap();
            prop_assert_eq!(read["a"].as_str().unwrap(), format!("x{value}y"));
        }

        #[test]
        fn any_text_is_a_template(text in "[{}a\"\\\\ü ]{0,40}") {
            let placeholders = BodyTemplate::parse(&text, true).unwrap().placeholders().count();
            prop_assert!(placeholders <= text.len());
        }
    }
}
