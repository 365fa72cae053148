//! The log of a Delta table, beside a CSV file that it may name.

#![no_main]

mod import;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let files = [
        ("_delta_log/00000000000000000000.json", data),
        ("a.csv", b"id,v\n1,2\n".as_slice()),
    ];
    import::import(&files, &import::request());
});
