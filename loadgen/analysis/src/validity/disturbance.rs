//! Choice of the repeats that count if some of them were disturbed.
//!
//! In: the repeats of a point. Out: the repeats for its figures. Pure. Knows nothing of the detection of disturbances.

use crate::record::Repeat;
use std::borrow::Cow;

/// Undisturbed repeats from which disturbed ones are dropped; fewer show next to nothing of the spread of repeats.
const ENOUGH: usize = 3;

/// Returns the repeats for figures: without the disturbed ones, if at least three others or half of all remain; else
/// all, and the verdict names the disturbances.
#[must_use]
pub fn counted(repeats: &[Repeat]) -> Cow<'_, [Repeat]> {
    let sound = repeats.iter().filter(|repeat| repeat.disturbed.is_none()).count();
    if sound == repeats.len() || (sound < ENOUGH && 2 * sound < repeats.len()) {
        return Cow::Borrowed(repeats);
    }
    Cow::Owned(
        repeats
            .iter()
            .filter(|repeat| repeat.disturbed.is_none())
            .cloned()
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(disturbed: &[bool]) -> Vec<u32> {
        let repeats: Vec<Repeat> = (0..)
            .zip(disturbed)
            .map(|(index, disturbed)| Repeat {
                index,
                disturbed: disturbed.then(|| "a compiler".to_owned()),
                ..Repeat::empty()
            })
            .collect();
        counted(&repeats).iter().map(|repeat| repeat.index).collect()
    }

    #[test]
    fn disturbed_repeats_are_left_out_where_enough_others_remain() {
        assert_eq!(left(&[false, false]), [0, 1]);
        assert_eq!(left(&[false, true, false]), [0, 2]);
        assert_eq!(left(&[true, false]), [1], "half remains");
        assert_eq!(
            left(&[true, false, true, true, false, true, false]),
            [1, 4, 6],
            "three remain"
        );
    }

    #[test]
    fn all_count_where_too_few_would_remain() {
        assert_eq!(left(&[]), [0; 0]);
        assert_eq!(left(&[true]), [0]);
        assert_eq!(left(&[true, true, false]), [0, 1, 2]);
        assert_eq!(left(&[true, false, true, true, false]), [0, 1, 2, 3, 4]);
    }
}
