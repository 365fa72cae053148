//! An offer file of AWS's price list (*Reading the service price list file for an AWS service*, AWS Billing User Guide).
//!
//! In: JSON, which for a large service has hundreds of megabytes, so that it is read in passes and only what may be wanted is
//! kept. Out: products with their prices on demand. Knows nothing of our own file.

use super::known::is_of_interest;
use super::product::Product;
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufReader, Read};
use std::marker::PhantomData;

/// Bytes read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// An offer file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OfferError {
    /// It cannot be read.
    #[error("{from}: {source}")]
    Read {
        /// Where it comes from.
        from: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no offer file.
    #[error("{from} is no offer file of AWS's price list: {source}")]
    Json {
        /// Where it comes from.
        from: String,
        /// What and where.
        source: serde_json::Error,
    },
}

/// An offer file, as far as it may be wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Where it comes from.
    pub from: String,
    /// `AmazonEC2`, …
    pub code: String,
    /// The month of its publication: `2026-10`.
    pub month: String,
    pub(super) products: Vec<Offered>,
}

/// A product with its prices.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Offered {
    pub(super) product: Product,
    pub(super) prices: Vec<Price>,
}

/// A price on demand. Of several by amount, the one from the first on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Price {
    pub(super) usd: f64,
    pub(super) unit: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    offer_code: String,
    publication_date: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    price_dimensions: BTreeMap<String, Dimension>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    unit: String,
    #[serde(default)]
    begin_range: Option<String>,
    price_per_unit: BTreeMap<String, String>,
}

impl Offer {
    /// Reads one. `open` is asked once for each pass.
    ///
    /// # Errors
    /// It cannot be opened or read, or is no offer file.
    pub fn read<R: Read>(from: &str, open: impl Fn() -> std::io::Result<R>) -> Result<Self, OfferError> {
        let opened = || {
            let source = open().map_err(|source| OfferError::Read {
                from: from.to_owned(),
                source,
            })?;
            Ok(BufReader::with_capacity(PIECE_BYTES, source))
        };
        let no_offer = |source| OfferError::Json {
            from: from.to_owned(),
            source,
        };
        let head: Head = serde_json::from_reader(opened()?).map_err(no_offer)?;
        let products: BTreeMap<String, Product> = Entries {
            path: &["products"],
            is_wanted: &|_: &str| true,
            keep: &is_of_interest,
            of: PhantomData,
        }
        .deserialize(&mut serde_json::Deserializer::from_reader(opened()?))
        .map_err(no_offer)?;
        let mut terms: BTreeMap<String, BTreeMap<String, Term>> = Entries {
            path: &["terms", "OnDemand"],
            is_wanted: &|sku: &str| products.contains_key(sku),
            keep: &|_: &BTreeMap<String, Term>| true,
            of: PhantomData,
        }
        .deserialize(&mut serde_json::Deserializer::from_reader(opened()?))
        .map_err(no_offer)?;
        let products = products.into_iter().map(|(sku, product)| Offered {
            product,
            prices: terms
                .remove(&sku)
                .into_iter()
                .flat_map(BTreeMap::into_values)
                .flat_map(prices)
                .collect(),
        });
        Ok(Self {
            from: from.to_owned(),
            code: head.offer_code,
            month: head.publication_date.chars().take("2026-10".len()).collect(),
            products: products.collect(),
        })
    }
}

fn prices(term: Term) -> impl Iterator<Item = Price> {
    let first = |dimension: &Dimension| dimension.begin_range.as_deref().is_none_or(|begin| begin == "0");
    let all = term.price_dimensions.into_values().filter(first);
    all.filter_map(|dimension| {
        let usd: f64 = dimension.price_per_unit.get("USD")?.parse().ok()?;
        // What is included stands beside what is sold, for nothing.
        (usd.is_finite() && usd > 0.0).then_some(Price {
            usd,
            unit: dimension.unit,
        })
    })
}

/// The entries of the map at a path of maps, of those wanted by their key the ones to keep.
struct Entries<'a, T, W, K> {
    path: &'a [&'a str],
    // Borrowed: the type of what is inside is the same.
    is_wanted: &'a W,
    keep: &'a K,
    of: PhantomData<T>,
}

impl<'de, T, W, K> DeserializeSeed<'de> for Entries<'_, T, W, K>
where
    T: DeserializeOwned,
    W: Fn(&str) -> bool,
    K: Fn(&T) -> bool,
{
    type Value = BTreeMap<String, T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T, W, K> Visitor<'de> for Entries<'_, T, W, K>
where
    T: DeserializeOwned,
    W: Fn(&str) -> bool,
    K: Fn(&T) -> bool,
{
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut kept = BTreeMap::new();
        let Some((first, rest)) = self.path.split_first() else {
            while let Some(key) = map.next_key::<String>()? {
                if !(self.is_wanted)(&key) {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                let value: T = map.next_value()?;
                if (self.keep)(&value) {
                    kept.insert(key, value);
                }
            }
            return Ok(kept);
        };
        while let Some(key) = map.next_key::<String>()? {
            if key == *first {
                let inside = Entries {
                    path: rest,
                    is_wanted: self.is_wanted,
                    keep: self.keep,
                    of: PhantomData,
                };
                kept = map.next_value_seed(inside)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(kept)
    }
}
