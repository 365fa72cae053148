//! Quantiles of Student's t and of the standard normal.
//!
//! In: the share outside an interval, and degrees of freedom. Out: standard errors to either side. Knows nothing of the
//! estimate.

use super::beta;

/// Two-sided 95 % quantile of the standard normal.
pub const Z95: f64 = 1.959_964;
/// Degrees of freedom from which the normal is used.
const NORMAL_FROM: f64 = 1e6;

/// Returns the two-sided 95 % quantile of Student's t with `freedom` degrees of freedom, which need not be whole.
#[must_use]
pub fn t95(freedom: f64) -> f64 {
    t_two_sided(0.05, freedom)
}

/// Returns the two-sided quantile of Student's t that leaves out `outside`. Fewer than one degree of freedom counts as
/// one. By bisection of `P(|T| > t) = I_x(freedom / 2, 1 / 2)` with `x = freedom / (freedom + t²)` (DLMF 8.17).
#[must_use]
pub fn t_two_sided(outside: f64, freedom: f64) -> f64 {
    let freedom = freedom.max(1.0);
    if freedom >= NORMAL_FROM {
        return z_two_sided(outside);
    }
    let beyond = |t: f64| beta::regularised(freedom / 2.0, 0.5, freedom / (freedom + t * t));
    let (mut low, mut high) = (0.0, 1.0);
    while beyond(high) > outside && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if beyond(middle) > outside {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Returns the two-sided quantile of the standard normal that leaves out `outside`: `z_two_sided(0.05)` is 1.96.
/// Accurate within 0.000 5 (Abramowitz & Stegun, *Handbook of Mathematical Functions*, 26.2.23).
#[must_use]
pub fn z_two_sided(outside: f64) -> f64 {
    let t = (-2.0 * (outside / 2.0).ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328)) / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

    #[test]
    fn printed_tables_come_back() {
        let table = [
            (0.05, 1.0, 12.706_2),
            (0.05, 2.0, 4.302_65),
            (0.05, 4.0, 2.776_45),
            (0.05, 11.0, 2.200_99),
            (0.05, 100.0, 1.983_97),
            (0.01, 4.0, 4.604_09),
            (0.001, 2.0, 31.599_1),
            (0.10, 30.0, 1.697_26),
        ];
        for (outside, freedom, t) in table {
            let found = t_two_sided(outside, freedom);
            assert!((found / t - 1.0).abs() < 1e-5, "{outside} {freedom}: {found}");
        }
        assert_eq!(t95(0.0), t95(1.0));
        assert!((t95(1e7) - Z95).abs() < 1e-3);
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
    proptest! {
        #[test]
        fn another_library_says_the_same(outside in 1e-6_f64..0.9, freedom in 1.0_f64..2_000.0) {
            let theirs = StudentsT::new(0.0, 1.0, freedom).unwrap();
            let left_out = 2.0 * theirs.sf(t_two_sided(outside, freedom));
            prop_assert!((left_out / outside - 1.0).abs() < 1e-6, "{left_out}");
        }

        #[test]
        fn another_library_has_the_same_normal_points(outside in 1e-9_f64..0.9) {
            let theirs = Normal::standard().inverse_cdf(1.0 - outside / 2.0);
            prop_assert!((z_two_sided(outside) - theirs).abs() < 5e-4, "{theirs}");
        }
    }
}
