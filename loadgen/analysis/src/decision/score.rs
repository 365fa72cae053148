//! What a variant has of what should be least. In: the question, its prices, and the highest rate of one instance under the objective.
//! Out: a number, the less the better. Knows nothing of steps.

use crate::costs::monthly::{Use, instances, monthly};
use crate::record::{CostTerms, Minimise, Question};

/// What a variant costs by, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Priced<'a> {
    /// Its prices; absent without any.
    pub terms: Option<&'a CostTerms>,
    /// What its inferences ask of the tier; absent where the server did not say.
    pub use_per_inference: Option<Use>,
}

/// The score where one instance carries up to so many requests per second; infinite where it carries none, and where the tier
/// charges for what is not known. A rate of infinity is the best case, with what is not known as nothing.
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

/// Whether prices decide.
#[must_use]
pub fn is_priced(question: &Question) -> bool {
    matches!(question.minimise, Minimise::UsdPerMonth | Minimise::UsdPer10k)
}
