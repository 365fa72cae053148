//! Poll control: the model tier is looked at again and again, and what is served follows it.
//!
//! In: listings. Out: loads of models whose objects changed, and unloads of those that are gone. A tier that fails
//! changes nothing; a model that is refused is tried again when its objects change, or at the next look if it was the tier
//! that failed.

use super::manager::Management;
use super::reconcile::Again;
use crate::models::repository::listing::{self, Listing};
use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;
use tierlab_storage::Object;

/// What the objects of a model were when it was last brought up to date.
type Seen = BTreeMap<String, Vec<Object>>;

/// Looks at the tier until the server is gone. `seen` is the listing of the start.
pub(super) async fn run(management: Weak<Management>, every: Duration, mut seen: Listing) {
    loop {
        tokio::time::sleep(every).await;
        let Some(management) = management.upgrade() else {
            return;
        };
        management.look(&mut seen).await;
    }
}

impl Management {
    /// Looks at the tier once.
    async fn look(&self, seen: &mut Seen) {
        let Some(workshop) = self.workshop.get() else { return };
        let listing = match listing::list(&*workshop.tier).await {
            Ok(listing) => listing,
            Err(error) => {
                tracing::warn!(
                    error = error.for_operator(),
                    "the models on the tier cannot be listed; what is served goes on"
                );
                return;
            }
        };
        let mut brought = listing.clone();
        for (name, objects) in &listing {
            if !self.wants(name) || seen.get(name) == Some(objects) {
                continue;
            }
            let _turn = self.turn(name).await;
            if let Err(error) = self.bring(name, objects, Again::IfChanged).await {
                tracing::warn!(model = %name, error = error.for_operator(), "not brought up to date");
                if error.passing {
                    brought.remove(name);
                }
            }
        }
        // Names alone: whoever holds the picture holds the models, and keeps their sessions from ending.
        let mut gone: Vec<String> = self.picture().0.keys().cloned().collect();
        gone.retain(|name| !listing.contains_key(name));
        for name in gone {
            let _turn = self.turn(&name).await;
            self.take_out(&name, "gone from the model tier").await;
            self.forget(&name);
        }
        *seen = brought;
    }
}
