//! The metadata of an Iceberg table, or a manifest that metadata names: the first byte says which.

#![no_main]

mod import;

use libfuzzer_sys::fuzz_target;

/// Metadata of a table with one manifest.
const METADATA: &[u8] = br#"{"location":"file:///t","format-version":1,"current-snapshot-id":1,
"snapshots":[{"snapshot-id":1,"manifests":["file:///t/metadata/m.avro"]}],
"schema":{"fields":[{"id":1,"name":"id","type":"long"},{"id":2,"name":"v","type":"double"}]}}"#;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else {
        return;
    };
    let (metadata, manifest) = if kind == b'm' {
        (bytes, &[][..])
    } else {
        (METADATA, bytes)
    };
    let files = [
        ("metadata/v1.metadata.json", metadata),
        ("metadata/m.avro", manifest),
        ("data/a.parquet", b"PAR1".as_slice()),
    ];
    import::import(&files, &import::request());
});
