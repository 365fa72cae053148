//! Tickets: the JSON inside Flight's opaque field. In: bytes. Out: checked values, or an error. No I/O, no Arrow.
//!
//! ```text
//! {"table":"ctr"}                             every row of features/ctr.rows
//! {"table":"ctr","ids":[7,3],"version":"…"}   these rows in this order, of this version
//! ```
//! A descriptor is the path `[TABLE]`, or a ticket as its command. Without `version` the newest version is read.

use crate::ObjectPath;
use arrow_flight::FlightDescriptor;
use arrow_flight::flight_descriptor::DescriptorType;
use serde::{Deserialize, Serialize};
use tierlab_formats::model::{FEATURES_PREFIX, is_plain_name};
use tierlab_formats::table::EXTENSION;

/// Rows of a feature table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableTicket {
    /// Name of the table; its object is `features/NAME.rows`.
    pub table: String,
    /// Ids of the requested rows, in reply order; `None` for all rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<i64>>,
    /// Required version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl TableTicket {
    /// Reads a ticket, or the command of a descriptor.
    ///
    /// # Errors
    /// Says how to write a ticket.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let ticket = serde_json::from_slice(json)
            .map_err(|e| format!("invalid ticket: {e}; write {{\"table\":NAME}}, with \"ids\":[...] to select rows"))?;
        Self::checked(ticket)
    }

    /// Reads a descriptor: a path with one table's name, or a ticket as its command.
    ///
    /// # Errors
    /// Same as [`TableTicket::parse`].
    pub fn of_descriptor(descriptor: &FlightDescriptor) -> Result<Self, String> {
        if descriptor.r#type == DescriptorType::Cmd as i32 {
            return Self::parse(&descriptor.cmd);
        }
        let [table] = &descriptor.path[..] else {
            return Err("invalid descriptor: the path must be one table's name".into());
        };
        Self::checked(Self {
            table: table.clone(),
            ids: None,
            version: None,
        })
    }

    fn checked(ticket: Self) -> Result<Self, String> {
        match is_plain_name(&ticket.table) {
            true => Ok(ticket),
            false => Err(format!("invalid table name: {:?}", ticket.table)),
        }
    }

    /// Encodes the ticket as bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Never fails: no maps with non-string keys, no fallible implementations.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Path of a table's object.
///
/// # Errors
/// Fails if the name is not valid in an object path.
pub fn table_path(table: &str) -> Result<ObjectPath, String> {
    ObjectPath::new(&format!("{FEATURES_PREFIX}/{table}.{EXTENSION}")).map_err(|e| e.to_string())
}

/// Name of the table of an object; `None` for other objects.
pub fn table_name(path: &ObjectPath) -> Option<&str> {
    let file = path.as_str().strip_prefix(FEATURES_PREFIX)?.strip_prefix('/')?;
    let name = file.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    is_plain_name(name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tickets_read_as_documented() {
        let ticket = |ids, version| TableTicket {
            table: "ctr".into(),
            ids,
            version,
        };
        for (json, want) in [
            (r#"{"table":"ctr"}"#, ticket(None, None)),
            (
                r#"{"table":"ctr","ids":[7,-3],"version":"v"}"#,
                ticket(Some(vec![7, -3]), Some("v".into())),
            ),
        ] {
            assert_eq!(TableTicket::parse(json.as_bytes()).unwrap(), want);
        }
        let descriptor = FlightDescriptor::new_path(vec!["ctr".into()]);
        assert_eq!(TableTicket::of_descriptor(&descriptor).unwrap(), ticket(None, None));
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
            r#"{"object":"x"}"#,
            r#"{"table":"ctr","id":[1]}"#,
            r#"{"table":"ctr","ids":[0.5]}"#,
        ] {
            assert!(TableTicket::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        for path in [vec![], vec!["a".to_owned(), "b".to_owned()], vec!["..".to_owned()]] {
            assert!(TableTicket::of_descriptor(&FlightDescriptor::new_path(path)).is_err());
        }
    }

    proptest! {
        #[test]
        fn tickets_read_back(
            ids in proptest::option::of(proptest::collection::vec(any::<i64>(), 0..20)),
            version in proptest::option::of(".{0,20}"),
        ) {
            let ticket = TableTicket { table: "ctr".into(), ids, version };
            prop_assert_eq!(TableTicket::parse(&ticket.encode()).unwrap(), ticket);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = TableTicket::parse(&bytes);
        }
    }
}
