//! A stream with many calls in flight.
//!
//! In: calls. Out: their replies in order of arrival, with the data in the calls' buffers. `call` is a call and its
//! reply, `waiting` the calls that wait for replies. `connection` joins the two halves, `send` and `receive`;
//! `moderation` decides when to wake the receiver. Knows nothing of procedures, files or addresses.

pub(super) mod call;
pub(super) mod connection;
mod moderation;
mod receive;
mod send;
mod waiting;
