//! The S3 tier where things go wrong, and against a server that is not ours.

mod bed;
mod faults;
mod moto;
mod styles;
