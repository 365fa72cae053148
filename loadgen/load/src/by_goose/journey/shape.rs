//! Shape of a tensor with a given number of elements. In: the model's declaration. Out: a shape that holds them all.
//! Pure.

/// Returns the shape of a tensor of `elements` elements. Free dimensions are 1, except the last one, which takes the
/// remaining elements.
///
/// # Errors
/// No such shape.
pub(super) fn shape(input: &str, declared: &[i64], elements: usize) -> Result<Vec<i64>, String> {
    let refuse = || format!("input `{input}`: {elements} elements do not fill the shape {declared:?}");
    let elements = i64::try_from(elements).map_err(|_| refuse())?;
    let fixed: i64 = declared
        .iter()
        .filter(|dim| **dim >= 0)
        .try_fold(1_i64, |all, dim| all.checked_mul(*dim))
        .ok_or_else(refuse)?;
    let last_free = declared.iter().rposition(|dim| *dim < 0);
    let filled: Vec<i64> = declared
        .iter()
        .enumerate()
        .map(|(axis, &dim)| match dim {
            dim if dim >= 0 => dim,
            _ if Some(axis) == last_free && fixed > 0 => elements / fixed,
            _ => 1,
        })
        .collect();
    let all = filled.iter().try_fold(1_i64, |all, dim| all.checked_mul(*dim));
    if all == Some(elements) {
        Ok(filled)
    } else {
        Err(refuse())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_shape_holds_its_elements(declared in prop::collection::vec(-1_i64..9, 0..5), elements in 0_usize..4_000) {
            if let Ok(shape) = shape("x", &declared, elements) {
                prop_assert_eq!(shape.iter().product::<i64>(), elements as i64);
                prop_assert!(shape.iter().zip(&declared).all(|(dim, wanted)| *wanted < 0 || dim == wanted));
            }
        }
    }
}
