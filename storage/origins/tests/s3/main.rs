//! Faults of the S3 tier, and tests against an independent server.

mod billing;
mod faults;
mod harness;
mod hostile;
mod moto;
mod styles;
