//! The Flight tier and the Flight origin: with each other, when things go wrong between them, and each with pyarrow.

mod conform;
mod faults;
mod harness;
mod hostile;
mod pyarrow;
