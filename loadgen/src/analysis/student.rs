//! The Student t factor of 95 % intervals.
//!
//! In: degrees of freedom. Out: how many standard errors reach to either side. Knows nothing of what is estimated.

/// Two-sided 95 % points of the standard normal.
pub const Z95: f64 = 1.959_964;

/// Two-sided 95 % points of Student's t by degrees of freedom, as in any printed table.
const T95: [(f64, f64); 17] = [
    (1.0, 12.706_2),
    (2.0, 4.302_65),
    (3.0, 3.182_45),
    (4.0, 2.776_45),
    (5.0, 2.570_58),
    (6.0, 2.446_91),
    (7.0, 2.364_62),
    (8.0, 2.306_00),
    (9.0, 2.262_16),
    (10.0, 2.228_14),
    (12.0, 2.178_81),
    (15.0, 2.131_45),
    (20.0, 2.085_96),
    (30.0, 2.042_27),
    (60.0, 2.000_30),
    (120.0, 1.979_93),
    (f64::INFINITY, Z95),
];

/// The two-sided 95 % point of Student's t with `freedom` degrees of freedom, which need not be whole. Between the
/// table's rows it is interpolated in `1/freedom`, where t is convex: never too small, at most a few percent too large.
/// Fewer than one degree counts as one.
#[must_use]
pub fn t95(freedom: f64) -> f64 {
    let inverse = 1.0 / freedom.max(1.0);
    for pair in T95.windows(2) {
        let ((low, t_low), (high, t_high)) = (pair[0], pair[1]);
        if inverse >= 1.0 / high {
            let share = (inverse - 1.0 / high) / (1.0 / low - 1.0 / high);
            return t_high + share * (t_low - t_high);
        }
    }
    Z95
}

/// The two-sided point of the standard normal that leaves `outside` of it out: `z_two_sided(0.05)` is 1.96. Within
/// 0.000 5 (Abramowitz & Stegun, *Handbook of Mathematical Functions*, 26.2.23).
#[must_use]
pub fn z_two_sided(outside: f64) -> f64 {
    let t = (-2.0 * (outside / 2.0).ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328)) / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_table_come_back() {
        for (freedom, t) in T95 {
            assert!((t95(freedom) - t).abs() < 1e-9, "{freedom}");
        }
        assert_eq!(t95(0.0), t95(1.0));
    }

    #[test]
    fn between_rows_it_is_close_and_never_too_small() {
        // Exact values from the distribution itself.
        for (freedom, exact) in [(11.0, 2.200_99), (25.0, 2.059_54), (40.0, 2.021_08), (100.0, 1.983_97)] {
            let t = t95(freedom);
            assert!(t >= exact - 1e-5 && t < exact * 1.002, "{freedom}: {t}");
        }
    }

    #[test]
    fn normal_points() {
        for (outside, z) in [
            (0.05, 1.959_964),
            (0.01, 2.575_829),
            (0.001, 3.290_527),
            (0.05 / 300.0, 3.764_7),
        ] {
            assert!(
                (z_two_sided(outside) - z).abs() < 1e-3,
                "{outside}: {}",
                z_two_sided(outside)
            );
        }
    }
}
