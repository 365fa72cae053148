//! What requests bring: shapes and values by rule, from files, or recorded, made into bodies before a step's clock runs.
//!
//! In: what a plan says (`rule`), what files hold (`records`, `recorded`), what a model declares. Out: [`Inputs`], of which
//! each step prepares its bodies, and what was sent in figures. Reads no file and knows no connection.

mod draw;
mod gaps;
mod prepare;
mod recorded;
mod records;
mod resolve;
mod rule;
mod values;

pub use prepare::{Entities, Prepared, Wish, joined_requests, other_requests};
pub use recorded::{Recorded, RecordedContent, RecordedRequest, RecordedTensor};
pub use records::{Records, Shapes, number};
pub use resolve::{Declared, Inputs, RowsBy};
pub use rule::{CheckRule, Dim, Expectations, InputRules, Law, Lengths, Order, TensorRule, Values};

#[cfg(test)]
mod tests;
