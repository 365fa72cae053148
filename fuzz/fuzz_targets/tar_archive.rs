//! The headers of a tar archive, and the index of a shard. The first eight bytes are where the archive begins in its file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tierlab_formats::shards::index::ShardIndex;
use tierlab_formats::shards::key_and_extension;
use tierlab_formats::shards::tar::{self, BLOCK};

/// Position of the checksum in a header.
const SUM: std::ops::Range<usize> = 148..156;

fuzz_target!(|data: &[u8]| {
    let Some((base, bytes)) = data.split_first_chunk::<8>() else {
        return;
    };
    let base = u64::from_le_bytes(*base) >> 8;
    let mut archive = bytes.to_vec();
    // Checksums keep a fuzzer out: each input is read as it is, and with the right one in every block that could be a header.
    for right in [false, true] {
        if right {
            for block in archive.chunks_exact_mut(BLOCK) {
                seal(block);
            }
        }
        let Ok(members) = tar::members(&archive, base) else {
            continue;
        };
        let mut last = base;
        for member in members {
            assert!(member.start >= last && member.start < member.body.start);
            assert!(member.body.start <= member.body.end && member.body.end <= base + archive.len() as u64);
            last = member.body.end;
            if let Some((key, extension)) = key_and_extension(&member.name) {
                assert!(!key.is_empty() && !extension.is_empty());
            }
        }
    }
    let mut index = bytes.to_vec();
    for right in [false, true] {
        if right && index.len() >= 12 {
            let crc = crc32c(&index[12..]);
            index[8..12].copy_from_slice(&crc.to_le_bytes());
        }
        if let Ok(read) = ShardIndex::decode(&index) {
            for sample in read.samples() {
                assert!(sample.range.start <= sample.range.end && sample.range.end <= read.shard_bytes());
                assert_eq!(
                    read.position(&sample.key, 0).map(|at| &read.samples()[at]),
                    Some(sample)
                );
            }
            assert_eq!(ShardIndex::decode(&read.encode()), Ok(read));
        }
    }
});

/// Writes the checksum of a header, where the block is not all zeros.
fn seal(block: &mut [u8]) {
    if block.iter().all(|&byte| byte == 0) {
        return;
    }
    block[SUM].copy_from_slice(b"        ");
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}
