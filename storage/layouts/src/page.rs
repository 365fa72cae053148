//! Check of a Parquet page before its reader sees it. In: its bytes, and the maximum size of its rows. Out: nothing, or
//! the error in its header.
//!
//! A page claims the size that it unpacks to, and readers allocate and zero that size before they unpack. A false claim
//! costs two GiB, and as much again for each page read beside it. Source: the Parquet format, `PageHeader`, in the
//! compact protocol of Thrift.

use anyhow::{Context as _, Result, anyhow, bail};

/// Field of 64 bits whose number is one above that of the field before.
const NEXT_I64: u8 = 0x16;
/// Structure whose number is two above that of the field before: the header of a data page, after its sizes.
const DATA_PAGE: u8 = 0x2c;
/// List as the first field of a structure.
const FIRST_LIST: u8 = 0x19;
/// Type of a list's elements: structures.
const STRUCTS: u8 = 0x0c;
/// End of a structure.
const STOP: u8 = 0;
/// Encodings of the written pages: plain values, and levels in runs.
const PLAIN: i32 = 0;
const RUNS: i32 = 3;
/// Field of 32 bits whose number is one above that of the field before: step of the number, and type.
const NEXT_I32: u8 = 0x15;
/// Maximum bytes of a 32-bit varint.
const VARINT_BYTES: usize = 5;
/// Maximum bytes of a 64-bit varint.
const LONG_VARINT_BYTES: usize = 10;

/// Checks the header at the start of a page, and the repetition levels after it. `level_bits` is the width of a level;
/// 0 if the page has none, or is compressed.
///
/// # Errors
/// Fails if the header is invalid, or claims more than `max` bytes or than are present. Also fails if there are fewer
/// levels than values, since the reader does not finish such a page when it skips rows.
pub(crate) fn check(page: &[u8], max: u64, level_bits: u8) -> Result<()> {
    let mut rest = page;
    let [kind, unpacked, packed] = [field(&mut rest)?, field(&mut rest)?, field(&mut rest)?];
    if u64::try_from(unpacked).is_ok_and(|bytes| bytes > max) || unpacked < 0 {
        bail!("it claims {unpacked} bytes, but its rows take at most {max}: it is damaged");
    }
    let other = || anyhow!("its header is not one that this program writes: it is damaged");
    rest = rest
        .strip_prefix(&[DATA_PAGE])
        .filter(|_| kind == 0)
        .ok_or_else(other)?;
    let [values, encodings @ ..] = [
        field(&mut rest)?,
        field(&mut rest)?,
        field(&mut rest)?,
        field(&mut rest)?,
    ];
    rest = rest.strip_prefix(&[STOP, STOP]).ok_or_else(other)?;
    if encodings != [PLAIN, RUNS, RUNS] {
        return Err(other());
    }
    if usize::try_from(packed).map_or(true, |bytes| bytes > rest.len()) {
        let has = rest.len();
        bail!("it claims {packed} packed bytes, but has {has}: it is damaged");
    }
    let has_levels = level_bits == 0 || has_levels(rest, u64::try_from(values).unwrap_or(u64::MAX), level_bits);
    let too_few = || anyhow!("it has fewer levels than its {values} values: it is damaged");
    has_levels.then_some(()).ok_or_else(too_few)
}

/// True if a page's repetition levels are at least as many as its values. Source: the Parquet format, "RLE / Bit-Packing Hybrid".
fn has_levels(page: &[u8], values: u64, level_bits: u8) -> bool {
    let runs = page
        .split_first_chunk()
        .and_then(|(len, rest)| rest.get(..u32::from_le_bytes(*len) as usize));
    let Some(mut runs) = runs else { return false };
    let mut levels = 0;
    while levels < values {
        // Each iteration takes at least one byte.
        let Some(header) = varint(&mut runs, VARINT_BYTES) else {
            return false;
        };
        let (count, bytes) = match header & 1 {
            0 => (header >> 1, u64::from(level_bits.div_ceil(8))),
            _ => ((header >> 1) * 8, (header >> 1) * u64::from(level_bits)),
        };
        let Some(rest) = runs.get(usize::try_from(bytes).unwrap_or(usize::MAX)..) else {
            return false;
        };
        if count == 0 {
            return false;
        }
        (levels, runs) = (levels + count, rest);
    }
    true
}

/// Checks a column's list of page locations before its reader allocates memory for them.
///
/// # Errors
/// Fails for a list of anything else, or if bytes are missing or left over.
pub(crate) fn check_locations(index: &[u8]) -> Result<()> {
    let bad = || anyhow!("invalid list of pages: it is damaged");
    let [FIRST_LIST, header, rest @ ..] = index else {
        return Err(bad());
    };
    let mut rest = rest;
    let pages = match header >> 4 {
        15 => varint(&mut rest, VARINT_BYTES).ok_or_else(bad)?,
        number => u64::from(number),
    };
    if header & 0xf != STRUCTS {
        return Err(bad());
    }
    for _ in 0..pages {
        // Offset, size, and number of the first row. Ends with the bytes, whatever length the list claims.
        for field in [NEXT_I64, NEXT_I32, NEXT_I64] {
            rest = rest.strip_prefix(&[field]).ok_or_else(bad)?;
            varint(&mut rest, LONG_VARINT_BYTES).ok_or_else(bad)?;
        }
        rest = rest.strip_prefix(&[STOP]).ok_or_else(bad)?;
    }
    // The pages of texts are followed by the length of each, a list whose size the reader checks by itself.
    let ends = rest == [STOP] || rest.starts_with(&[FIRST_LIST]);
    ends.then_some(()).ok_or_else(bad)
}

/// Reads a number of at most `max` bytes, seven bits in each.
fn varint(rest: &mut &[u8], max: usize) -> Option<u64> {
    let len = rest.iter().take(max).position(|byte| byte & 0x80 == 0)? + 1;
    let (varint, left) = rest.split_at(len);
    *rest = left;
    let add = |number: u64, byte: &u8| number << 7 | u64::from(byte & 0x7f);
    Some(varint.iter().rev().fold(0, add))
}

/// Reads the next field, which has 32 bits.
fn field(rest: &mut &[u8]) -> Result<i32> {
    let number = rest.strip_prefix(&[NEXT_I32]).and_then(|bytes| {
        *rest = bytes;
        varint(rest, VARINT_BYTES)
    });
    // Zigzag: numbers from 0 up alternate with numbers from -1 down.
    let zigzag = number.and_then(|number| u32::try_from(number).ok());
    let zigzag = zigzag.context("it does not begin like a page: it is damaged")?;
    Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header of a data page, followed by as many bytes as it claims.
    fn page(unpacked: i32, packed: i32, bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [0, unpacked, packed] {
            push(&mut out, number);
        }
        out.push(DATA_PAGE);
        for number in [7, PLAIN, RUNS, RUNS] {
            push(&mut out, number);
        }
        out.extend([STOP; 2]);
        // The sizes leave the header out.
        out.resize(out.len() + bytes, 0);
        out
    }

    fn push(out: &mut Vec<u8>, number: i32) {
        out.push(NEXT_I32);
        let mut zigzag = ((number << 1) ^ (number >> 31)).cast_unsigned();
        while zigzag > 0x7f {
            out.push((zigzag & 0x7f) as u8 | 0x80);
            zigzag >>= 7;
        }
        out.push(zigzag as u8);
    }

    #[test]
    fn only_what_the_rows_can_take_is_unpacked() {
        for bytes in [0, 1, 63, 64, 8191, 8192, 70_000] {
            assert!(check(&page(bytes, 5, 5), 70_000, 0).is_ok(), "{bytes}");
        }
        for (bytes, detail) in [
            (
                page(70_001, 5, 5),
                "claims 70001 bytes, but its rows take at most 70000",
            ),
            (page(i32::MAX, 5, 5), "claims 2147483647"),
            (page(-1, 5, 5), "claims -1"),
            (page(9, 6, 5), "claims 6 packed bytes, but has 5"),
            (page(9, -6, 5), "claims -6"),
            (vec![], "does not begin like a page"),
            (vec![NEXT_I32; 2], "does not begin like a page"),
            (
                vec![NEXT_I32, 0xff, 0xff, 0xff, 0xff, 0x7f],
                "does not begin like a page",
            ),
            (b"PAR1PAR1".to_vec(), "does not begin like a page"),
        ] {
            let refused = check(&bytes, 70_000, 0).unwrap_err().to_string();
            assert!(refused.contains(detail), "{refused}");
        }
    }

    /// A page of seven values, whose levels are these runs.
    fn levels(runs: &[u8]) -> Result<()> {
        let mut bytes = page(0, 0, 0);
        bytes.extend((runs.len() as u32).to_le_bytes());
        bytes.extend(runs);
        check(&bytes, 70_000, 1)
    }

    #[test]
    fn pages_with_fewer_levels_than_values_are_refused() {
        // A packed group of eight; a run of seven; two runs.
        for runs in [&[3, 0x55][..], &[14, 0], &[8, 0, 6, 1]] {
            assert!(levels(runs).is_ok(), "{runs:?}");
        }
        for runs in [
            &[][..],
            &[0, 0, 0, 0],
            &[12, 0],
            &[14],
            &[3],
            &[8, 0, 0, 0],
            &[0x80, 0x80],
        ] {
            let refused = levels(runs).unwrap_err().to_string();
            assert!(
                refused.contains("fewer levels than its 7 values"),
                "{runs:?}: {refused}"
            );
        }
        assert!(check(&page(0, 0, 0), 70_000, 1).is_err());
    }

    #[test]
    fn lists_of_pages_that_claim_more_than_there_is_are_refused() {
        let one = [NEXT_I64, 8, NEXT_I32, 9, NEXT_I64, 0, STOP];
        let list = |head: &[u8], pages: usize| [&[FIRST_LIST], head, &one.repeat(pages), &[STOP]].concat();
        for good in [list(&[0x0c], 0), list(&[0x2c], 2), list(&[0xfc, 20], 20)] {
            check_locations(&good).unwrap();
            assert!(check_locations(&good[..good.len() - 1]).is_err());
        }
        for bad in [
            list(&[0xfc, 0xff, 0xff, 0xff, 0xff, 7], 2),
            list(&[0x2c], 1),
            list(&[0x25], 2),
            list(&[0x1c], 2),
            vec![],
        ] {
            assert!(
                check_locations(&bad).unwrap_err().to_string().contains("damaged"),
                "{bad:?}"
            );
        }
    }
}
