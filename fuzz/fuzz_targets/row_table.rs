//! The header of a row table, and rows that are held against it. The first eight bytes say how long the file is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tierlab_formats::table::{self, TableHeader};

fuzz_target!(|data: &[u8]| {
    let Some((length, bytes)) = data.split_first_chunk::<8>() else {
        return;
    };
    let _ = table::header_len(bytes);
    // Checksums keep a fuzzer out: half of the inputs are read as the header that they would be with the right one.
    for file_len in [u64::from_le_bytes(*length), bytes.len() as u64] {
        let Ok(header) = TableHeader::decode(bytes, file_len) else {
            continue;
        };
        assert!(header.file_len() <= file_len);
        let ids = header.ids();
        for id in [ids.start, ids.end.wrapping_sub(1), ids.end, i64::MIN, i64::MAX] {
            if let Some(range) = header.row_range(id) {
                assert!(range.end <= header.file_len());
            }
            let _ = header.check_row(id, bytes);
        }
    }
    // A header that was made by the code itself, with rows from the fuzzer.
    let columns: &[(&str, tierlab_protocol::tensor::DataType, &[i64])] =
        &[("a", tierlab_protocol::tensor::DataType::Fp32, &[4])];
    let schema = table::TableSchema::lay_out("t", columns).expect("a schema");
    let rows = u64::from(length[0]);
    let header = TableHeader::new(schema, rows, i64::from(length[1]), 0).expect("a header");
    let mut written = header.encode();
    if let Some((at, value)) = bytes.split_first() {
        let at = usize::from(*at) % written.len();
        written[at] ^= value.first().copied().unwrap_or(0);
    }
    let _ = TableHeader::decode(&written, header.file_len());
    for id in header.ids() {
        let _ = header.check_row(id, bytes);
    }
});
