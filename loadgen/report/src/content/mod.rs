//! What a report says of a run, without any markup: made once, shown by every renderer.

pub(crate) mod best;
pub(crate) mod cautions;
pub(crate) mod cold_starts;
pub(crate) mod costs;
pub(crate) mod instrument;
pub(crate) mod percentiles;
pub(crate) mod reach;
pub(crate) mod words;
