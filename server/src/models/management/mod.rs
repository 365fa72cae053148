//! Which models are served, and how that changes: at the start, by request, or by what lies on the model tier.

pub(crate) mod manager;
mod poll;
mod reconcile;
mod requests;
pub(crate) mod settings;
