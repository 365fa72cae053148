//! A state of the server's feature cache. Plain data, which `plan::lab` checks.

use tierlab_analysis::record::PageCache;

/// A state of the server's feature cache.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheState {
    /// Its name: `cold`, `warm`, …
    pub name: String,
    /// Capacity as share of the table's bytes; 0 is no cache, so that every row comes from the tier.
    pub share: f64,
    /// Whether it is filled with the most popular entities before it is measured.
    pub prefill: bool,
    /// Whether the page cache below the tier's files is dropped before each step.
    pub page_cache: PageCache,
    /// Keys of the server's `[cache]` in this state, as `cache.KEY=VALUE`.
    pub set: Vec<String>,
}

impl CacheState {
    /// No cache: every row comes from the tier.
    #[must_use]
    pub fn none() -> Self {
        Self {
            name: "cold".into(),
            share: 0.0,
            prefill: false,
            page_cache: PageCache::default(),
            set: Vec::new(),
        }
    }
}
