//! Dimensions of a tensor that differ between clients and the graph, as in Triton's `reshape`.

/// Map from the dimensions of one side to those of the other: as many elements, in the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reshape {
    from: Vec<i64>,
    to: Vec<i64>,
}

impl Reshape {
    /// Maps shapes like `from` to shapes like `to`, where -1 is a free dimension: the first free one becomes the first
    /// free one, and so on.
    ///
    /// # Errors
    /// Shapes that differ in their number of free dimensions, or in their elements before, between or after them.
    pub fn new(from: &[i64], to: &[i64]) -> Result<Self, String> {
        if elements(from) != elements(to) {
            return Err(format!(
                "{from:?} cannot be reshaped to {to:?}: both need the same number of free dimensions (-1), and of elements before, \
                 between and after them"
            ));
        }
        Ok(Self {
            from: from.to_vec(),
            to: to.to_vec(),
        })
    }

    /// Returns the other side's shape of a tensor; `None` if `shape` does not fit this side's.
    pub fn apply(&self, shape: &[i64]) -> Option<Vec<i64>> {
        if shape.len() != self.from.len() {
            return None;
        }
        let mut free = Vec::new();
        for (&have, &want) in shape.iter().zip(&self.from) {
            match want {
                ..0 => free.push(have),
                _ if have == want => {}
                _ => return None,
            }
        }
        let mut free = free.into_iter();
        let dims = self.to.iter().map(|&dim| if dim < 0 { free.next() } else { Some(dim) });
        dims.collect()
    }
}

/// Elements of the fixed dimensions before the first free one, between two, and after the last; `None` for a product
/// that overflows.
fn elements(shape: &[i64]) -> Vec<Option<i64>> {
    shape
        .split(|&dim| dim < 0)
        .map(|fixed| fixed.iter().try_fold(1_i64, |count, &dim| count.checked_mul(dim)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn free_dimensions_go_in_their_order_and_elements_stay_as_many() {
        for (from, to, shape, reshaped) in [
            (&[1][..], &[][..], &[1][..], Some(&[][..])),
            (&[], &[1, 1], &[], Some(&[1, 1])),
            (&[-1, 1], &[-1], &[5, 1], Some(&[5])),
            (&[-1, 4, -1], &[-1, 2, 2, -1], &[3, 4, 7], Some(&[3, 2, 2, 7])),
            (&[-1, 4], &[-1, 2, 2], &[3, 5], None),
            (&[-1, 4], &[-1, 2, 2], &[3], None),
        ] {
            let rule = Reshape::new(from, to).unwrap();
            assert_eq!(rule.apply(shape).as_deref(), reshaped, "{from:?} {to:?} {shape:?}");
        }
        for (from, to) in [
            (&[2][..], &[][..]),
            (&[-1], &[]),
            (&[-1, 4], &[4, -1]),
            (&[-1, 4], &[-1, -1]),
        ] {
            let error = Reshape::new(from, to).unwrap_err();
            assert!(
                error.contains(&format!("{from:?} cannot be reshaped to {to:?}")),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_reshaped_comes_back(from in prop::collection::vec(prop_oneof![Just(-1_i64), 1..5_i64], 0..5), sizes in prop::collection::vec(0..9_i64, 5)) {
            let mut to = from.clone();
            to.insert(0, 1);
            let shape: Vec<i64> = from.iter().zip(&sizes).map(|(&dim, &size)| if dim < 0 { size } else { dim }).collect();
            let there = Reshape::new(&from, &to).unwrap().apply(&shape).unwrap();
            prop_assert_eq!(there.iter().product::<i64>(), shape.iter().product::<i64>());
            prop_assert_eq!(Reshape::new(&to, &from).unwrap().apply(&there).unwrap(), shape);
        }
    }
}
