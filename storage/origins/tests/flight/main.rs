//! The Flight tier and the Flight origin: with each other, when things go wrong between them, and each with pyarrow.

mod bed;
mod conform;
mod faults;
mod hostile;
mod pyarrow;
