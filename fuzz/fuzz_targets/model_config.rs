//! A model's `config.toml` and `manifest.json`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tierlab_formats::model::{Manifest, ModelConfig, is_plain_name};

fuzz_target!(|data: &[u8]| {
    let _ = Manifest::parse(data);
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(config) = ModelConfig::parse(text)
    {
        assert!(config.instances.is_none_or(|instances| instances.count >= 1));
        // Nothing is cut without batches.
        assert!(config.max_batch_size >= 1 || config.batching.max_request_rows == 0);
        assert!(config.joined.values().all(|joined| is_plain_name(&joined.table)));
    }
});
