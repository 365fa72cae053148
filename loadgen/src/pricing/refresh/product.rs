//! A product of a price list.

use serde::Deserialize;
use std::collections::BTreeMap;

/// What tells a product from others.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Product {
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, String>,
}
