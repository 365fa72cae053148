//! Compared ways of reading: through a tier, and by the usual calls for a local file.

mod counted;
mod local;
mod map;
mod tier_caller;

pub(crate) use counted::{Counted, Counts};
pub(crate) use local::{LocalCaller, drop_cache, sync, warm};
pub(crate) use tier_caller::{OBJECTS_PER_CALLER, TierCaller};
