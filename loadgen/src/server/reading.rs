//! Reports of a server at one moment. Plain data: the metrics of each replica, and the statistics by model.

use super::scrape::Scrape;
use super::statistics::Statistics;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Reports of a server at one moment.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Time of the reading.
    pub at: SystemTime,
    /// Metrics, one for each address, in their order.
    pub replicas: Vec<Scrape>,
    /// Statistics by model, if the server has them and no metrics report the same.
    pub statistics: BTreeMap<String, Statistics>,
}

impl Reading {
    /// Creates a reading of one server's metrics.
    #[must_use]
    pub fn of(scrape: Scrape) -> Self {
        Self {
            at: SystemTime::now(),
            replicas: vec![scrape],
            statistics: BTreeMap::new(),
        }
    }
}
