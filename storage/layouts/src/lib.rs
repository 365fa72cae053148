//! Feature tables in several layouts, over any tier.
//!
//! In: a table in the rows format ([`lay_out`]), or a folder with a laid-out table ([`Table::open`]). Out: rows, byte
//! for byte those of the rows format, and their cost. This crate knows nothing of models, requests or load.
//!
//! - [`layout`]: the layouts
//! - [`manifest`]: description of a folder's table
//! - [`write`](mod@write): from rows to a layout, shard by shard
//! - [`prune`]: removal of shards of earlier versions
//! - [`table`]: look-ups of one key and of many, and scans
//! - [`rows_tier`]: a tier that shows laid-out tables as files of the rows format, for readers that know only that
//!   format
//!
//! ```text
//! FOLDER/layout.json                       the manifest; it is written last, and replacing it replaces the table
//! FOLDER/VERSION/000000.tar                shards, with a name for each content: readers of an old manifest never meet
//! FOLDER/VERSION/000000.tar.index          bytes of a new one
//! FOLDER/VERSION/000000.parquet            or `.arrow`: shards that say themselves where rows are
//! FOLDER/VERSION/000000/000000000042.row   or a file for each entity
//! ```

mod arrow;
mod columns;
mod decoding;
pub mod layout;
pub mod manifest;
mod page;
mod parquet;
mod rows;
pub mod rows_tier;
mod sample;
pub mod table;
pub mod write;

pub use decoding::{decode_in_place, stuck_decodes};
pub use layout::Layout;
pub use manifest::Manifest;
pub use rows::Cost;
pub use rows_tier::RowsTier;
pub use table::{Rows, Scan, Table};
pub use write::prune;
pub use write::{Options, lay_out};
