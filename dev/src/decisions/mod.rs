//! Error rate of a lab's answer, and its number of steps.
//!
//! Every lab is simulated: servers whose highest rate under the objective is known, measured in short steps that start with an idle
//! server, and decided by the very rule that decides real ones. Beside it stands elimination by bisection, one step at a time, which
//! never is undecided.

mod designs;
mod families;
mod highest_rates;
mod servers;

use crate::study::{margin, seeds, share, simulate};
use crate::table::{Row, Tables, cell, fixed};
use anyhow::Result;
use designs::Answer;
use families::{Family, families};
use std::path::Path;

/// Promised share of right answers.
const PROMISED: f64 = 0.95;

/// Text above the table.
const ABOUT: &str = "# Error rate of a lab's answer

`right`: labs that named the best variant or one within the tie (5 %) of it, or rightly none; promised are 95 % of those that decided.
`undecided`: the budget of 240 steps (600 s at 2.5 s each) ended, or fresh steps contradicted the choice (`contradicted`). `none_wrong`:
said that no variant meets the objective, although one does. `not_right`: wrong and undecided labs as a share of all. `mean_steps`: of
all labs, the undecided ones among them. If repeats differ, the truth is that of the long run. `eliminated_*`: elimination bisects the
score with one step of each variant that is left; it states no confidence and confirms nothing; `eliminated_wrong` stands beside
`not_right`. No constant of the rule was chosen by how labs of held-out families were decided; those of the curve rest on the servers of
`highest_rates`, some of them with constant service.

";

/// Simulates the labs of a family. The row holds if decided labs are right as often as promised.
fn row(family: Family, labs: usize, seed: u64) -> Row {
    let answers: Vec<(Answer, u32)> = seeds(labs, seed).map(|seed| designs::by_rule(&family, seed)).collect();
    let eliminated: Vec<(Answer, u32)> = seeds(labs, seed)
        .map(|seed| designs::by_elimination(&family, seed))
        .collect();
    let count_of =
        |answers: &[(Answer, u32)], what: Answer| answers.iter().filter(|(answer, _)| *answer == what).count();
    let count = |what| count_of(&answers, what);
    let eliminated_right = count_of(&eliminated, Answer::Correct);
    let [correct, contradicted] = [Answer::Correct, Answer::Contradicted].map(count);
    let undecided = count(Answer::Undecided) + contradicted;
    let decided = labs - undecided;
    Row {
        holds: decided == 0 || share(correct, decided) >= PROMISED - margin(PROMISED, decided),
        cells: vec![
            cell("family", family.name()),
            cell("held_out", family.held_out),
            cell("labs", labs),
            cell("right", correct),
            cell("wrong", count(Answer::Incorrect)),
            cell("none_wrong", count(Answer::FalseNone)),
            cell("undecided", undecided),
            cell("contradicted", contradicted),
            fixed("not_right", 4, 1.0 - share(correct, labs)),
            fixed("mean_steps", 1, mean_steps(&answers)),
            cell("median_steps", median_steps(&answers)),
            fixed("eliminated_wrong", 4, 1.0 - share(eliminated_right, labs)),
            fixed("eliminated_steps", 1, mean_steps(&eliminated)),
        ],
    }
}

fn mean_steps(answers: &[(Answer, u32)]) -> f64 {
    answers.iter().map(|(_, steps)| f64::from(*steps)).sum::<f64>() / answers.len() as f64
}

fn median_steps(answers: &[(Answer, u32)]) -> u32 {
    let mut steps: Vec<u32> = answers.iter().map(|(_, steps)| *steps).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied().unwrap_or(0)
}

/// Text above the table: labs of held-out families, of the others, and of all.
fn about(rows: &[Row]) -> String {
    let groups = [
        ("Held out", &["true"][..]),
        ("Others", &["false"]),
        ("All", &["true", "false"]),
    ];
    let lines = groups.map(|(group, held_out)| {
        let of = |row: &&Row| {
            held_out
                .iter()
                .any(|value| row.cells.contains(&cell("held_out", value)))
        };
        let sum = |column: &str| rows.iter().filter(of).map(|row| row.number(column)).sum::<f64>();
        let (labs, correct) = (sum("labs"), sum("right"));
        let decided = labs - sum("undecided");
        format!(
            "- {group}: of {labs} labs {decided} decided ({:.1} %), {correct} of these rightly ({:.1} %).\n",
            100.0 * decided / labs,
            100.0 * correct / decided,
        )
    });
    ABOUT.to_owned() + &lines.concat()
}

/// Simulates labs; writes `decisions` and `highest_rates` into a folder.
///
/// # Errors
/// A file cannot be written; decided labs of a family are right less often than promised.
pub(crate) fn run(folder: &Path, labs: usize, seed: u64) -> Result<()> {
    let mut tables = Tables::new(folder)?;
    let rows = simulate("families", &families(), labs, seed, row);
    tables.write("decisions", &about(&rows), &rows)?;
    let row = |setting, labs, _| highest_rates::row(setting, labs, seed);
    let rows = simulate("highest rates", &highest_rates::SETTINGS, labs, seed, row);
    tables.write("highest_rates", highest_rates::ABOUT, &rows)?;
    tables.finish()
}

#[cfg(test)]
mod tests {
    use super::families::Kind;
    use super::servers::Noise;
    use super::*;

    fn family(kind: Kind, demand: bool) -> Family {
        Family {
            kind,
            variants: 3,
            gap: 0.3,
            demand,
            noise: Noise::default(),
            held_out: false,
        }
    }

    /// A much smaller version of the kept table.
    #[test]
    fn decided_labs_are_right_and_most_decide() {
        let families = [family(Kind::Exponential, true), family(Kind::NoneMeets, true)];
        for family in families {
            let answers: Vec<(Answer, u32)> = (0..8).map(|seed| designs::by_rule(&family, seed)).collect();
            let count = |what: Answer| answers.iter().filter(|(answer, _)| *answer == what).count();
            assert!(count(Answer::Correct) >= 6, "{answers:?}");
            assert!(count(Answer::Incorrect) + count(Answer::FalseNone) <= 1, "{answers:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_lab() {
        let family = family(Kind::HitMiss, false);
        assert_eq!(designs::by_rule(&family, 3), designs::by_rule(&family, 3));
        let known = designs::draw_lab(&family, 3);
        let correct = (0..3).filter(|&index| known.is_correct(index)).count();
        assert!(correct == 1 && known.best_score().is_finite());
    }

    #[test]
    fn undecided_labs_are_not_counted_as_wrong() {
        let cells = |held_out: bool, labs: u32, correct: u32, undecided: u32| Row {
            holds: true,
            cells: vec![
                cell("held_out", held_out),
                cell("labs", labs),
                cell("right", correct),
                cell("undecided", undecided),
            ],
        };
        let text = about(&[cells(true, 10, 4, 5), cells(false, 10, 10, 0)]);
        assert!(
            text.contains("- Held out: of 10 labs 5 decided (50.0 %), 4 of these rightly (80.0 %).\n"),
            "{text}"
        );
        assert!(
            text.contains("- All: of 20 labs 15 decided (75.0 %), 14 of these rightly (93.3 %).\n"),
            "{text}"
        );
    }
}
