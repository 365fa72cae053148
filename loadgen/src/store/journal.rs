//! `journal.jsonl`: the finished steps of a run that is not at its end.
//!
//! In: steps as they are finished. Out: the same steps after a kill. A step's line is written after its histograms are
//! in their file. Knows nothing of plans, nor of how a step is measured.

use super::histograms::{hdr_path, read_histograms, write_histograms};
use crate::error::StoreError;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tierlab_analysis::record::{Factors, Point, Repeat};
use tierlab_instrument::journal::{self as lines, FILE};

/// Position of a point among those of a run: first by target, in the order of the run, then by load, in the order of the plan. Rates
/// that a search chose follow their curve's last load, by rate.
pub type Position = (usize, usize);

/// One finished step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishedStep {
    /// Position of its point.
    #[serde(rename = "place")]
    pub position: Position,
    /// Measured configuration.
    pub factors: Factors,
    /// Result of the step.
    pub repeat: Repeat,
}

/// Journal of a run in progress.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    lines: lines::Journal,
}

impl Journal {
    /// Opens the journal of a folder, creating it if absent, and returns its steps with their histograms. Cuts off a step that a
    /// kill left half written.
    ///
    /// # Errors
    /// A file cannot be read or written, or a line before the last is damaged.
    pub fn open(folder: &Path) -> Result<(Self, Vec<FinishedStep>), StoreError> {
        let (lines, steps) = lines::Journal::open(folder)?;
        let steps = with_histograms(folder, steps)?;
        let folder = folder.to_owned();
        Ok((Self { folder, lines }, steps))
    }

    /// Stores a step: its histograms first, so that a line never names a missing file.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn append(&mut self, step: &FinishedStep) -> Result<(), StoreError> {
        write_histograms(&self.folder, &step.repeat)?;
        Ok(self.lines.append(step)?)
    }

    /// Removes the journal, whose content is in `run.json` now.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(self) -> Result<(), StoreError> {
        Ok(self.lines.remove()?)
    }
}

/// True if a folder has a journal.
pub fn exists(folder: &Path) -> bool {
    folder.join(FILE).is_file()
}

/// Returns the steps in a folder's journal; empty without a journal.
///
/// # Errors
/// Same as [`Journal::open`].
pub(super) fn read(folder: &Path) -> Result<Vec<FinishedStep>, StoreError> {
    with_histograms(folder, lines::read(folder)?)
}

fn with_histograms(folder: &Path, mut steps: Vec<FinishedStep>) -> Result<Vec<FinishedStep>, StoreError> {
    for step in &mut steps {
        step.repeat.histograms = read_histograms(&hdr_path(folder, &step.repeat)?)?;
    }
    Ok(steps)
}

/// Points of a run as its steps come in, in the order of their positions.
#[derive(Debug, Default)]
pub struct Points {
    positions: Vec<Position>,
    points: Vec<Point>,
}

impl Points {
    /// Creates the points of some steps.
    pub fn new(steps: Vec<FinishedStep>) -> Self {
        let mut points = Self::default();
        for step in steps {
            points.add(step);
        }
        points
    }

    /// Adds a step to its point. A second step of the same repeat is dropped, unless it is a later attempt, which
    /// replaces the first.
    pub fn add(&mut self, step: FinishedStep) {
        let existing = self.points.iter_mut().find(|point| point.factors == step.factors);
        if let Some(point) = existing {
            let mut repeats = point.repeats.iter_mut();
            match repeats.find(|repeat| repeat.index == step.repeat.index) {
                None => point.repeats.push(step.repeat),
                Some(earlier) if earlier.attempt < step.repeat.attempt => *earlier = step.repeat,
                Some(_) => {}
            }
            return;
        }
        let rps = step.factors.offered_rps;
        let is_before = |(position, point): &(&Position, &Point)| {
            **position < step.position || (**position == step.position && point.factors.offered_rps <= rps)
        };
        let at = self.positions.iter().zip(&self.points).take_while(is_before).count();
        self.positions.insert(at, step.position);
        let point = Point {
            factors: step.factors,
            repeats: vec![step.repeat],
            summary: None,
        };
        self.points.insert(at, point);
    }

    /// Returns the point of these factors.
    pub fn find(&self, factors: &Factors) -> Option<&Point> {
        self.points.iter().find(|point| point.factors == *factors)
    }

    /// Returns the step of a repeat of these factors.
    pub fn step(&self, factors: &Factors, index: u32) -> Option<&Repeat> {
        let point = self.find(factors)?;
        point.repeats.iter().find(|repeat| repeat.index == index)
    }

    /// Returns every point, in the order of positions.
    pub fn all(&self) -> &[Point] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierlab_analysis::record::{Histograms, Mode};
    use tierlab_analysis::statistics::percentile::histogram;

    fn step(position: Position, index: u32) -> FinishedStep {
        let factors = Factors {
            variant: String::new(),
            tier: format!("tier{}", position.0),
            cache: "cold".into(),
            cache_share: 0.0,
            model: "m".into(),
            mode: Mode::Realtime,
            batch_size: 1,
            offered_rps: 10.0 * (position.1 + 1) as f64,
            arrivals: "poisson".into(),
            keys: "uniform".into(),
            mix: None,
            driven: None,
        };
        let blocks = vec![histogram(&[5, 7, u64::from(index) + 9])];
        let repeat = Repeat {
            index,
            scheduled: 3,
            completed: 3,
            achieved_rps: 3.1,
            mean_in_flight: 0.1 + 0.2,
            hdr_file: crate::store::histograms::hdr_file(&factors, index),
            histograms: Histograms {
                block_s: 1.0,
                latency: blocks.clone(),
                service: blocks.clone(),
                lag: blocks,
                ..Histograms::default()
            },
            ..Repeat::empty()
        };
        FinishedStep {
            position,
            factors,
            repeat,
        }
    }

    fn folder_with(steps: &[FinishedStep]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, before) = Journal::open(folder.path()).unwrap();
        assert!(before.is_empty());
        steps.iter().for_each(|step| journal.append(step).unwrap());
        folder
    }

    #[test]
    fn points_stand_in_their_places_whatever_the_order_of_steps() {
        let steps = [
            ((1, 0), 0),
            ((0, 1), 0),
            ((0, 0), 0),
            ((0, 1), 1),
            ((0, 1), 1),
            ((1, 0), 1),
        ];
        let points = Points::new(steps.iter().map(|&(position, index)| step(position, index)).collect());
        let found: Vec<(String, f64, usize)> = points
            .all()
            .iter()
            .map(|point| {
                (
                    point.factors.tier.clone(),
                    point.factors.offered_rps,
                    point.repeats.len(),
                )
            })
            .collect();
        let expected = [("tier0", 10.0, 1), ("tier0", 20.0, 2), ("tier1", 10.0, 2)];
        assert_eq!(
            found,
            expected.map(|(tier, rate, repeats)| (tier.to_owned(), rate, repeats))
        );
        assert!(points.step(&step((1, 0), 0).factors, 1).is_some());
        assert!(points.step(&step((1, 0), 0).factors, 2).is_none());
    }

    #[test]
    fn a_later_attempt_takes_the_place_of_an_earlier_one_whatever_the_order() {
        let take = |attempt| {
            let mut step = step((0, 0), 0);
            (step.repeat.attempt, step.repeat.seed) = (attempt, u64::from(attempt));
            step
        };
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let points = Points::new(order.map(take).to_vec());
            assert_eq!(points.all()[0].repeats.len(), 1);
            assert_eq!(points.step(&take(0).factors, 0).unwrap().seed, 2);
        }
        let names = [0, 1].map(|attempt| crate::store::histograms::hdr_file_of(&take(0).factors, 0, attempt));
        assert_ne!(names[0], names[1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Cut anywhere, the whole lines before the cut come back, and the journal goes on behind them.
        #[test]
        fn a_cut_loses_the_line_that_it_cuts(cut in 0.0_f64..1.0) {
            let steps = [step((0, 0), 0), step((1, 0), 0), step((0, 0), 1)];
            let folder = folder_with(&steps);
            let path = folder.path().join(FILE);
            let text = std::fs::read(&path).unwrap();
            let cut = (cut * text.len() as f64) as usize;
            std::fs::write(&path, &text[..cut]).unwrap();
            let whole = text[..cut].iter().filter(|byte| **byte == b'\n').count();
            let (mut journal, kept) = Journal::open(folder.path()).unwrap();
            prop_assert_eq!(kept.len(), whole);
            for (kept, step) in kept.iter().zip(&steps) {
                prop_assert_eq!(&kept.factors, &step.factors);
                prop_assert_eq!(kept.repeat.mean_in_flight, step.repeat.mean_in_flight);
                prop_assert_eq!(&kept.repeat.histograms.latency, &step.repeat.histograms.latency);
            }
            journal.append(&steps[2]).unwrap();
            prop_assert_eq!(read(folder.path()).unwrap().len(), whole + 1);
        }
    }
}
