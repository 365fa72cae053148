//! Self-check of the instrument: [`checks`](mod@checks) with known answers on a [`null_endpoint`], a child process,
//! with their [`certificate`] for later runs, and the checks before a run ([`mod@prove`]).

pub mod certificate;
pub mod checks;
pub mod null_endpoint;
pub mod prove;
