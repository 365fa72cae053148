//! Records of a version's staged blocks. In: blocks and their checksums. Out: bytes of a journal, and the state
//! recorded in its complete part. Knows nothing of files.
//!
//! A journal is a header and records, each in a frame: length (4 bytes), payload, CRC32C of length and payload (4
//! bytes); all numbers little-endian. It is read up to the first frame that is cut short or fails its checksum. So a
//! record that was being written when the process died does not count.

use std::collections::BTreeMap;

/// First bytes of a header's payload; the last byte is the version of this layout.
const MAGIC: [u8; 8] = *b"tl-stag\x01";
/// Page size in bytes: the unit of checksums, and so the smallest read.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Maximum length of a valid frame: a header holds at most a path, a version and an origin, a record the checksums of
/// one block.
const MAX_FRAME_BYTES: usize = 1 << 20;
const TAG_STAGED: u8 = 1;
const TAG_DROPPED: u8 = 2;

/// Object and version that a journal belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Header {
    /// The tier that it was read from: the same path on another tier is another object.
    pub(super) origin: String,
    pub(super) path: String,
    pub(super) version: String,
    pub(super) size: u64,
    pub(super) block_bytes: u64,
}

/// Journal entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// A block is in the data file, with the CRC32C of each of its pages.
    Staged { block: u64, checks: Vec<u32> },
    /// A block is no longer there.
    Dropped { block: u64 },
}

/// State recovered from a journal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replayed {
    pub(super) header: Header,
    /// The checksums of the blocks that are staged.
    pub(super) blocks: BTreeMap<u64, Vec<u32>>,
    /// Bytes up to which the journal is whole.
    pub(super) whole_bytes: usize,
}

fn frame(payload: &[u8], out: &mut Vec<u8>) {
    let len = (payload.len() as u32).to_le_bytes();
    out.extend_from_slice(&len);
    out.extend_from_slice(payload);
    let check = crc32c::crc32c_append(crc32c::crc32c(&len), payload);
    out.extend_from_slice(&check.to_le_bytes());
}

/// The payload of the frame at the start of `bytes`, and the bytes behind it.
fn unframe(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*len) as usize;
    if count > MAX_FRAME_BYTES {
        return None;
    }
    let (payload, rest) = rest.split_at_checked(count)?;
    let (check, rest) = rest.split_first_chunk::<4>()?;
    let want = crc32c::crc32c_append(crc32c::crc32c(len), payload);
    (u32::from_le_bytes(*check) == want).then_some((payload, rest))
}

/// Takes numbers and texts off the front of a payload.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    fn text(&mut self) -> Option<String> {
        let len = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(bytes.to_vec()).ok()
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

impl Header {
    /// Appends the frame that a journal begins with.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut payload = MAGIC.to_vec();
        for text in [&self.origin, &self.path, &self.version] {
            payload.extend_from_slice(&(text.len() as u32).to_le_bytes());
            payload.extend_from_slice(text.as_bytes());
        }
        payload.extend_from_slice(&self.size.to_le_bytes());
        payload.extend_from_slice(&self.block_bytes.to_le_bytes());
        frame(&payload, out);
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader(payload.strip_prefix(&MAGIC)?);
        let header = Self {
            origin: reader.text()?,
            path: reader.text()?,
            version: reader.text()?,
            size: reader.u64()?,
            block_bytes: reader.u64()?,
        };
        reader.end()?;
        (header.block_bytes > 0).then_some(header)
    }

    /// Length of a block in bytes: the last block may be shorter.
    pub(super) fn len_of(&self, block: u64) -> u64 {
        self.size
            .saturating_sub(block.saturating_mul(self.block_bytes))
            .min(self.block_bytes)
    }
}

impl Record {
    /// Appends the record's frame.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        match self {
            Self::Staged { block, checks } => {
                payload.push(TAG_STAGED);
                payload.extend_from_slice(&block.to_le_bytes());
                payload.extend(checks.iter().flat_map(|check| check.to_le_bytes()));
            }
            Self::Dropped { block } => {
                payload.push(TAG_DROPPED);
                payload.extend_from_slice(&block.to_le_bytes());
            }
        }
        frame(&payload, out);
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        match (reader.byte()?, reader.u64()?) {
            (TAG_STAGED, block) => {
                let checks = std::iter::from_fn(|| reader.u32()).collect();
                reader.end()?;
                Some(Self::Staged { block, checks })
            }
            (TAG_DROPPED, block) => {
                reader.end()?;
                Some(Self::Dropped { block })
            }
            _ => None,
        }
    }
}

/// The checksums of a block's pages, the last of which may be short.
pub(super) fn checks_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(PAGE_BYTES as usize).map(crc32c::crc32c).collect()
}

/// Header of a journal, and the bytes behind it; `None` if the header is incomplete.
pub(super) fn split_header(bytes: &[u8]) -> Option<(Header, &[u8])> {
    let (payload, rest) = unframe(bytes)?;
    Some((Header::decode(payload)?, rest))
}

/// Applies further records to the staged blocks of a version, and returns the number of bytes in complete records.
pub(super) fn replay_records(header: &Header, bytes: &[u8], blocks: &mut BTreeMap<u64, Vec<u32>>) -> usize {
    let mut rest = bytes;
    while let Some((payload, behind)) = unframe(rest) {
        match Record::decode(payload) {
            // As many checksums as pages: a record of another shape was not written by this program.
            Some(Record::Staged { block, checks })
                if header.len_of(block) > 0 && checks.len() as u64 == header.len_of(block).div_ceil(PAGE_BYTES) =>
            {
                blocks.insert(block, checks);
            }
            Some(Record::Dropped { block }) => {
                blocks.remove(&block);
            }
            _ => break,
        }
        rest = behind;
    }
    bytes.len() - rest.len()
}

/// Replays a journal; `None` if its header is incomplete.
pub(super) fn replay(bytes: &[u8]) -> Option<Replayed> {
    let (header, records) = split_header(bytes)?;
    let mut blocks = BTreeMap::new();
    let whole_bytes = bytes.len() - records.len() + replay_records(&header, records, &mut blocks);
    Some(Replayed {
        header,
        blocks,
        whole_bytes,
    })
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
        header.encode(&mut bytes);
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
            record.encode(&mut bytes);
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
            let replayed = replay(&bytes).unwrap();
            prop_assert_eq!((&replayed.header, replayed.whole_bytes), (&header, bytes.len()));
            prop_assert_eq!(&replayed.blocks, &states.last().unwrap().1);
            let cut = cut.index(bytes.len());
            match states.iter().rfind(|(end, _)| *end <= cut) {
                None => prop_assert!(replay(&bytes[..cut]).is_none()),
                Some((end, blocks)) => {
                    let replayed = replay(&bytes[..cut]).unwrap();
                    prop_assert_eq!((replayed.whole_bytes, &replayed.blocks), (*end, blocks));
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
                None => prop_assert!(replay(&bytes).is_none()),
                Some((end, blocks)) => {
                    let replayed = replay(&bytes).unwrap();
                    prop_assert_eq!((replayed.whole_bytes, &replayed.blocks), (*end, blocks));
                }
            }
        }

        #[test]
        fn any_bytes_are_no_reason_to_panic(bytes in vec(any::<u8>(), 0..200)) {
            let _ = replay(&bytes);
            let mut framed = Vec::new();
            frame(&bytes, &mut framed);
            let _ = replay(&framed);
        }
    }
}
