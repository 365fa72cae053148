//! What the variants of a lab cost. In: the plan's price list. Out: prices by variant, or by tier where there are no variants.

use super::data::Prepared;
use crate::error::RunError;
use crate::plan::{LabPlan, Plan};
use crate::pricing;
use tierlab_analysis::record::Pricing;

/// The prices of a plan; `None` where it names none.
pub(super) fn of_variants(plan: &Plan, lab: &LabPlan, _prepared: &Prepared) -> Result<Option<Pricing>, RunError> {
    let Some((file, instance)) = &plan.prices else {
        return Ok(None);
    };
    let tiers: Vec<String> = lab.tiers.iter().map(|tier| tier.name.clone()).collect();
    Ok(Some(pricing::load(file, instance, &tiers)?))
}
