//! The index of a table's keys, and keys in rows. The first eight bytes are a number of rows.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tierlab_formats::table::{KeyColumn, KeyIndex, KeyKind};

fuzz_target!(|data: &[u8]| {
    let Some((rows, bytes)) = data.split_first_chunk::<8>() else {
        return;
    };
    let rows = u64::from_le_bytes(*rows);
    let mut index = bytes.to_vec();
    // A checksum keeps a fuzzer out: each input is read as it is, and with the right one.
    for right in [false, true] {
        if right && index.len() >= 12 {
            let crc = crc32c(&index[12..]);
            index[8..12].copy_from_slice(&crc.to_le_bytes());
        }
        if let Ok(index) = KeyIndex::decode(&index, rows) {
            for key in [&b""[..], b"a", bytes] {
                assert!(index.row(key).is_none_or(|row| row < rows));
            }
        }
    }
    for kind in [KeyKind::Int64, KeyKind::String, KeyKind::Uuid] {
        let (offset, width) = (rows as u32 % 64, (rows >> 32) as u32 % 64);
        let column = KeyColumn {
            name: "k".into(),
            kind,
            offset,
            width,
        };
        if let Some(key) = column.get(bytes) {
            assert!(key.len() <= width as usize);
            let _ = kind.for_message(key);
        }
        if let Ok(text) = std::str::from_utf8(bytes) {
            let _ = kind.of_text(text);
        }
    }
});

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}
