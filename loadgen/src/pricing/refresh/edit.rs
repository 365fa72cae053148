//! The text of the prices' file with what a price list says.
//!
//! In: the text, and offers. Out: the text changed in its numbers alone, what changed, and what was not found. An entry is brought up to date
//! as a whole or left as it is: half of it from one text and half from another would have no source.

use super::known::{self, Wanted};
use super::offer::Offer;
use crate::pricing::error::PricingError;
use crate::pricing::file::PriceFile;
use std::path::Path;
use toml_edit::{DocumentMut, Item, Table, Value};

/// A file of prices brought up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refreshed {
    /// Its text.
    pub text: String,
    /// Entries that now say what the list says, with what changed.
    pub refreshed: Vec<String>,
    /// Entries that are left as they were, with why.
    pub left: Vec<String>,
}

/// A price of the list for a key of the file.
struct Found<'a> {
    key: String,
    usd: f64,
    offer: &'a Offer,
}

/// Brings a file of prices up to date. `path` is what errors name.
///
/// # Errors
/// The text is no file of prices, before or after.
pub fn refresh(path: &Path, text: &str, offers: &[Offer]) -> Result<Refreshed, PricingError> {
    PriceFile::parse(path, text)?;
    let mut document: DocumentMut = text
        .parse()
        .map_err(|source: toml_edit::TomlError| PricingError::Edit {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
    let (mut refreshed, mut left) = (Vec::new(), Vec::new());
    let mut entry = |head: String, table: &mut Table, wanted: &dyn Fn(&str, &str) -> Option<Wanted>| match entry(
        table, offers, wanted,
    ) {
        Ok(changed) => refreshed.push(format!("{head}: {changed}")),
        Err(why) => left.push(format!("{head}: {why}")),
    };
    for (name, table) in tables(&mut document, "instances") {
        entry(format!("instances.\"{name}\""), table, &|_, region| {
            known::of_instance(&name, region)
        });
    }
    for (name, table) in tables(&mut document, "storage") {
        entry(format!("storage.{name}"), table, &|key, region| {
            known::of_storage(&name, key, region)
        });
    }
    if let Some(table) = document.get_mut("staging").and_then(Item::as_table_mut) {
        entry("staging".to_owned(), table, &|key, region| {
            known::of_storage("staging", key, region)
        });
    }
    let text = document.to_string();
    PriceFile::parse(path, &text)?;
    Ok(Refreshed { text, refreshed, left })
}

/// The tables below one of the document's, with their names.
fn tables<'a>(document: &'a mut DocumentMut, below: &str) -> Vec<(String, &'a mut Table)> {
    let table = document.get_mut(below).and_then(Item::as_table_mut);
    table
        .into_iter()
        .flat_map(|table| table.iter_mut())
        .filter_map(|(name, item)| Some((name.get().to_owned(), item.as_table_mut()?)))
        .collect()
}

/// Brings one entry up to date; says what changed, or why it is left as it is.
fn entry(table: &mut Table, offers: &[Offer], wanted: &dyn Fn(&str, &str) -> Option<Wanted>) -> Result<String, String> {
    let region = table
        .get("region")
        .and_then(Item::as_str)
        .unwrap_or_default()
        .to_owned();
    let keys: Vec<String> = table
        .iter()
        .filter(|(key, item)| key.starts_with("usd_") && number(item).is_some_and(|usd| usd > 0.0))
        .map(|(key, _)| key.to_owned())
        .collect();
    let found: Vec<Found<'_>> = keys
        .into_iter()
        .map(|key| {
            let wanted =
                wanted(&key, &region).ok_or_else(|| format!("no price list that is known here has its {key}"))?;
            find(&key, &wanted, offers)
        })
        .collect::<Result<_, String>>()?;
    let Some(first) = found.first() else {
        return Err("it has no price".into());
    };
    let (month, from) = (first.offer.month.clone(), first.offer.from.clone());
    let mut changes = Vec::new();
    for Found { key, usd, .. } in &found {
        let before = table.get(key).and_then(number).unwrap_or_default();
        // To the last digit that either is written with.
        if (before - usd).abs() > 1e-9 * usd {
            set(table, key, Value::from(*usd));
            changes.push(format!("{key} {before} -> {usd}"));
        }
    }
    set(table, "as_of", Value::from(month.clone()));
    set(table, "checked", Value::from(true));
    set(table, "source", Value::from(from));
    Ok(if changes.is_empty() {
        format!("as it was, checked by the list of {month}")
    } else {
        format!("{}, by the list of {month}", changes.join(", "))
    })
}

/// A whole number is written without a point by some.
fn number(item: &Item) -> Option<f64> {
    item.as_float().or_else(|| item.as_integer().map(|whole| whole as f64))
}

fn find<'a>(key: &str, wanted: &Wanted, offers: &'a [Offer]) -> Result<Found<'a>, String> {
    let mut found: Vec<Found<'a>> = Vec::new();
    let offers = offers.iter().filter(|offer| offer.code == wanted.offer);
    for offer in offers {
        let prices = offer.products.iter().filter(|offered| wanted.is(&offered.product));
        for price in prices.flat_map(|offered| &offered.prices) {
            let usd = known::in_unit_of(key, price.usd, &price.unit).ok_or_else(|| {
                format!(
                    "its {key} is listed per {}, which is no unit that is known here",
                    price.unit
                )
            })?;
            if !found.iter().any(|known| known.usd == usd) {
                let key = key.to_owned();
                found.push(Found { key, usd, offer });
            }
        }
    }
    match found.len() {
        0 => Err(format!("its {key} was not found (offer {})", wanted.offer)),
        1 => Ok(found.swap_remove(0)),
        _ => {
            let all: Vec<String> = found.iter().map(|found| found.usd.to_string()).collect();
            Err(format!("its {key} is listed more than once: {}", all.join(", ")))
        }
    }
}

/// Sets a value and leaves the space and the comment around it.
fn set(table: &mut Table, key: &str, mut value: Value) {
    if let Some(before) = table.get(key).and_then(Item::as_value) {
        *value.decor_mut() = before.decor().clone();
    }
    table[key] = Item::Value(value);
}

#[cfg(test)]
mod tests;
