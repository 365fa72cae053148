//! Levels of many tests that share one error.
//!
//! In: the p-values of each point's tests. Out: the level of the interval of every test. Pure. Knows nothing of figures.
//!
//! The statistics of one point depend on each other, since a slow repeat moves all of them: within a point the p-values are
//! adjusted by closed testing with Simes' inequality (G. Hommel, Biometrika 75, 1988). Between points the procedure is Holm's
//! (Scand. J. Statist. 6, 1979): a test passes at the error divided by the number of points that still have tests to pass, in
//! the order of the adjusted p-values, until the first that does not.

/// Returns the level that the interval of each test leaves out, if all tests together leave out `outside`. The interval
/// of a test that passes excludes the null hypothesis, and no other does.
pub(super) fn levels(points: &[Vec<f64>], outside: f64) -> Vec<Vec<f64>> {
    let adjusted: Vec<Vec<f64>> = points.iter().map(|tests| adjusted(tests)).collect();
    let mut order: Vec<(usize, usize)> = (0..points.len())
        .flat_map(|point| (0..points[point].len()).map(move |test| (point, test)))
        .collect();
    order.sort_by(|a, b| adjusted[a.0][a.1].total_cmp(&adjusted[b.0][b.1]));
    let mut open: Vec<usize> = points.iter().map(Vec::len).collect();
    let mut levels: Vec<Vec<f64>> = points.iter().map(|tests| vec![0.0; tests.len()]).collect();
    let mut level = outside;
    let mut passes = true;
    for (point, test) in order {
        let (p, adjusted) = (points[point][test], adjusted[point][test]);
        if passes {
            level = outside / open.iter().filter(|tests| **tests > 0).count() as f64;
            passes = adjusted <= level;
        }
        levels[point][test] = if passes && p > 0.0 {
            level * (p / adjusted)
        } else {
            level / points[point].len() as f64
        };
        open[point] -= usize::from(passes);
    }
    levels
}

/// Returns a point's p-values adjusted for each other: for each test the largest Simes p-value over all sets of tests
/// that contain it. Among the sets of one size that is the set with the largest other p-values.
fn adjusted(tests: &[f64]) -> Vec<f64> {
    let of = |test: usize| {
        let mut others = tests.to_vec();
        let own = others.remove(test);
        others.sort_by(|a, b| b.total_cmp(a));
        (0..=others.len())
            .map(|count| simes(own, &others[..count]))
            .fold(own, f64::max)
    };
    (0..tests.len()).map(of).collect()
}

/// P-value of the hypothesis that none of the tests found anything.
fn simes(own: f64, others: &[f64]) -> f64 {
    let mut all = others.to_vec();
    all.push(own);
    all.sort_by(f64::total_cmp);
    let count = all.len() as f64;
    let scaled = all.iter().zip(1_u32..).map(|(p, rank)| p * count / f64::from(rank));
    scaled.fold(1.0, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_test_has_the_whole_level_and_points_share_it() {
        assert_eq!(levels(&[vec![0.04]], 0.1), [[0.1]]);
        assert_eq!(
            levels(&[vec![], vec![0.5], vec![0.9]], 0.1),
            [vec![], vec![0.05], vec![0.05]]
        );
        // The second point has the whole level after the first has passed.
        assert_eq!(levels(&[vec![0.01], vec![0.09]], 0.1), [[0.05], [0.1]]);
    }

    #[test]
    fn tests_of_one_point_support_each_other_and_those_of_other_points_do_not() {
        let passes = |p: f64, level: f64| p <= level;
        let together = levels(&[vec![0.09, 0.08, 0.07]], 0.1);
        assert!(
            together[0]
                .iter()
                .zip([0.09, 0.08, 0.07])
                .all(|(level, p)| passes(p, *level))
        );
        let apart = levels(&[vec![0.09], vec![0.08], vec![0.07]], 0.1);
        assert!(
            apart
                .iter()
                .zip([0.09, 0.08, 0.07])
                .all(|(level, p)| !passes(p, level[0]))
        );
    }

    proptest! {
        /// Each level is at least Bonferroni's, and rejections within a point are at least Holm's.
        #[test]
        fn levels_lie_between_bonferroni_and_the_whole(p in prop::collection::vec(prop::collection::vec(1e-6_f64..1.0, 1..6), 1..5)) {
            let count: usize = p.len();
            for (tests, levels) in p.iter().zip(levels(&p, 0.1)) {
                for (p, level) in tests.iter().zip(levels) {
                    prop_assert!(level <= 0.1 + 1e-12);
                    prop_assert!(level >= 0.1 / (count * tests.len()) as f64 - 1e-12);
                    prop_assert!(*p > level || *p <= 0.1);
                }
            }
        }
    }
}
