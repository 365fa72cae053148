//! Quantity that a question minimises. In: the question, a variant's prices, and the highest rate of one instance under
//! the objective. Out: a number; lower is better. Knows nothing of steps.

use crate::costs::monthly::{Use, instances, monthly};
use crate::record::{CostTerms, Minimise, Question};

/// Prices and usage of a variant, as far as known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Priced<'a> {
    /// Prices of the variant; absent without any.
    pub terms: Option<&'a CostTerms>,
    /// Tier usage per inference; absent if the server did not report it.
    pub use_per_inference: Option<Use>,
}

/// Returns the score if one instance carries `highest_rps` requests per second. Infinite if it carries none, or if the
/// tier charges for an unknown quantity. An infinite rate gives the best case, with unknown quantities as zero.
#[must_use]
pub fn score(question: &Question, priced: Priced<'_>, highest_rps: f64, best_case: bool) -> f64 {
    let highest_rps = highest_rps.min(question.highest_rps);
    if highest_rps <= 0.0 {
        return f64::INFINITY;
    }
    if question.minimise == Minimise::Instances {
        return if question.demand.is_some() {
            instances(question, highest_rps)
        } else {
            question.highest_rps / highest_rps
        };
    }
    let Some(terms) = priced.terms else {
        return if best_case { 0.0 } else { f64::INFINITY };
    };
    let unknown = priced.use_per_inference.is_none() && (terms.usd_per_request > 0.0 || terms.usd_per_byte > 0.0);
    if unknown && !best_case {
        return f64::INFINITY;
    }
    let month = monthly(
        terms,
        priced.use_per_inference.unwrap_or_default(),
        question,
        highest_rps,
    );
    if question.demand.is_some() && question.minimise == Minimise::UsdPerMonth {
        month.usd_per_month
    } else {
        month.usd_per_10k
    }
}

/// True if prices decide the question.
#[must_use]
pub fn is_priced(question: &Question) -> bool {
    matches!(question.minimise, Minimise::UsdPerMonth | Minimise::UsdPer10k)
}
