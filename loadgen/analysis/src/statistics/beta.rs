//! Regularised incomplete beta function, the base of Student's t.
//!
//! In: two shapes and an argument. Out: a probability. Knows nothing of statistics.

/// Maximum number of terms of the continued fraction, which needs about the root of the larger shape.
const TERMS: u32 = 20_000;
/// Relative size below which further terms are ignored.
const ENOUGH: f64 = 1e-14;
/// Substitute for zero in a denominator (Lentz's method).
const TINY: f64 = 1e-300;

/// Returns `I_x(a, b)`: the probability that a beta variable of shapes `a` and `b` is at most `x`, by the continued
/// fraction DLMF 8.17.22, on the side of the mean where it converges fast. Shapes are above 0; `x` outside 0 to 1 is
/// clamped.
#[must_use]
pub fn regularised(a: f64, b: f64, x: f64) -> f64 {
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
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for term in 1..TERMS {
        let m = f64::from(term);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for coefficient in [even, odd] {
            d = 1.0 / away(1.0 + coefficient * d);
            c = away(1.0 + coefficient / c);
            change = c * d;
            value *= change;
        }
        if (change - 1.0).abs() < ENOUGH {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    }
    proptest! {
        #[test]
        fn another_library_says_the_same(a in 0.1_f64..2_000.0, b in 0.1_f64..2_000.0, x in 0.001_f64..0.999) {
            let theirs = statrs::function::beta::beta_reg(a, b, x);
            prop_assert!((regularised(a, b, x) - theirs).abs() < 1e-9, "{theirs}");
        }
    }
}
