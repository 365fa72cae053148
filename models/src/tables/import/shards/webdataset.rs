//! Tar archives of samples, named as `WebDataset` defines: `KEY.EXTENSION`, a sample's files one after another. In: a
//! file. Out: samples with a value for each extension, and the key as `__key__`.
//!
//! Source of the names and of the extensions' contents: <https://github.com/webdataset/webdataset>, "the `WebDataset`
//! format".

use super::Window;
use super::samples::{ShardSample, Value, exact_float};
use anyhow::{Context as _, Result, anyhow, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tierlab_formats::npy;
use tierlab_formats::shards::tar::Walk;
use tierlab_formats::shards::{MAX_SAMPLE_BYTES, key_and_extension};
use tierlab_protocol::tensor::DataType;

/// Column of keys, named as by webdataset's own readers.
const KEY: &str = "__key__";
/// Extensions of files with an integer in digits.
const INTS: [&str; 7] = ["cls", "cls2", "class", "count", "index", "inx", "id"];
/// Maximum files of one sample.
const MAX_FILES: usize = 10_000;

/// Passes samples on, each with the offset of its end, until the callback returns false. Returns the last offset. Files
/// that no column needs are not read from the disk; those of the columns `texts` are texts.
pub(super) fn for_each_sample<E: From<anyhow::Error>>(
    path: &Path,
    texts: &[String],
    columns: Option<&[&str]>,
    on_sample: &mut dyn FnMut(ShardSample, u64) -> Result<bool, E>,
) -> Result<u64, E> {
    let is_part = |column: &&str, extension: &str| {
        let rest = column.strip_prefix(extension);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let wanted =
        |extension: &str| columns.is_none_or(|columns| columns.iter().any(|column| is_part(column, extension)));
    let mut file = Window::open(path)?;
    let mut walk = Walk::new(file.len);
    let mut current: Option<SampleFiles> = None;
    while let Some(member) = walk.next(|range, out| file.get(range).map(|bytes| out.extend_from_slice(bytes)))? {
        let Some((key, extension)) = key_and_extension(&member.name) else {
            continue;
        };
        if let Some(complete) = current.take_if(|files| files.key != key)
            && !on_sample(complete.sample(), member.start)?
        {
            return Ok(member.start);
        }
        let files = current.get_or_insert_with(|| SampleFiles {
            key: key.to_owned(),
            ..SampleFiles::default()
        });
        let bytes = wanted(extension).then(|| file.get(member.body)).transpose()?;
        let is_text = texts.iter().any(|column| column == extension);
        files.add(extension, is_text, bytes, member.start)?;
    }
    if !walk.has_ended() {
        let what = "it lacks the blocks of zeros that end an archive: it is truncated or unfinished; pack it again";
        return Err(anyhow!("tar, offset {}: {what}", file.len).into());
    }
    if let Some(complete) = current {
        on_sample(complete.sample(), file.len)?;
    }
    Ok(file.len)
}

/// Files of one sample.
#[derive(Default)]
struct SampleFiles {
    key: String,
    seen: BTreeSet<String>,
    bytes: u64,
    values: BTreeMap<String, Value>,
    /// First file that could not be read.
    error: Option<String>,
}

impl SampleFiles {
    fn add(&mut self, extension: &str, is_text: bool, bytes: Option<&[u8]>, offset: u64) -> Result<()> {
        let fail = |what: &str| Err(anyhow!("offset {offset}: sample `{}`: {what}", self.key));
        if !self.seen.insert(extension.to_owned()) {
            let what = format!("has two files `.{extension}`; are two samples of one key beside each other?");
            return fail(&what);
        }
        self.bytes += bytes.map_or(0, <[u8]>::len) as u64;
        if self.seen.len() > MAX_FILES || self.bytes > MAX_SAMPLE_BYTES {
            return fail(&format!("more than {MAX_FILES} files or {MAX_SAMPLE_BYTES} bytes"));
        }
        if let Some(Err(what)) = bytes.map(|bytes| values(extension, is_text, bytes, &mut self.values)) {
            let what = what.to_string();
            self.error.get_or_insert_with(|| format!(".{extension}: {what}"));
            self.values.insert(extension.to_owned(), Value::Unreadable(what));
        }
        Ok(())
    }

    fn sample(self) -> ShardSample {
        let (name, mut values, error) = (self.key, self.values, self.error);
        values.insert(KEY.to_owned(), Value::Text(name.clone()));
        ShardSample { name, values, error }
    }
}

/// Parses a file by its extension, unless it is a text.
fn values(extension: &str, is_text: bool, bytes: &[u8], into: &mut BTreeMap<String, Value>) -> Result<()> {
    let last = extension.rsplit('.').next().filter(|_| !is_text).unwrap_or("txt");
    let text = || std::str::from_utf8(bytes).map_err(|_| anyhow!("no UTF-8"));
    let value = match last {
        "npy" => {
            let array = npy::read(bytes)?;
            ensure!(array.dtype != DataType::Bytes, "an array of texts, which no row holds");
            Value::Numbers {
                dtype: array.dtype,
                is_list: Some(!array.shape.is_empty()),
                bytes: array.data,
            }
        }
        "json" => {
            return add_json(extension, serde_json::from_slice(bytes)?, into);
        }
        "txt" | "text" | "transcript" => Value::Text(text()?.to_owned()),
        last if INTS.contains(&last) => {
            let text = text()?.trim();
            let shortened: String = text.chars().take(40).collect();
            let int = text.parse().map_err(|_| anyhow!("`{shortened}` is not an integer"))?;
            Value::int(int)
        }
        _ => Value::bytes(bytes.to_vec()),
    };
    into.insert(extension.to_owned(), value);
    Ok(())
}

/// Converts an object's members to columns `EXTENSION.MEMBER`. Supports numbers, lists of numbers and texts, but no
/// deeper nesting.
fn add_json(extension: &str, json: serde_json::Value, into: &mut BTreeMap<String, Value>) -> Result<()> {
    use serde_json::Value as Json;
    let members = match json {
        Json::Object(members) => members
            .into_iter()
            .map(|(name, value)| (format!("{extension}.{name}"), value))
            .collect(),
        other => vec![(extension.to_owned(), other)],
    };
    for (name, json) in members {
        let value = match &json {
            Json::Null => continue,
            Json::Bool(is) => Value::int(i64::from(*is)),
            Json::Number(_) => numbers(std::slice::from_ref(&json), false)
                .with_context(|| format!("`{name}`: {json} is beyond INT64"))?,
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(items) => numbers(items, true).unwrap_or_else(|| Value::Nested(json.to_string().into_bytes())),
            Json::Object(_) => Value::Nested(json.to_string().into_bytes()),
        };
        into.insert(name, value);
    }
    Ok(())
}

/// Returns integers if all are, else doubles, unless they round an integer.
fn numbers(items: &[serde_json::Value], is_list: bool) -> Option<Value> {
    let ints: Option<Vec<[u8; 8]>> = items.iter().map(|item| Some(item.as_i64()?.to_le_bytes())).collect();
    let is_exact = |item: &serde_json::Value| item.is_f64() || item.is_i64();
    let double = |item: &serde_json::Value| Some(item.as_f64().filter(|_| is_exact(item))?.to_le_bytes());
    let (dtype, elements) = match ints {
        Some(ints) => (DataType::Int64, ints),
        None => (DataType::Fp64, items.iter().map(double).collect::<Option<_>>()?),
    };
    let mut ints = items.iter().filter_map(serde_json::Value::as_i64);
    match ints.find_map(|int| exact_float(int).err()) {
        Some(what) if dtype == DataType::Fp64 => Some(Value::Unreadable(what.to_string())),
        _ => Some(Value::Numbers {
            dtype,
            is_list: Some(is_list),
            bytes: elements.concat(),
        }),
    }
}
