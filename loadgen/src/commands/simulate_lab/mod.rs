//! How often a lab's answer is right, and what it takes. In: a number of labs and a seed. Out: a table, measured by simulation.
//!
//! Every lab is one that never was: servers whose highest rate under the objective is known, measured in short steps that start
//! with an idle server, and decided by the very rule that decides real ones. Beside it stand two designs: elimination by bisection, one
//! step at a time, which never says that it does not know; and one that is fixed beforehand, every variant at the same ladder of rates with
//! the same repeats, which names the likeliest, at the smallest size at which it errs in at most a twentieth of all labs.

mod designs;
mod families;
mod rates;
mod row;
mod servers;
mod table;

pub use families::{Family, Kind, families};
pub use row::Row;

use crate::error::RunError;
use designs::{Fixed, Said};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierlab_load::schedule::split_mix;

/// A fixed design larger than this, in steps of one variant, is not tried.
const LARGEST: u32 = 60;
/// The error that a fixed design may have.
const ALLOWED: f64 = 0.05;

/// The labs of a family.
#[must_use]
pub fn row(family: Family, labs: usize, seed: u64) -> Row {
    let seeds = || (0..labs as u64).map(|lab| split_mix(seed.wrapping_add(lab)));
    let said: Vec<(Said, u32)> = seeds().map(|seed| designs::by_rule(&family, seed)).collect();
    let count = |what: Said| said.iter().filter(|(said, _)| *said == what).count();
    let mut row = Row {
        family,
        labs,
        right: count(Said::Right),
        wrong: count(Said::Wrong),
        none_wrong: count(Said::NoneWrong),
        undecided: count(Said::Undecided) + count(Said::Contradicted),
        contradicted: count(Said::Contradicted),
        steps: said.iter().map(|(_, steps)| *steps).collect(),
        eliminated: seeds().map(|seed| designs::by_elimination(&family, seed)).collect(),
        named: None,
    };
    let mut named = Vec::new();
    for ladder in Fixed::ladders(LARGEST) {
        let mut wrong = vec![0; ladder.len()];
        for seed in seeds() {
            for (wrong, said) in wrong.iter_mut().zip(designs::by_ladder(&ladder, &family, seed)) {
                *wrong += usize::from(said != Said::Right);
            }
        }
        let small = ladder
            .iter()
            .zip(wrong)
            .filter(|(_, wrong)| *wrong as f64 <= ALLOWED * labs as f64);
        named.extend(small.map(|(design, wrong)| (design.per_variant() * family.variants as u32, wrong)));
    }
    row.named = named.into_iter().min();
    row
}

/// The labs of some families, on every core; the same seed gives the same rows.
#[must_use]
pub fn simulate(families: &[Family], labs: usize, seed: u64, said: &(dyn Fn(usize) + Sync)) -> Vec<Row> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found: Mutex<Vec<(usize, Row)>> = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&family) = families.get(index) else { break };
                    let row = row(family, labs, split_mix(seed ^ split_mix(index as u64)));
                    if let Ok(mut found) = found.lock() {
                        found.push((index, row));
                    }
                    said(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, row)| row).collect()
}

/// Simulates, writes `decisions.md`, `decisions.csv` and `highest_rates.csv` into a folder, and says which families do not hold.
///
/// # Errors
/// A file cannot be written; decided labs of a family are right less often than promised.
pub fn run(folder: &Path, labs: usize, seed: u64) -> Result<(), RunError> {
    let families = families();
    let said = |done: usize| eprintln!("family [{done}/{}]", families.len());
    let rows = simulate(&families, labs, seed, &said);
    std::fs::create_dir_all(folder).map_err(RunError::io(folder))?;
    let command = format!("tierlab-loadgen simulate-lab --labs {labs} --seed {seed}");
    for (name, text) in [
        ("decisions.csv", table::csv(&rows)),
        ("highest_rates.csv", rates::csv(labs, seed)),
        ("decisions.md", table::markdown(&rows, &command)),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(RunError::io(&file))?;
    }
    let failed: Vec<&Row> = rows.iter().filter(|row| !row.holds()).collect();
    for row in &failed {
        println!(
            "{}: right in {:.1} % of {}",
            row.family.name(),
            100.0 * row.right_share(),
            row.decided()
        );
    }
    println!(
        "{} of {} families hold; the tables are in {}",
        rows.len() - failed.len(),
        rows.len(),
        folder.display()
    );
    if failed.is_empty() {
        Ok(())
    } else {
        Err(RunError::Unsound(format!(
            "{} families are right less often than promised",
            failed.len()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(kind: Kind, demand: bool) -> Family {
        Family {
            kind,
            variants: 3,
            gap: 0.3,
            demand,
            spread: 0.0,
            disturbed: 0.0,
            lasting: 0.0,
            held_out: false,
        }
    }

    /// A much smaller version of the kept table.
    #[test]
    fn decided_labs_are_right_and_most_decide() {
        let families = [family(Kind::Exponential, true), family(Kind::NoneMeets, true)];
        for family in families {
            let said: Vec<(Said, u32)> = (0..8).map(|seed| designs::by_rule(&family, seed)).collect();
            let count = |what: Said| said.iter().filter(|(said, _)| *said == what).count();
            assert!(count(Said::Right) >= 6, "{said:?}");
            assert!(count(Said::Wrong) + count(Said::NoneWrong) <= 1, "{said:?}");
        }
    }

    #[test]
    fn a_seed_gives_a_lab() {
        let family = family(Kind::HitMiss, false);
        assert_eq!(designs::by_rule(&family, 3), designs::by_rule(&family, 3));
        let known = designs::known(&family, 3);
        let right = (0..3).filter(|&index| known.is_right(index)).count();
        assert!(right == 1 && known.least().is_finite());
    }

    #[test]
    fn undecided_labs_are_counted_apart() {
        let row = Row {
            family: family(Kind::Exponential, true),
            labs: 10,
            right: 4,
            wrong: 1,
            none_wrong: 0,
            undecided: 5,
            contradicted: 2,
            steps: vec![5, 1, 9],
            eliminated: vec![(Said::Right, 12), (Said::Wrong, 10)],
            named: Some((60, 1)),
        };
        assert!((row.right_share() - 0.8).abs() < 1e-12 && row.holds());
        let text = table::markdown(std::slice::from_ref(&row), "x");
        assert!(
            text.contains("| **80.0 %** | 50.0 % | 0.0 % | 60.0 % | 5 | 50.0 % | 12 | 60 | 0.08 |"),
            "{text}"
        );
        assert_eq!(table::csv(&[row]).lines().count(), 2);
    }
}
