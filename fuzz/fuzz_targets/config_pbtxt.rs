//! Triton's `config.pbtxt`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tierlab_formats::pbtxt::model::model_config;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = model_config(text, "model");
    }
});
