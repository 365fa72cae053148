//! Student's t and the standard normal: quantiles and tail probabilities, with the incomplete beta function below them.
//!
//! In: the share outside an interval, and degrees of freedom. Out: standard errors to either side. Knows nothing of the
//! estimate.

use super::bisect;

/// Two-sided 95 % quantile of the standard normal.
pub const Z95: f64 = 1.959_964;
/// Degrees of freedom from which the normal is used.
const NORMAL_FROM: f64 = 1e6;
/// Maximum number of terms of the continued fraction, which needs about the root of the larger shape.
const TERMS: u32 = 20_000;
/// Relative size below which further terms are ignored.
const CONVERGED: f64 = 1e-14;
/// Substitute for zero in a denominator (Lentz's method).
const TINY: f64 = 1e-300;

/// Returns the share of Student's t beyond `t` on either side: `I_x(freedom / 2, 1 / 2)` with `x = freedom / (freedom + t²)`
/// (DLMF 8.17). Fewer than one degree of freedom counts as one.
pub fn beyond(t: f64, freedom: f64) -> f64 {
    let freedom = freedom.max(1.0);
    regularised(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// Returns the two-sided quantile of Student's t that leaves out `outside`. Fewer than one degree of freedom counts as
/// one. Computed by bisection of [`beyond`].
pub fn t_two_sided(outside: f64, freedom: f64) -> f64 {
    if freedom >= NORMAL_FROM {
        return z_two_sided(outside);
    }
    let mut high = 1.0;
    while beyond(high, freedom) > outside && high < 1e12 {
        high *= 2.0;
    }
    let (low, high) = bisect((0.0, high), 80, |t| beyond(t, freedom) > outside);
    f64::midpoint(low, high)
}

/// Returns the two-sided quantile of the standard normal that leaves out `outside`: `z_two_sided(0.05)` is 1.96.
/// Accurate within 0.000 5 (Abramowitz & Stegun, *Handbook of Mathematical Functions*, 26.2.23).
pub fn z_two_sided(outside: f64) -> f64 {
    let t = (-2.0 * (outside / 2.0).ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328)) / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

/// Returns `I_x(a, b)`: the probability that a beta variable of shapes `a` and `b` is at most `x`, by the continued
/// fraction DLMF 8.17.22, on the side of the mean where it converges fast. Shapes are above 0; `x` outside 0 to 1 is
/// clamped.
fn regularised(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = |a: f64, b: f64, x: f64| {
        let log_beta = libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b);
        (a * x.ln() + b * (-x).ln_1p() - log_beta).exp() / a
    };
    if x < (a + 1.0) / (a + b + 2.0) {
        front(a, b, x) * fraction(a, b, x)
    } else {
        1.0 - front(b, a, 1.0 - x) * fraction(b, a, 1.0 - x)
    }
}

/// Evaluates the continued fraction by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    let nonzero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for term in 1..TERMS {
        let m = f64::from(term);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for coefficient in [even, odd] {
            d = 1.0 / nonzero(1.0 + coefficient * d);
            c = nonzero(1.0 + coefficient / c);
            change = c * d;
            value *= change;
        }
        if (change - 1.0).abs() < CONVERGED {
            break;
        }
    }
    value
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
        assert_eq!(t_two_sided(0.05, 0.0), t_two_sided(0.05, 1.0));
        assert!((t_two_sided(0.05, 1e7) - Z95).abs() < 1e-3);
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

    #[test]
    fn closed_forms_come_back() {
        for x in [0.01_f64, 0.3, 0.5, 0.99] {
            assert!((regularised(1.0, 1.0, x) - x).abs() < 1e-12);
            assert!((regularised(3.0, 1.0, x) - x.powi(3)).abs() < 1e-12);
            assert!((regularised(0.5, 0.5, x) - 2.0 / std::f64::consts::PI * x.sqrt().asin()).abs() < 1e-12);
        }
        assert_eq!((regularised(2.0, 2.0, -1.0), regularised(2.0, 2.0, 2.0)), (0.0, 1.0));
    }

    proptest! {
        #[test]
        fn both_sides_make_one(a in 0.1_f64..5_000.0, b in 0.1_f64..5_000.0, x in 0.0_f64..1.0) {
            let sum = regularised(a, b, x) + regularised(b, a, 1.0 - x);
            prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        }

        #[test]
        fn another_library_has_the_same_beta_function(a in 0.1_f64..2_000.0, b in 0.1_f64..2_000.0, x in 0.001_f64..0.999) {
            let theirs = statrs::function::beta::beta_reg(a, b, x);
            prop_assert!((regularised(a, b, x) - theirs).abs() < 1e-9, "{theirs}");
        }
    }
}
