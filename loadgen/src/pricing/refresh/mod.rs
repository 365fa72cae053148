//! The prices' file brought up to date by AWS's public price list.
//!
//! In: the file's text, and offer files of the list. Out: the text with what the list says, its comments and layout as they
//! were; what changed, and what was not found. Knows nothing of where the files come from.
//!
//! - `known`: which entry of the file is which product of the list; `offer`: an offer file read, `product`: one of its products; `edit`: the text changed

mod edit;
mod known;
mod offer;
mod product;

pub use edit::{Refreshed, refresh};
pub use offer::{Offer, OfferError};
