//! One stream with many calls under way.
//!
//! In: calls. Out: their replies, in the order in which they come, with what was read in the buffers that it is for.
//! `call` is one call and its reply, `waiting` the calls that wait for theirs. `connection` joins the two halves, `send`
//! and `receive`; `moderation` decides when to be woken. Knows nothing of procedures, files or addresses.

pub(super) mod call;
pub(super) mod connection;
mod moderation;
mod receive;
mod send;
mod waiting;
