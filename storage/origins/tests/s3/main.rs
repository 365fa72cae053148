//! The S3 tier where things go wrong, and against a server that is not ours.

mod bed;
mod billing;
mod faults;
mod hostile;
mod moto;
mod styles;
