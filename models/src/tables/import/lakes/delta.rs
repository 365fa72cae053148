//! Tables of Delta: the files of the newest version, and its columns. In: the names below a table's folder, and the
//! files of its log. Out: the files that were added and not removed. Source: the Delta Lake protocol, "Actions",
//! "Checkpoints" and "Reader Requirements".
//!
//! A version is the log from version 0, or from a checkpoint, which holds the state of its version: older logs may be
//! removed.

use super::super::read::catch_panic;
use super::columns::{FileColumns, TableColumn, of_schema};
use super::{ChosenFiles, Listing, percent_decoded};
use crate::error::ModelsError;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int32Type;
use arrow_array::{Array, StructArray};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

const LOG: &str = "_delta_log/";
/// Table property for the names or ids of columns in the files.
const MAPPING: &str = "delta.columnMapping.mode";
const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";
const FIELD_ID: &str = "delta.columnMapping.id";
/// Supported reader features; some are refused if a table makes use of them.
const FEATURES: [&str; 8] = [
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
];
/// Newest reader version whose features are all in the list.
const READER_VERSION: i32 = 3;

type Values = BTreeMap<String, Option<String>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Action {
    add: Option<Add>,
    remove: Option<Remove>,
    meta_data: Option<MetaData>,
    protocol: Option<Protocol>,
    /// Only in checkpoints.
    sidecar: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Add {
    path: String,
    #[serde(default)]
    partition_values: Values,
    /// Some of its rows are deleted.
    deletion_vector: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Remove {
    path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaData {
    schema_string: String,
    #[serde(default)]
    configuration: Values,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Protocol {
    #[serde(default)]
    min_reader_version: i32,
    reader_features: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct DeltaSchema {
    fields: Vec<DeltaField>,
}

#[derive(Deserialize)]
struct DeltaField {
    name: String,
    #[serde(rename = "type")]
    kind: Value,
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
}

/// State of a table at a version.
#[derive(Default)]
struct TableState {
    live: BTreeMap<String, Add>,
    metadata: Option<MetaData>,
    protocol: Option<Protocol>,
}

/// True if a folder is a table of Delta.
pub(in super::super) fn is_table(folder: &Listing) -> bool {
    folder.files.keys().any(|name| name.starts_with(LOG))
}

/// Follows the log from its beginning, or from its newest checkpoint if the beginning is gone.
pub(in super::super) fn choose(
    folder: &Listing,
    read: &dyn Fn(&str) -> Result<Vec<u8>, ModelsError>,
) -> Result<ChosenFiles, ModelsError> {
    let bad = |what: anyhow::Error| ModelsError::bad(&folder.name, &format!("a table of Delta: {what}"));
    let logs = logs(folder);
    let mut state = TableState::default();
    let mut next = 0;
    // A complete log needs no checkpoint, so a damaged or unsupported checkpoint does not matter.
    let is_complete = (0..).zip(&logs).all(|(wanted, (version, _))| *version == wanted) && !logs.is_empty();
    if let Some((version, parts)) = newest_checkpoint(folder).filter(|_| !is_complete) {
        for name in parts {
            let bytes = read(name)?;
            // Its reader may panic on damage.
            let added = catch_panic(|| state.add_parquet(bytes));
            added.map_err(|what| bad(anyhow!("{name}: no checkpoint: {what}")))?;
        }
        next = version + 1;
    }
    let first = next;
    for (version, name) in logs.into_iter().filter(|&(version, _)| version >= first) {
        if version != next {
            return Err(bad(anyhow!(
                "version {next} is not in its log, and no readable checkpoint follows it (those with sidecars are not supported): rewrite \
                 the table, or name its Parquet files one by one"
            )));
        }
        state
            .add_log(&read(name)?)
            .map_err(|what| bad(anyhow!("{name}, {what}")))?;
        next += 1;
    }
    let newest = next.checked_sub(1);
    let newest = newest.ok_or_else(|| bad(anyhow!("its log has no versions")))?;
    state.check(folder).map_err(bad)?;
    let columns = state.columns().map_err(bad)?;
    let version = format!("Delta at version {newest}");
    Ok(ChosenFiles::of_version(folder, LOG, columns, &version))
}

/// Returns the versions of the log, in order.
fn logs(folder: &Listing) -> Vec<(u64, &String)> {
    let logs = folder.files.keys().filter_map(|name| {
        let version = name.strip_prefix(LOG)?.strip_suffix(".json")?;
        Some((parse_number(version, 20)?, name))
    });
    let mut logs: Vec<(u64, &String)> = logs.collect();
    logs.sort();
    logs
}

/// Parses a number with a fixed number of digits.
fn parse_number(text: &str, digits: usize) -> Option<u64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Returns the newest version with a complete checkpoint, and its files: one, or as many as each of them says.
fn newest_checkpoint(folder: &Listing) -> Option<(u64, Vec<&String>)> {
    let mut found: BTreeMap<(u64, u64), Vec<&String>> = BTreeMap::new();
    for name in folder.files.keys() {
        let steps = name.strip_prefix(LOG).map(|name| name.split('.').collect::<Vec<_>>());
        let (version, parts) = match steps.as_deref() {
            Some([version, "checkpoint", "parquet"]) => (version, 1),
            Some([version, "checkpoint", part, count, "parquet"]) if parse_number(part, 10).is_some() => {
                (version, parse_number(count, 10).unwrap_or(0))
            }
            _ => continue,
        };
        if let Some(version) = parse_number(version, 20) {
            found.entry((version, parts)).or_default().push(name);
        }
    }
    let mut newest_first = found.into_iter().rev();
    let complete = newest_first.find(|((_, parts), names)| names.len() as u64 == *parts);
    complete.map(|((version, _), names)| (version, names))
}

impl TableState {
    /// Adds one file of the log.
    fn add_log(&mut self, text: &[u8]) -> Result<()> {
        let lines = text.split(|&byte| byte == b'\n').enumerate();
        let lines = lines.filter(|(_, text)| !text.iter().all(u8::is_ascii_whitespace));
        let action =
            |(line, text)| serde_json::from_slice(text).map_err(|e| anyhow!("line {}: no action: {e}", line + 1));
        self.apply(lines.map(action).collect::<Result<_>>()?)
    }

    fn apply(&mut self, actions: Vec<Action>) -> Result<()> {
        let mut added = Vec::new();
        for action in actions {
            if action.sidecar.is_some() {
                bail!("its files are listed in sidecars, which are not supported");
            }
            if let Some(remove) = action.remove {
                self.live.remove(&percent_decoded(&remove.path));
            }
            self.metadata = action.meta_data.or(self.metadata.take());
            self.protocol = action.protocol.or(self.protocol.take());
            added.extend(action.add);
        }
        // A commit may replace a file by itself with other rows deleted, so removals are applied first, whatever their
        // order.
        let added = added.into_iter().map(|add: Add| (percent_decoded(&add.path), add));
        self.live.extend(added);
        Ok(())
    }

    /// Adds one file of a checkpoint.
    fn add_parquet(&mut self, bytes: Vec<u8>) -> Result<()> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes))?;
        let wanted = [
            "add.path",
            "add.partitionValues",
            "add.deletionVector",
            "metaData.schemaString",
            "metaData.configuration",
            "protocol.minReaderVersion",
            "protocol.readerFeatures",
            "sidecar.path",
        ];
        let mask = ProjectionMask::columns(builder.parquet_schema(), wanted);
        let reader = builder.with_projection(mask).build()?;
        for batch in reader {
            let batch = StructArray::from(batch?);
            ensure!(batch.column_by_name("add").is_some(), "no files that it adds");
            let action = |row| serde_json::from_value(row_to_json(&batch, row));
            self.apply((0..batch.len()).map(action).collect::<Result<_, _>>()?)?;
        }
        Ok(())
    }

    /// Checks that all features required of a reader are supported.
    fn check(&self, folder: &Listing) -> Result<()> {
        let protocol = self.protocol.as_ref().context("its log has no protocol")?;
        let mut features = protocol.reader_features.iter().flatten();
        if let Some(feature) = features.find(|feature| !FEATURES.contains(&feature.as_str())) {
            bail!("the reader feature `{feature}` is not supported: rewrite the table without it");
        }
        let version = protocol.min_reader_version;
        ensure!(
            version <= READER_VERSION,
            "it needs reader version {version}, the newest supported is {READER_VERSION}: rewrite the table"
        );
        if let Some((name, _)) = self.live.iter().find(|(_, live)| live.deletion_vector.is_some()) {
            bail!(
                "{name} has a deletion vector, which is not supported: rewrite the table with `REORG TABLE ... APPLY (PURGE)`"
            );
        }
        match self.live.keys().find(|name| !folder.files.contains_key(*name)) {
            Some(missing) => bail!("its log names {missing}, which does not exist"),
            None => Ok(()),
        }
    }

    /// Returns the columns of each file, by the newest schema.
    fn columns(&self) -> Result<BTreeMap<String, FileColumns>> {
        let metadata = self.metadata.as_ref().context("its log has no schema")?;
        let schema: DeltaSchema =
            serde_json::from_str(&metadata.schema_string).map_err(|e| anyhow!("its schema cannot be read: {e}"))?;
        let mode = metadata.configuration.get(MAPPING).and_then(Option::as_deref);
        let mode = mode.unwrap_or("none");
        ensure!(["none", "name", "id"].contains(&mode), "unknown `{MAPPING}` `{mode}`");
        let mut table = Vec::new();
        for field in schema.fields {
            let bad = |what: &dyn std::fmt::Display| anyhow!("column `{}`: {what}", field.name);
            let physical = field.metadata.get(PHYSICAL_NAME).and_then(Value::as_str);
            let id = field.metadata.get(FIELD_ID).and_then(Value::as_i64);
            let id = id.and_then(|id| i32::try_from(id).ok());
            let name_in_files = match mode {
                "none" => &field.name,
                _ => physical.ok_or_else(|| bad(&"its schema has no name for it in the files"))?,
            };
            table.push(TableColumn {
                arrow: of_schema(&field.kind).map_err(|what| bad(&what))?,
                id: id.filter(|_| mode == "id"),
                file_names: vec![name_in_files.to_owned()],
                default: None,
                name: field.name,
            });
        }
        let table = Arc::new(table);
        let file_columns = |(name, live): (&String, &Add)| {
            let columns = FileColumns::of_table(&table, |column| {
                let value = live.partition_values.get(&column.file_names[0])?.clone();
                Some(value.filter(|value| !value.is_empty()))
            });
            (name.clone(), columns)
        };
        Ok(self.live.iter().map(file_columns).collect())
    }
}

/// A row of a checkpoint, as a log has it: without the fields that are null.
fn row_to_json(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    if let Some(fields) = array.as_struct_opt() {
        let fields = fields.column_names().into_iter().zip(fields.columns());
        let fields = fields.map(|(name, field)| (name.to_owned(), row_to_json(field, row)));
        return Value::Object(fields.filter(|(_, value)| !value.is_null()).collect());
    }
    if let Some(entries) = array.as_map_opt().map(|map| map.value(row)) {
        let [keys, values] = [0, 1].map(|column| entries.column(column));
        let key = |at: usize| keys.as_string_opt::<i32>().map(|keys| keys.value(at).to_owned());
        let pairs = (0..entries.len()).filter_map(|at| Some((key(at)?, row_to_json(values, at))));
        return Value::Object(pairs.collect());
    }
    if let Some(list) = array.as_list_opt::<i32>().map(|list| list.value(row)) {
        return Value::Array((0..list.len()).map(|at| row_to_json(&list, at)).collect());
    }
    if let Some(texts) = array.as_string_opt::<i32>() {
        return texts.value(row).into();
    }
    let numbers = array.as_primitive_opt::<Int32Type>();
    numbers.map(|numbers| numbers.value(row)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Actions at the beginning of every log.
    const BEGIN: &str = r#"{"protocol":{"minReaderVersion":1}}
{"metaData":{"schemaString":"{\"fields\":[{\"name\":\"d\",\"type\":\"string\",\"metadata\":{}}]}"}}
"#;

    fn follow(logs: &[&str]) -> Result<ChosenFiles, ModelsError> {
        let name = |version: usize| format!("{LOG}{version:020}.json");
        let mut names: Vec<String> = (0..logs.len()).map(name).collect();
        names.extend(["a.parquet", "b.parquet", "d=x y/c.parquet"].map(str::to_owned));
        let read = |wanted: &str| {
            let at = (0..logs.len()).find(|&version| name(version) == wanted).unwrap();
            Ok(format!("{BEGIN}{}", logs[at]).into_bytes())
        };
        let listing = Listing {
            name: "t".into(),
            files: names.into_iter().map(|name| (name, 0)).collect(),
        };
        choose(&listing, &read)
    }

    #[test]
    fn what_was_removed_is_not_read() {
        let chosen = follow(&[
            "{\"add\":{\"path\":\"a.parquet\"}}\n{\"add\":{\"path\":\"d=x%20y/c.parquet\"}}\n",
            "{\"remove\":{\"path\":\"a.parquet\"}}\n{\"add\":{\"path\":\"b.parquet\",\"deletionVector\":null}}",
        ]);
        let chosen = chosen.unwrap();
        assert!(chosen.files.keys().eq(["b.parquet", "d=x y/c.parquet"]));
        assert!(chosen.skipped[0].contains("version 1: 1 files"), "{:?}", chosen.skipped);
    }

    #[test]
    fn deleted_rows_count_only_in_files_that_are_still_there() {
        let with = "{\"add\":{\"path\":\"a.parquet\",\"deletionVector\":{\"storageType\":\"u\"}}}";
        let (add, remove) = (
            "{\"add\":{\"path\":\"a.parquet\"}}",
            "{\"remove\":{\"path\":\"a.parquet\"}}",
        );
        // Written by deltalake for every table with deletion vectors.
        let features = r#"{"protocol":{"minReaderVersion":3,"readerFeatures":["deletionVectors","variantType"]}}"#;
        assert!(follow(&[&format!("{features}\n{add}")]).is_ok());
        // A commit may list additions before removals.
        let deleted = format!("{with}\n{remove}");
        let refused = follow(&[add, &deleted]).unwrap_err().to_string();
        assert!(refused.contains("deletion vector"), "{refused}");
        let purged = format!("{remove}\n{{\"add\":{{\"path\":\"b.parquet\"}}}}");
        assert!(
            follow(&[add, &deleted, &purged])
                .unwrap()
                .files
                .keys()
                .eq(["b.parquet"])
        );
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for (log, word) in [
            ("{\"add\":{\"path\":\"z.parquet\"}}", "z.parquet"),
            ("no json", "line 3"),
            (
                r#"{"metaData":{"schemaString":"{\"fields\":[{\"name\":\"x\",\"type\":\"long\"}]}","configuration":{"delta.columnMapping.mode":"name"}}}"#,
                "no name for it in the files",
            ),
            (
                r#"{"protocol":{"minReaderVersion":3,"readerFeatures":["columnMapping","catalogManaged"]}}"#,
                "`catalogManaged`",
            ),
            (r#"{"protocol":{"minReaderVersion":4}}"#, "version 4"),
            (
                r#"{"metaData":{"schemaString":"{\"fields\":[{\"name\":\"x\",\"type\":\"variant\"}]}"}}"#,
                "`variant`",
            ),
            (
                "{\"add\":{\"path\":\"a.parquet\",\"deletionVector\":{}}}",
                "deletion vector",
            ),
        ] {
            let error = follow(&[log]).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_newest_whole_checkpoint_is_the_one_to_begin_from() {
        let found = |names: &[&str]| {
            let files = names.iter().map(|name| (format!("{LOG}{name}"), 0)).collect();
            let name = "t".into();
            let found = newest_checkpoint(&Listing { name, files })?.0;
            Some(found)
        };
        let (ten, part) = (
            "00000000000000000010.checkpoint.parquet",
            "00000000000000000020.checkpoint.0000000001.0000000002.parquet",
        );
        assert_eq!(found(&[ten, "00000000000000000011.json"]), Some(10));
        assert_eq!(found(&[ten, part]), Some(10));
        let other = part.replace("0000000001.", "0000000002.");
        assert_eq!(found(&[ten, part, &other]), Some(20));
        let with_sidecars = "00000000000000000030.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet";
        assert_eq!(found(&[with_sidecars, "00000000000000000010.json"]), None);
    }
}
