//! Criteo's display advertising data as text: label, I1 to I13, C1 to C26, with tabs between and nothing where a value is missing.
//! In: rows, a seed. Out: lines. The columns are described with the public data set (Criteo Labs, Display Advertising Challenge).

use super::draw::{Draw, chunks};
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::staged::StagedFile;
use crate::stop::Stop;
use crate::tables::ctr::row_values;
use std::fmt::Write as _;
use std::io::Write as _;

/// Rows with a click.
const CLICKED: f64 = 0.25;
/// Columns whose values may be missing: all but every fourth.
const NEVER_MISSING: usize = 4;
const MISSING_INTEGER: f64 = 0.3;
const MISSING_CATEGORY: f64 = 0.1;
/// The second integer column begins below zero.
const BELOW_ZERO: i64 = 3;

pub(super) fn write(staged: &StagedFile, rows: u64, seed: u64, stop: &Stop) -> Result<(), ModelsError> {
    let mut text = String::new();
    let sampled = rows.min(1000);
    for row in 0..sampled {
        line(seed, row, &mut text);
    }
    let total = text.len() as u64 * rows / sampled.max(1);
    let mut progress = Progress::bytes(&format!("writing {}", staged.partial().display()), total);
    for chunk in chunks(rows) {
        stop.check()?;
        text.clear();
        for row in chunk {
            line(seed, row, &mut text);
        }
        let written = staged.file().write_all(text.as_bytes());
        written.map_err(ModelsError::io("write", staged.partial()))?;
        progress.advance(text.len() as u64);
    }
    Ok(())
}

fn line(seed: u64, row: u64, text: &mut String) {
    let mut draw = Draw::of("criteo", seed, row);
    let values = row_values(seed, row.cast_signed());
    text.push(if draw.chance(CLICKED) { '1' } else { '0' });
    for (at, value) in values.dense.iter().enumerate() {
        let below = if at == 1 { BELOW_ZERO } else { 0 };
        text.push('\t');
        if at % NEVER_MISSING == 1 || !draw.chance(MISSING_INTEGER) {
            // Writing to a string does not fail.
            let _ = write!(text, "{}", *value as i64 - below);
        }
    }
    for (at, value) in values.categorical.iter().enumerate() {
        text.push('\t');
        if at % NEVER_MISSING == 0 || !draw.chance(MISSING_CATEGORY) {
            let _ = write!(text, "{:08x}", scrambled(at as u64, *value));
        }
    }
    text.push('\n');
}

/// A category as 32 bits: the finaliser of `MurmurHash3` (Appleby), so that neighbours lie far apart.
fn scrambled(column: u64, category: i64) -> u32 {
    let mut bits = category.cast_unsigned() ^ (column << 40);
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        bits = (bits ^ (bits >> 33)).wrapping_mul(factor);
    }
    (bits >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_label_13_integers_and_26_categories_and_is_the_seeds() {
        let mut text = String::new();
        for row in 0..1000 {
            line(7, row, &mut text);
        }
        let (mut missing, mut clicks) = ([0; 40], 0);
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            assert_eq!(fields.len(), 40);
            clicks += usize::from(fields[0] == "1");
            for (at, field) in fields.iter().enumerate() {
                missing[at] += usize::from(field.is_empty());
                let is_hex = field.len() == 8 && u32::from_str_radix(field, 16).is_ok();
                let fits = if at < 14 { field.parse::<i64>().is_ok() } else { is_hex };
                assert!(field.is_empty() || fits, "{at}: {field}");
            }
        }
        assert!((150..350).contains(&clicks), "{clicks}");
        assert_eq!((missing[0], missing[2], missing[14]), (0, 0, 0));
        assert!(missing[1] > 200 && missing[15] > 50, "{missing:?}");
        let mut again = String::new();
        line(7, 999, &mut again);
        assert!(text.ends_with(&again));
        let mut other = String::new();
        line(8, 999, &mut other);
        assert_ne!(again, other);
    }
}
