//! Variants whose server somebody runs already. In: where it is, and how it is asked. Out: what is measured of it, once it has
//! answered as it should. Nothing of it is started, changed or ended.

use crate::commands::foreign;
use crate::error::RunError;
use crate::plan::{Plan, TargetPlan, VariantPlan};
use crate::runner::check_reply::check_reply;
use crate::runner::target::Target;
use crate::server::scrape::Scrape;
use tierlab_analysis::record::Environment;

/// A server that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) target: Target,
    scrape: Scrape,
}

/// What is measured of a server that runs already.
pub(super) async fn target(plan: &Plan, variant: &VariantPlan, server: &TargetPlan) -> Result<Found, RunError> {
    let found = foreign::open(plan, server).await?;
    foreign::say(&found.notes);
    let target = Target {
        variant: variant.name.clone(),
        tier: variant.tier.name.clone(),
        cache: "as-is".into(),
        cache_share: 0.0,
        ..found.target
    };
    foreign::say(&check_reply(plan, &target, &plan.model).await?);
    Ok(Found {
        target,
        scrape: found.scrape,
    })
}

impl Found {
    /// Says in the result what the server says of itself.
    pub(super) fn add_to(&self, environment: &mut Environment, variant: &VariantPlan) {
        let origin = format!("real; served at {}", self.target.control.base());
        crate::environment::add_server(environment, variant.label(), &origin, &self.scrape);
    }
}
