//! Records of a version's staged blocks. In: blocks and their checksums. Out: bytes of a journal, and the state
//! recorded in its complete part. Knows nothing of files.
//!
//! A journal is a header and records, each a line: the CRC32C of the rest in hexadecimal, a space, and JSON. It is read
//! up to the first line that is truncated or fails its checksum. So a record that was being written when the process
//! died does not count.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// Page size in bytes: the unit of checksums, and so of reads.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Maximum length of a valid line. A header holds at most a path, a version and an origin; a record holds the checksums
/// of one block.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Object and version that a journal belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    /// Tier that the object was read from: the same path on another tier is another object.
    pub(super) origin: String,
    pub(super) path: String,
    pub(super) version: String,
    pub(super) size: u64,
    pub(super) block_bytes: u64,
}

/// Journal entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Record {
    /// A block is in the data file, with the CRC32C of each of its pages.
    Staged { block: u64, checks: Vec<u32> },
    /// A block was removed.
    Dropped { block: u64 },
}

/// State recovered from a journal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replayed {
    pub(super) header: Header,
    /// Checksums of the staged blocks.
    pub(super) blocks: BTreeMap<u64, Vec<u32>>,
    /// Length of the journal's valid part in bytes.
    pub(super) valid_bytes: usize,
}

/// Appends the line of a header or a record.
pub(super) fn append_line(value: &impl Serialize, out: &mut Vec<u8>) -> io::Result<()> {
    let json = serde_json::to_vec(value)?;
    out.extend_from_slice(check_of(&json).as_bytes());
    out.extend_from_slice(&json);
    out.push(b'\n');
    Ok(())
}

/// Checksum at the start of a line.
fn check_of(json: &[u8]) -> String {
    format!("{:08x} ", crc32c::crc32c(json))
}

/// Decodes the first line; returns its value and the rest. `None` if the line is truncated, damaged or of another type.
fn first_line<T: DeserializeOwned>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let end = bytes.iter().take(MAX_LINE_BYTES).position(|byte| *byte == b'\n')?;
    let (check, json) = bytes[..end].split_at_checked(check_of(&[]).len())?;
    if check != check_of(json).as_bytes() {
        return None;
    }
    Some((serde_json::from_slice(json).ok()?, &bytes[end + 1..]))
}

impl Header {
    /// Length of a block in bytes: the last block may be shorter.
    pub(super) fn len_of(&self, block: u64) -> u64 {
        self.size
            .saturating_sub(block.saturating_mul(self.block_bytes))
            .min(self.block_bytes)
    }
}

/// Checksums of a block's pages; the last page may be short.
pub(super) fn checks_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(PAGE_BYTES as usize).map(crc32c::crc32c).collect()
}

impl Replayed {
    /// Replays a journal; `None` if its header is incomplete.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let (header, records) = first_line::<Header>(bytes)?;
        let mut replayed = Self {
            header,
            blocks: BTreeMap::new(),
            valid_bytes: bytes.len() - records.len(),
        };
        if replayed.header.block_bytes == 0 {
            return None;
        }
        replayed.extend(records);
        Some(replayed)
    }

    /// Applies further records of a journal, up to the first incomplete one.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((record, behind)) = first_line(rest) {
            match record {
                // A valid record has one checksum per page.
                Record::Staged { block, checks }
                    if !checks.is_empty() && checks.len() as u64 == self.header.len_of(block).div_ceil(PAGE_BYTES) =>
                {
                    self.blocks.insert(block, checks);
                }
                Record::Dropped { block } => {
                    self.blocks.remove(&block);
                }
                Record::Staged { .. } => break,
            }
            rest = behind;
        }
        self.valid_bytes += bytes.len() - rest.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = Header> {
        (".{0,20}", ".{0,40}", ".{0,40}", 1u64..100_000, 1u64..20_000).prop_map(
            |(origin, path, version, size, block_bytes)| Header {
                origin,
                path,
                version,
                size,
                block_bytes,
            },
        )
    }

    /// End of a record, and the blocks staged by then.
    type State = (usize, BTreeMap<u64, Vec<u32>>);

    /// Journal of a version, with the end of each record and the state after it.
    fn journal(header: &Header, steps: &[(bool, u64)]) -> (Vec<u8>, Vec<State>) {
        let mut bytes = Vec::new();
        append_line(header, &mut bytes).unwrap();
        let mut blocks = BTreeMap::new();
        let mut states = vec![(bytes.len(), blocks.clone())];
        for (staged, at) in steps {
            let block = at % header.size.div_ceil(header.block_bytes);
            let pages = header.len_of(block).div_ceil(PAGE_BYTES);
            let record = if *staged {
                let checks: Vec<u32> = (0..pages).map(|page| (at ^ page) as u32).collect();
                blocks.insert(block, checks.clone());
                Record::Staged { block, checks }
            } else {
                blocks.remove(&block);
                Record::Dropped { block }
            };
            append_line(&record, &mut bytes).unwrap();
            states.push((bytes.len(), blocks.clone()));
        }
        (bytes, states)
    }

    proptest! {
        #[test]
        fn a_journal_cut_anywhere_says_what_was_whole(
            header in header(),
            steps in vec((any::<bool>(), any::<u64>()), 0..30),
            cut in any::<prop::sample::Index>(),
        ) {
            let (bytes, states) = journal(&header, &steps);
            let replayed = Replayed::of(&bytes).unwrap();
            prop_assert_eq!((&replayed.header, replayed.valid_bytes), (&header, bytes.len()));
            prop_assert_eq!(&replayed.blocks, &states.last().unwrap().1);
            let cut = cut.index(bytes.len());
            match states.iter().rfind(|(end, _)| *end <= cut) {
                None => prop_assert!(Replayed::of(&bytes[..cut]).is_none()),
                Some((end, blocks)) => {
                    let replayed = Replayed::of(&bytes[..cut]).unwrap();
                    prop_assert_eq!((replayed.valid_bytes, &replayed.blocks), (*end, blocks));
                }
            }
        }

        #[test]
        fn a_flipped_bit_ends_the_journal_before_it(
            header in header(),
            steps in vec((any::<bool>(), any::<u64>()), 0..30),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let (mut bytes, states) = journal(&header, &steps);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            match states.iter().rfind(|(end, _)| *end <= at) {
                None => prop_assert!(Replayed::of(&bytes).is_none()),
                Some((end, blocks)) => {
                    let replayed = Replayed::of(&bytes).unwrap();
                    prop_assert_eq!((replayed.valid_bytes, &replayed.blocks), (*end, blocks));
                }
            }
        }

        #[test]
        fn any_bytes_are_no_reason_to_panic(bytes in vec(any::<u8>(), 0..200)) {
            let _ = Replayed::of(&bytes);
            let framed = [check_of(&bytes).as_bytes(), &bytes, b"\n"].concat();
            let _ = Replayed::of(&framed);
        }
    }
}
