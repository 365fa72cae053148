//! Files and streams of Arrow IPC: what passes the look at its messages is read without harm. Readers may refuse it, or give up; memory that
//! they set aside stays within the limit, which libFuzzer's own limit on an allocation holds them to.

#![no_main]

use arrow_ipc::reader::{FileReader, StreamReader};
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::Once;
use tierlab_formats::arrow;

/// A batch's bytes at most: far below libFuzzer's limit of 2 GiB for one allocation.
const LIMIT: u64 = 16 << 20;

static QUIET: Once = Once::new();

fuzz_target!(|data: &[u8]| {
    // libFuzzer ends the process in its hook, before a panic of the reader can be caught.
    QUIET.call_once(|| set_hook(Box::new(|_| ())));
    if arrow::check(&mut Cursor::new(data), LIMIT).is_err() {
        return;
    }
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Ok(reader) = FileReader::try_new(Cursor::new(data), None) {
            reader.take(100).for_each(drop);
        }
        if let Ok(reader) = StreamReader::try_new(data, None) {
            reader.take(100).for_each(drop);
        }
    }));
});
