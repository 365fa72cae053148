//! The instrument measured by itself: [`checks`](mod@checks) with known answers on a [`null_endpoint`] (a process of its own:
//! [`endpoint`]), their [`certificate`] for later runs, and what a run finds out of its instrument before it begins ([`mod@prove`]).

pub mod certificate;
pub mod checks;
pub mod endpoint;
pub mod null_endpoint;
pub mod prove;
