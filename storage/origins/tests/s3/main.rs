//! The S3 tier where things go wrong, and against a server that is not ours.

mod billing;
mod faults;
mod harness;
mod hostile;
mod moto;
mod styles;
