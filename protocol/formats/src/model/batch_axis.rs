//! Check that the first dimensions of a graph's tensors can be one batch axis.
//!
//! In: the first dimension of every input and output, as the graph declares it. Out: nothing, or the tensor that rules a batch
//! axis out. A graph does not say whether its rows are independent of each other.

/// The first dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstDim<'a> {
    /// There is none: the tensor has no dimensions, or the graph does not say which.
    None,
    /// A size that the graph fixes.
    Fixed(i64),
    /// Any size. Dimensions of one name (ONNX's `dim_param`) have one size; without a name the graph says nothing of it.
    Free(&'a str),
}

impl<'a> FirstDim<'a> {
    /// Dimension of a shape as ONNX Runtime reports it: a free size is negative and may have a name among `symbols`.
    #[must_use]
    pub fn of(shape: &[i64], symbols: &'a [String]) -> Self {
        match shape.first() {
            Some(&size) if size >= 0 => Self::Fixed(size),
            Some(_) => Self::Free(symbols.first().map_or("", String::as_str)),
            None => Self::None,
        }
    }
}

/// Name prefix that tf2onnx (`make_onnx_shape`) and ONNX's shape inference give to unknown dimensions, followed by a number.
/// Two such dimensions may be equal.
const UNKNOWN: &str = "unk__";

/// Looks for what keeps the first dimensions of `inputs` and `outputs`, by name, from being one batch axis.
///
/// # Errors
/// The first tensor whose first dimension is missing, fixed, or has another name than that of the first one with a name.
pub fn check_batch_axis<'a>(
    inputs: impl IntoIterator<Item = (&'a str, FirstDim<'a>)>,
    outputs: impl IntoIterator<Item = (&'a str, FirstDim<'a>)>,
) -> Result<(), String> {
    let inputs = inputs.into_iter().map(|tensor| ("input", tensor));
    let outputs = outputs.into_iter().map(|tensor| ("output", tensor));
    let mut batch: Option<(&str, &str, &str)> = None;
    for (role, (name, first)) in inputs.chain(outputs) {
        match first {
            FirstDim::None => return Err(format!("{role} `{name}` has no first dimension")),
            FirstDim::Fixed(size) => {
                return Err(format!("the first dimension of {role} `{name}` is fixed at {size}"));
            }
            FirstDim::Free(symbol) if symbol.is_empty() || symbol.starts_with(UNKNOWN) => {}
            FirstDim::Free(symbol) => match batch {
                Some((_, _, batch)) if batch == symbol => {}
                Some((other_role, other, batch)) => {
                    return Err(format!(
                        "the first dimension of {role} `{name}` is `{symbol}`, that of {other_role} `{other}` is `{batch}`"
                    ));
                }
                None => batch = Some((role, name, symbol)),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::FirstDim::{Fixed, Free};
    use super::*;

    fn refused(inputs: &[FirstDim<'_>], output: FirstDim<'_>) -> String {
        let names = ["a", "b", "c"];
        let inputs = names.into_iter().zip(inputs.iter().copied());
        check_batch_axis(inputs, [("y", output)]).err().unwrap_or_default()
    }

    #[test]
    fn names_that_differ_are_no_batch_axis_and_unknown_ones_say_nothing() {
        for (inputs, output) in [
            (&[Free("N"), Free("N")][..], Free("N")),
            (&[Free(""), Free("N")], Free("")),
            (&[Free("unk__7")], Free("unk__9")),
            (&[Free("")], Free("batch")),
        ] {
            assert_eq!(refused(inputs, output), "", "{inputs:?} {output:?}");
        }
        for (inputs, output, told) in [
            (
                &[Free("N"), Free("M")][..],
                Free("N"),
                "input `b` is `M`, that of input `a` is `N`",
            ),
            (
                &[Free("N"), Free("")],
                Free("K"),
                "output `y` is `K`, that of input `a` is `N`",
            ),
            (&[Free("N"), Fixed(3)], Free("N"), "input `b` is fixed at 3"),
            (&[Free("N")], Fixed(1), "output `y` is fixed at 1"),
            (&[Free("N")], FirstDim::None, "output `y` has no first dimension"),
        ] {
            let error = refused(inputs, output);
            assert!(error.contains(told), "{error} should say {told}");
        }
    }
}
