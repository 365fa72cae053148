//! The stages of cold starts, by name. In: the cold starts of a run. Out: the stages that any of them tells of, and what one took. A server
//! does not have to tell all of them, nor two servers the same.

use tierlab_analysis::record::ColdStart;

/// Every stage that is told, in the order in which servers tell them.
pub(crate) fn stages(starts: &[ColdStart]) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for start in starts {
        let mut place = 0;
        for (stage, _) in &start.stages_s {
            place = match all.iter().position(|known| known == stage) {
                Some(known) => known + 1,
                None => {
                    all.insert(place, stage);
                    place + 1
                }
            };
        }
    }
    all
}

/// Seconds of a stage of one start; `None` where it was not told.
pub(crate) fn stage_s(start: &ColdStart, stage: &str) -> Option<f64> {
    let of_stage = start.stages_s.iter().find(|(name, _)| name == stage);
    of_stage.map(|(_, seconds)| *seconds)
}
