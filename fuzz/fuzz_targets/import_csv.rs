//! CSV and how it is written. The first line has a delimiter, words for nulls, and declared types.

#![no_main]

mod import;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    let (first, rows) = data.split_at(end);
    let mut request = import::request();
    request.csv.delimiter = first.first().copied();
    let words = String::from_utf8_lossy(first.get(1..).unwrap_or_default());
    for word in words.split(',') {
        match word.parse() {
            Ok(declared) => request.columns.types.push(declared),
            Err(_) => request.csv.null_values.push(word.to_owned()),
        }
    }
    import::import(&[("day=1/a.csv", rows.get(1..).unwrap_or_default())], &request);
});
