//! Self-describing tables: Delta by its log, Iceberg by its metadata, folders by their `column=value` names. In: the
//! names below a folder and its small files. Out: the files of the table, and its columns in each of them. Reads no
//! rows.

pub(super) mod columns;
pub(super) mod delta;
pub(super) mod hive;
pub(super) mod iceberg;
mod manifests;
mod types;
