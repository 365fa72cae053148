//! A row of the table: what the labs of a family said. In: counts. Out: shares. Knows nothing of how they were simulated.

use super::designs::Said;
use super::families::Family;

/// What the labs of a family said.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Which.
    pub family: Family,
    /// Labs.
    pub labs: usize,
    /// Of these, those that named the best or one within the tie of it, or rightly none.
    pub right: usize,
    /// Those that named another.
    pub wrong: usize,
    /// Those that said that none meets the objective, where one does.
    pub none_wrong: usize,
    /// Those that said that they do not know.
    pub undecided: usize,
    /// Of these, those whose fresh steps contradicted the choice.
    pub contradicted: usize,
    /// Steps, of each.
    pub steps: Vec<u32>,
    /// Outcome of elimination by bisection for each lab, with its steps.
    pub(super) eliminated: Vec<(Said, u32)>,
    /// Steps of the fixed design that always names one, and how often it is wrong, at the smallest size at which that is in one lab of twenty
    /// at most; `None` where that is none.
    pub named: Option<(u32, usize)>,
}

impl Row {
    /// Labs that decided.
    #[must_use]
    pub fn decided(&self) -> usize {
        self.labs - self.undecided
    }

    /// Of these, the share that is right; 1 without any.
    #[must_use]
    pub fn right_share(&self) -> f64 {
        if self.decided() == 0 {
            1.0
        } else {
            self.right as f64 / self.decided() as f64
        }
    }

    /// Share of all labs without the right answer: a lab that decides nothing has none.
    #[must_use]
    pub fn error_share(&self) -> f64 {
        1.0 - self.right as f64 / self.labs.max(1) as f64
    }

    /// The same of elimination by bisection.
    #[must_use]
    pub fn elimination_error_share(&self) -> f64 {
        let wrong = self.eliminated.iter().filter(|(said, _)| *said != Said::Right).count();
        wrong as f64 / self.eliminated.len().max(1) as f64
    }

    /// In steps.
    #[must_use]
    pub fn median_steps(&self) -> u32 {
        median(self.steps.iter().copied())
    }

    /// In steps of elimination by bisection.
    #[must_use]
    pub fn elimination_steps(&self) -> u32 {
        median(self.eliminated.iter().map(|(_, steps)| *steps))
    }

    /// The median of the rule's steps as a share of a fixed design's.
    #[must_use]
    pub fn ratio(&self, fixed: Option<(u32, usize)>) -> Option<f64> {
        fixed.map(|(steps, _)| f64::from(self.median_steps()) / f64::from(steps))
    }

    /// Whether decided labs are right as often as promised, within what so many labs can tell (two standard deviations).
    #[must_use]
    pub fn holds(&self) -> bool {
        let chance = 2.0 * (0.95_f64 * 0.05 / self.decided().max(1) as f64).sqrt();
        self.right_share() >= 0.95 - chance
    }
}

fn median(steps: impl Iterator<Item = u32>) -> u32 {
    let mut steps: Vec<u32> = steps.collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied().unwrap_or(0)
}
