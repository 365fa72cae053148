//! Messages between client and server inside Flight's opaque fields, all JSON: tickets, commands of descriptors,
//! criteria of listings, and metadata of objects. In: bytes of such a field. Out: checked values, or a sentence. No
//! I/O, no Arrow.
//!
//! ```text
//! {"table":"ctr"}                                       every row of features/ctr.rows, as typed columns
//! {"table":"ctr","ids":[7,3],"version":"…"}             these rows in this order, of this version
//! {"table":"ctr","ids":[7,3],"form":"rows"}             the same rows as they lie in the file, checksums included
//! {"object":"models/ctr/1/model.onnx"}                  a whole object, as `bytes`
//! {"object":"…","ranges":[[0,64],[4096,8192]],"version":"…"}   these ranges of it (start and end), of this version
//! ```
//! A descriptor is the path `[TABLE]`, or a ticket as its command. Without `version` the newest version is read.

use crate::path::ObjectPath;
use crate::tier::Object;
use arrow_flight::FlightDescriptor;
use arrow_flight::flight_descriptor::DescriptorType;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use tierlab_formats::model::{FEATURES_PREFIX, is_plain_name};
use tierlab_formats::table::EXTENSION;

/// The type of the action that removes an object; a server that lists it speaks of objects and their ranges.
pub const DELETE_ACTION: &str = "tierlab.delete";
/// Trailer of an error with its [`ErrorKind`](crate::ErrorKind), which gRPC's codes cannot express.
pub(super) const KIND_KEY: &str = "tierlab-kind";

/// Encoding of rows in a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Typed columns: `entity_id` and one column per column of the table.
    #[default]
    Columns,
    /// Stored row bytes, checksums included, in a single column `row`.
    Rows,
}

/// Request of a ticket or a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ticket {
    /// Rows of a feature table.
    Table {
        /// Name of the table; its object is `features/NAME.rows`.
        table: String,
        /// Ids of the wanted rows, in reply order; `None` for all rows.
        ids: Option<Vec<i64>>,
        /// Encoding of the rows.
        form: Form,
        /// Required version.
        version: Option<String>,
    },
    /// Bytes of an object.
    Object {
        /// Path of the object.
        object: ObjectPath,
        /// Wanted ranges, in reply order; `None` for the whole object.
        ranges: Option<Vec<Range<u64>>>,
        /// Required version.
        version: Option<String>,
    },
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    form: Option<Form>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Vec<[u64; 2]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

impl Ticket {
    /// Reads a ticket, or the command of a descriptor.
    ///
    /// # Errors
    /// A sentence that says how to write one.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let raw: Raw<'_> = serde_json::from_slice(json)
            .map_err(|e| format!("no ticket: {e}; write it as {{\"table\":NAME}} or {{\"object\":PATH}}"))?;
        match (raw.table, raw.object) {
            (Some(table), None) if raw.ranges.is_none() => {
                check_name(&table)?;
                Ok(Self::Table {
                    table,
                    ids: raw.ids,
                    form: raw.form.unwrap_or_default(),
                    version: raw.version,
                })
            }
            (None, Some(object)) if raw.ids.is_none() && raw.form.is_none() => Ok(Self::Object {
                object: ObjectPath::new(&object).map_err(|e| e.to_string())?,
                ranges: raw
                    .ranges
                    .map(|ranges| ranges.into_iter().map(|[start, end]| start..end).collect()),
                version: raw.version,
            }),
            (Some(_), None) => Err("`ranges` go with `object`, not with `table`".into()),
            (None, Some(_)) => Err("`ids` and `form` go with `table`, not with `object`".into()),
            _ => Err("a ticket names one of `table` and `object`".into()),
        }
    }

    /// Reads a descriptor: the path of one table's name, or a ticket as its command.
    ///
    /// # Errors
    /// Same as [`Ticket::parse`].
    pub fn of_descriptor(descriptor: &FlightDescriptor) -> Result<Self, String> {
        if descriptor.r#type == DescriptorType::Cmd as i32 {
            return Self::parse(&descriptor.cmd);
        }
        let [table] = &descriptor.path[..] else {
            return Err(
                "a descriptor's path is one table's name; for an object, use the command {\"object\":PATH}".into(),
            );
        };
        check_name(table)?;
        Ok(Self::Table {
            table: table.clone(),
            ids: None,
            form: Form::default(),
            version: None,
        })
    }

    /// The object that it is about.
    ///
    /// # Errors
    /// A name that is no object path.
    pub fn object(&self) -> Result<ObjectPath, String> {
        match self {
            Self::Object { object, .. } => Ok(object.clone()),
            Self::Table { table, .. } => table_path(table),
        }
    }

    /// The version asked for.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        match self {
            Self::Object { version, .. } | Self::Table { version, .. } => version.as_deref(),
        }
    }

    /// Encodes the request as the bytes of a ticket.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let raw = match self.clone() {
            Self::Table {
                table,
                ids,
                form,
                version,
            } => Raw {
                table: Some(table),
                ids,
                form: (form != Form::default()).then_some(form),
                version,
                ..Raw::default()
            },
            Self::Object {
                object,
                ranges,
                version,
            } => Raw {
                object: Some(object.as_str().to_owned().into()),
                ranges: ranges.map(|ranges| ranges.into_iter().map(|range| [range.start, range.end]).collect()),
                version,
                ..Raw::default()
            },
        };
        to_json(&raw)
    }
}

fn check_name(table: &str) -> Result<(), String> {
    if is_plain_name(table) {
        Ok(())
    } else {
        Err(format!("{table:?} is no table's name"))
    }
}

/// Path of a table's object.
///
/// # Errors
/// Fails if the name cannot be part of an object path.
pub fn table_path(table: &str) -> Result<ObjectPath, String> {
    ObjectPath::new(&format!("{FEATURES_PREFIX}/{table}.{EXTENSION}")).map_err(|e| e.to_string())
}

/// Name of the table that an object is; `None` for other objects.
#[must_use]
pub fn table_name(path: &ObjectPath) -> Option<&str> {
    let file = path.as_str().strip_prefix(FEATURES_PREFIX)?.strip_prefix('/')?;
    let name = file.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    is_plain_name(name).then_some(name)
}

/// Metadata of an object in its FlightInfo and in the result of a put.
#[derive(Debug, Serialize, Deserialize)]
pub struct About {
    object: String,
    size: u64,
    version: String,
}

impl About {
    /// Encodes an object as metadata.
    #[must_use]
    pub fn encode(object: &Object) -> Vec<u8> {
        to_json(&Self {
            object: object.path.to_string(),
            size: object.size,
            version: object.version.clone(),
        })
    }

    /// Reads such metadata.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn parse(json: &[u8]) -> Result<Object, String> {
        let about: Self = serde_json::from_slice(json).map_err(|e| format!("the server tells no object: {e}"))?;
        Ok(Object {
            path: ObjectPath::new(&about.object).map_err(|e| e.to_string())?,
            size: about.size,
            version: about.version,
        })
    }
}

/// Command of a put's descriptor. The size comes first, so that an upload that ends early is never taken as whole.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutCommand {
    /// Path of the object.
    pub object: String,
    /// Size in bytes.
    pub size: u64,
}

/// The body of [`DELETE_ACTION`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteCommand {
    /// Path of the object.
    pub object: String,
}

/// Expression of a listing. An empty expression lists tables.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criteria {
    /// Every object, tables or not.
    #[serde(default)]
    pub objects: bool,
    /// Only at and below this path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<String>,
}

/// JSON of values that always have one: no maps with odd keys, no failing implementations.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tickets_read_as_documented() {
        let table = |ids, form, version| Ticket::Table {
            table: "ctr".into(),
            ids,
            form,
            version,
        };
        for (json, want) in [
            (r#"{"table":"ctr"}"#, table(None, Form::Columns, None)),
            (
                r#"{"table":"ctr","ids":[7,-3],"version":"v"}"#,
                table(Some(vec![7, -3]), Form::Columns, Some("v".into())),
            ),
            (
                r#"{"table":"ctr","ids":[7],"form":"rows"}"#,
                table(Some(vec![7]), Form::Rows, None),
            ),
        ] {
            assert_eq!(Ticket::parse(json.as_bytes()).unwrap(), want);
        }
        let descriptor = FlightDescriptor::new_path(vec!["ctr".into()]);
        assert_eq!(
            Ticket::of_descriptor(&descriptor).unwrap(),
            table(None, Form::Columns, None)
        );
        let path = table_path("ctr").unwrap();
        assert_eq!((path.as_str(), table_name(&path)), ("features/ctr.rows", Some("ctr")));
        assert_eq!(table_name(&ObjectPath::new("features/a/b.rows").unwrap()), None);
    }

    #[test]
    fn bad_tickets_are_refused() {
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"table":"../x"}"#,
            r#"{"table":"a/b"}"#,
            r#"{"object":"../x"}"#,
            r#"{"object":"/etc/passwd"}"#,
            r#"{"table":"ctr","object":"x"}"#,
            r#"{"table":"ctr","ranges":[]}"#,
            r#"{"object":"x","ids":[1]}"#,
            r#"{"object":"x","ranges":[[1]]}"#,
            r#"{"object":"x","ranges":[[-1,2]]}"#,
            r#"{"table":"ctr","id":[1]}"#,
        ] {
            assert!(Ticket::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        for path in [vec![], vec!["a".to_owned(), "b".to_owned()], vec!["..".to_owned()]] {
            assert!(Ticket::of_descriptor(&FlightDescriptor::new_path(path)).is_err());
        }
    }

    proptest! {
        #[test]
        fn tickets_read_back(
            ids in proptest::option::of(proptest::collection::vec(any::<i64>(), 0..20)),
            ranges in proptest::option::of(proptest::collection::vec(any::<(u64, u64)>(), 0..20)),
            version in proptest::option::of(".{0,20}"),
            rows: bool,
        ) {
            let form = if rows { Form::Rows } else { Form::Columns };
            let table = Ticket::Table { table: "ctr".into(), ids, form, version: version.clone() };
            prop_assert_eq!(Ticket::parse(&table.encode()).unwrap(), table);
            let ranges = ranges.map(|ranges| ranges.into_iter().map(|(a, b)| a..b).collect());
            let object = Ticket::Object { object: ObjectPath::new("a/b \"ü").unwrap(), ranges, version };
            prop_assert_eq!(Ticket::parse(&object.encode()).unwrap(), object);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Ticket::parse(&bytes);
            let _ = About::parse(&bytes);
        }
    }
}
