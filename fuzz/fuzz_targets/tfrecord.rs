//! The frames of a `TFRecord` file, and the features of a record. The first eight bytes are where the record begins in its file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tierlab_formats::shards::{example, tfrecord};
use tierlab_formats::table::TableSchema;
use tierlab_protocol::tensor::DataType;

fuzz_target!(|data: &[u8]| {
    let Some((offset, bytes)) = data.split_first_chunk::<8>() else {
        return;
    };
    let offset = u64::from_le_bytes(*offset) >> 8;
    let _ = tfrecord::length(bytes, offset);
    let mut rest = bytes;
    while let Ok((record, taken)) = tfrecord::record(rest, offset) {
        assert_eq!(record.len() + tfrecord::HEAD_BYTES + tfrecord::FOOT_BYTES, taken);
        rest = &rest[taken..];
    }
    // Checksums keep a fuzzer out: the bytes are framed as they should be, and read back; then cut off.
    let mut framed = Vec::new();
    tfrecord::push(bytes, &mut framed);
    assert_eq!(tfrecord::record(&framed, offset), Ok((bytes, framed.len())));
    assert!(tfrecord::record(&framed[..framed.len() - 1], offset).is_err());
    let columns: &[(&str, DataType, &[i64])] = &[
        ("a", DataType::Fp32, &[2]),
        ("b", DataType::Int64, &[]),
        ("c", DataType::Uint8, &[3]),
    ];
    let schema = TableSchema::lay_out("t", columns).expect("a schema");
    let stride = schema.stride().expect("a stride") as usize;
    let mut row = vec![0; stride];
    let _ = example::into_row(&schema, "0", bytes, offset, &mut row);
    // A row from the fuzzer comes back as it went.
    let mut from = vec![0; stride];
    for (to, &byte) in from.iter_mut().zip(bytes) {
        *to = byte;
    }
    let record = example::of_row(&schema, "0", &from);
    let mut back = vec![0; stride];
    example::into_row(&schema, "0", &record, offset, &mut back).expect("its own record");
    for column in &schema.columns {
        assert_eq!(column.of_row(&from), column.of_row(&back));
    }
});
