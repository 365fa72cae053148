//! Reports of a server at one moment. Plain data: the metrics of each replica, and the statistics by model.

use super::scrape::Scrape;
use super::statistics::Statistics;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Reports of a server at one moment.
#[derive(Debug, Clone)]
pub struct Reading {
    /// When it was asked.
    pub at: SystemTime,
    /// One for each address of metrics, in their order.
    pub replicas: Vec<Scrape>,
    /// By model, where the server keeps them and nothing else says what they say.
    pub statistics: BTreeMap<String, Statistics>,
}

impl Reading {
    /// One of one server's metrics.
    #[must_use]
    pub fn of(scrape: Scrape) -> Self {
        Self {
            at: SystemTime::now(),
            replicas: vec![scrape],
            statistics: BTreeMap::new(),
        }
    }
}
