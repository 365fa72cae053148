//! Charges of a storage service, and its cost per month.
//!
//! In: an entry of `[storage]`, and the stored bytes. Out: dollars by cause. Pure. Independent of files and readers.

use serde::Deserialize;

/// Bytes of a billed gigabyte: 2^30.
pub const BYTES_PER_GB: f64 = 1_073_741_824.0;
/// Hours of a provider's month (AWS: 730 hours, 365 days × 24 hours ÷ 12).
pub const HOURS_PER_MONTH: f64 = 730.0;

/// Maximum nodes counted one by one in a curve over sizes; beyond it the curve follows their mean.
const MAX_STEPS: u32 = 64;
/// Distance of a curve's points before and after a step, as a share of the size.
const STEP_WIDTH: f64 = 1e-9;

/// Entry of `[storage]`. Missing keys cost nothing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Storage {
    pub(super) usd_per_1000_get_requests: f64,
    // Checked but unused, because a run only reads.
    pub(super) usd_per_1000_put_requests: f64,
    pub(super) usd_per_gb_read: f64,
    /// Surcharge if the server is in another zone than the storage.
    pub(super) usd_per_gb_cross_zone: f64,
    pub(super) usd_per_hour: f64,
    pub(super) usd_per_month: f64,
    /// Hourly price of each server that holds the stored data.
    pub(super) usd_per_node_hour: f64,
    /// Stored GB per server; without it there is one server.
    pub(super) node_gb: f64,
    pub(super) usd_per_gb_month: f64,
    /// Minimum billed size.
    pub(super) minimum_gb: f64,
    pub(super) usd_per_provisioned_iops_month: f64,
    pub(super) included_iops: f64,
    pub(super) usd_per_provisioned_mbps_month: f64,
    pub(super) included_mbps: f64,
    /// Throughput included with every GB stored.
    pub(super) mbps_per_stored_gb: f64,
    /// Provisioned operations per second.
    pub(super) iops: f64,
    /// Required MB/s: provisioned if it has a price, else included by storing enough.
    pub(super) mbps: f64,
    /// If true, each instance pays for its own volume.
    pub(super) per_instance: bool,
}

/// Part of a month, by name, in dollars.
pub(super) type Part = (&'static str, f64);

impl Storage {
    /// Returns a provisioned quantity without a price; `None` if the entry can be charged.
    pub(super) fn unpriced(&self) -> Option<(&'static str, &'static str)> {
        let has_included_mbps = self.mbps_per_stored_gb > 0.0 && self.usd_per_gb_month > 0.0;
        if self.iops > self.included_iops && self.usd_per_provisioned_iops_month == 0.0 {
            Some(("iops", "usd_per_provisioned_iops_month"))
        } else if self.mbps > self.included_mbps && self.usd_per_provisioned_mbps_month == 0.0 && !has_included_mbps {
            Some(("mbps", "usd_per_provisioned_mbps_month"))
        } else {
            None
        }
    }

    /// Returns the billed GB for stored GB: at least the minimum size, and enough for the required throughput if only
    /// stored bytes include it.
    fn billed_gb(&self, stored_gb: f64) -> f64 {
        let is_padded = self.usd_per_provisioned_mbps_month == 0.0;
        let padded = if is_padded { self.gb_with_mbps() } else { 0.0 };
        stored_gb.max(self.minimum_gb).max(padded)
    }

    /// Returns the stored GB that include the required throughput; 0 if stored bytes include none.
    fn gb_with_mbps(&self) -> f64 {
        match self.mbps_per_stored_gb > 0.0 {
            true => (self.mbps - self.included_mbps).max(0.0) / self.mbps_per_stored_gb,
            false => 0.0,
        }
    }

    /// Returns the monthly cost independent of reads.
    pub(super) fn month(&self, stored_bytes: u64) -> Vec<Part> {
        self.month_of_gb(stored_bytes as f64 / BYTES_PER_GB)
    }

    fn month_of_gb(&self, stored_gb: f64) -> Vec<Part> {
        let billed_gb = self.billed_gb(stored_gb);
        let over = |wanted: f64, included: f64| (wanted - included).max(0.0);
        let iops = over(self.iops, self.included_iops);
        let mbps = over(self.mbps, self.included_mbps + billed_gb * self.mbps_per_stored_gb);
        let parts = [
            ("capacity", billed_gb * self.usd_per_gb_month),
            ("provisioned IOPS", iops * self.usd_per_provisioned_iops_month),
            ("provisioned throughput", mbps * self.usd_per_provisioned_mbps_month),
            ("server", self.hourly(stored_gb) * HOURS_PER_MONTH),
        ];
        parts.into_iter().filter(|(_, usd)| *usd > 0.0).collect()
    }

    /// Returns the hourly cost of the servers that hold `stored_gb`.
    pub(super) fn hourly(&self, stored_gb: f64) -> f64 {
        let nodes = (stored_gb / self.node_gb).ceil().max(1.0);
        let nodes = if self.node_gb > 0.0 { nodes } else { 1.0 };
        self.usd_per_hour + self.usd_per_month / HOURS_PER_MONTH + nodes * self.usd_per_node_hour
    }

    /// Returns the monthly cost in dollars over the table's size, in multiples of `table_bytes`, with `other_bytes` also
    /// stored. Linear between two points and after the last.
    pub(super) fn month_by_size(&self, table_bytes: u64, other_bytes: u64) -> Vec<(f64, f64)> {
        let table_gb = table_bytes as f64 / BYTES_PER_GB;
        let times = |gb: f64| (gb - other_bytes as f64 / BYTES_PER_GB) / table_gb;
        let steps = (1..=MAX_STEPS).map(|nodes| f64::from(nodes) * self.node_gb);
        let steps = steps.flat_map(|gb| [gb * (1.0 - STEP_WIDTH), gb * (1.0 + STEP_WIDTH)]);
        let sizes = steps.chain([self.minimum_gb, self.gb_with_mbps()]);
        let mut bends = vec![0.0, 1.0];
        bends.extend(sizes.map(times).filter(|times| *times > 0.0));
        bends.sort_by(f64::total_cmp);
        bends.dedup();
        // A point after the last bend gives the slope there.
        bends.extend(bends.last().map(|last| 2.0 * last + 1.0));
        let usd = |times: f64| {
            let month = self.month_of_gb(times * table_gb + other_bytes as f64 / BYTES_PER_GB);
            month.iter().map(|(_, usd)| usd).sum::<f64>() + 0.0
        };
        bends.into_iter().map(|times| (times, usd(times))).collect()
    }

    pub(super) fn usd_per_request(&self) -> f64 {
        self.usd_per_1000_get_requests / 1_000.0
    }

    /// Returns the price of a byte read, including transfer to another zone.
    pub(super) fn usd_per_byte(&self) -> f64 {
        (self.usd_per_gb_read + self.usd_per_gb_cross_zone) / BYTES_PER_GB
    }

    /// Describes the entry's prices in words.
    pub(super) fn describe(&self) -> String {
        let prices: Vec<String> = [
            (self.usd_per_1000_get_requests, "1,000 GET requests"),
            (self.usd_per_gb_read, "GB read"),
            (self.usd_per_gb_cross_zone, "GB read across zones"),
            (self.usd_per_hour, "hour"),
            (self.usd_per_month, "month"),
            (self.usd_per_node_hour, "hour of a node"),
            (self.usd_per_gb_month, "GB-month"),
            (self.usd_per_provisioned_iops_month, "provisioned IOPS-month"),
            (self.usd_per_provisioned_mbps_month, "provisioned MB/s-month"),
        ]
        .iter()
        .filter(|(usd, _)| *usd > 0.0)
        .map(|(usd, unit)| format!("${usd} per {unit}"))
        .collect();
        if prices.is_empty() {
            "free of charge".to_owned()
        } else {
            prices.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    #[track_caller]
    fn assert_month(storage: &Storage, stored_gb: u64, expected: &[Part]) {
        let found = storage.month(stored_gb * GB);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                found.0 == expected.0 && (found.1 - expected.1).abs() < 1e-9,
                "{found:?}, {expected:?}"
            );
        }
    }

    #[test]
    fn capacity_is_billed_by_what_is_kept_and_at_least_the_least_size() {
        let lustre = Storage {
            usd_per_gb_month: 0.1,
            minimum_gb: 1_200.0,
            ..Storage::default()
        };
        assert_month(&lustre, 100, &[("capacity", 120.0)]);
        assert_month(&lustre, 2_000, &[("capacity", 200.0)]);
        assert_month(&Storage::default(), 2_000, &[]);
    }

    #[test]
    fn only_what_is_above_the_included_is_provisioned() {
        let mut volume = Storage {
            usd_per_gb_month: 0.08,
            usd_per_provisioned_iops_month: 0.005,
            included_iops: 3_000.0,
            usd_per_provisioned_mbps_month: 0.04,
            included_mbps: 125.0,
            ..Storage::default()
        };
        assert_month(&volume, 50, &[("capacity", 4.0)]);
        (volume.iops, volume.mbps) = (5_000.0, 250.0);
        let parts = [
            ("capacity", 4.0),
            ("provisioned IOPS", 10.0),
            ("provisioned throughput", 5.0),
        ];
        assert_month(&volume, 50, &parts);
        assert_eq!(volume.unpriced(), None);
    }

    #[test]
    fn throughput_that_comes_with_capacity_is_taken_off_or_bought_as_capacity() {
        let bursting = Storage {
            usd_per_gb_month: 0.3,
            mbps_per_stored_gb: 0.05,
            mbps: 10.0,
            ..Storage::default()
        };
        assert_eq!(bursting.unpriced(), None);
        assert_month(&bursting, 10, &[("capacity", 60.0)]);
        assert_month(&bursting, 400, &[("capacity", 120.0)]);
        let provisioned = Storage {
            usd_per_provisioned_mbps_month: 6.0,
            ..bursting
        };
        assert_month(&provisioned, 20, &[("capacity", 6.0), ("provisioned throughput", 54.0)]);
    }

    #[test]
    fn a_month_by_size_is_the_month_at_every_size() {
        let minimum = Storage {
            usd_per_gb_month: 0.1,
            minimum_gb: 1_200.0,
            ..Storage::default()
        };
        let provisioned = Storage {
            usd_per_gb_month: 0.3,
            mbps_per_stored_gb: 0.05,
            mbps: 10.0,
            usd_per_provisioned_mbps_month: 6.0,
            ..Storage::default()
        };
        let nodes = Storage {
            usd_per_node_hour: 0.5,
            node_gb: 13.0,
            ..Storage::default()
        };
        assert_month(&nodes, 5, &[("server", 365.0)]);
        assert_month(&nodes, 26, &[("server", 730.0)]);
        assert_month(&nodes, 27, &[("server", 1_095.0)]);
        for storage in [minimum, provisioned, nodes, Storage::default()] {
            let curve = storage.month_by_size(10 * GB, 5 * GB);
            assert!(
                curve.windows(2).all(|pair| pair[0].0 < pair[1].0) && curve[0].0 == 0.0,
                "{curve:?}"
            );
            // Steps are no lines, and beyond the last of them the curve has their mean.
            let is_line = |pair: &&[(f64, f64)]| {
                pair[1].0 - pair[0].0 > 1e-6 && (storage.node_gb == 0.0 || pair[1].0 < f64::from(MAX_STEPS))
            };
            for pair in curve.windows(2).filter(is_line) {
                let middle = f64::midpoint(pair[0].0, pair[1].0);
                let month: f64 = storage
                    .month_of_gb(10.0 * middle + 5.0)
                    .iter()
                    .map(|(_, usd)| usd)
                    .sum();
                assert!(
                    (month - f64::midpoint(pair[0].1, pair[1].1)).abs() < 1e-9,
                    "{middle}: {curve:?}"
                );
            }
        }
    }

    #[test]
    fn what_has_no_price_is_named() {
        let storage = |iops, mbps| Storage {
            iops,
            mbps,
            included_iops: 100.0,
            ..Storage::default()
        };
        assert_eq!(storage(100.0, 0.0).unpriced(), None);
        assert_eq!(storage(101.0, 0.0).unpriced().unwrap().0, "iops");
        assert_eq!(storage(0.0, 1.0).unpriced().unwrap().0, "mbps");
    }

    #[test]
    fn a_server_is_paid_by_the_hour_and_by_the_month() {
        let server = Storage {
            usd_per_hour: 0.1,
            usd_per_month: 7.0,
            usd_per_gb_read: 0.01,
            usd_per_gb_cross_zone: 0.01,
            ..Storage::default()
        };
        assert_month(&server, 5, &[("server", 80.0)]);
        assert!((server.usd_per_byte() * BYTES_PER_GB - 0.02).abs() < 1e-12);
    }
}
