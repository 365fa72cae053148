//! Content of requests: shapes and values by rule, from files, or recorded, encoded before a step's clock runs.
//!
//! In: rules of a plan (`rule`), contents of files (`records`, `recorded`), a model's declaration. Out: [`Inputs`], from which
//! each step prepares its bodies, and statistics of the sent requests. Reads no file and opens no connection.

mod draw;
mod gaps;
mod prepare;
mod recorded;
mod recordings;
mod records;
mod resolve;
mod resolved;
mod rule;
mod sent;

pub(crate) use draw::{length, words};

pub use gaps::toml_key;
pub use prepare::{Demand, Entities, Prepared};
pub use recorded::{Recorded, RecordedContent, RecordedRequest, RecordedTensor};
pub use records::{Records, Shapes, number};
pub use resolved::{Declared, Inputs, RowsBy};
pub use rule::{CheckRule, Dim, Expectations, InputRules, Law, Lengths, Order, TensorRule, Values};
pub use sent::{joined_requests, other_requests};

#[cfg(test)]
mod tests;
