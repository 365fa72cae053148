//! Poll control: the model tier is listed at an interval, and what is served follows it.
//!
//! In: listings. Out: loads of models whose objects changed, and unloads of those that are gone. A tier that fails
//! changes nothing; a model that is refused is tried again when its objects change, or at the next listing if it was the
//! tier that failed.

use super::manager::ModelManager;
use super::reconcile::Reload;
use crate::models::repository::{self, Listing};
use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;
use tierlab_storage::Object;

/// Objects of each model at its last update.
type Seen = BTreeMap<String, Vec<Object>>;

/// Lists the tier until the server is gone. `seen` is the listing of the start.
pub(super) async fn run(management: Weak<ModelManager>, every: Duration, mut seen: Listing) {
    loop {
        tokio::time::sleep(every).await;
        let Some(management) = management.upgrade() else {
            return;
        };
        management.look(&mut seen).await;
    }
}

impl ModelManager {
    /// Lists the tier once.
    async fn look(&self, seen: &mut Seen) {
        let Some(source) = self.source.get() else { return };
        let listing = match repository::list(&*source.tier).await {
            Ok(listing) => listing,
            Err(error) => {
                tracing::warn!(
                    error = error.for_operator(),
                    "the models on the tier cannot be listed; what is served goes on"
                );
                return;
            }
        };
        let mut reconciled = listing.clone();
        for (name, objects) in &listing {
            if !self.wants(name) || seen.get(name) == Some(objects) {
                continue;
            }
            let _lock = self.lock_model(name).await;
            if let Err(error) = self.reconcile(name, objects, Reload::IfChanged).await {
                tracing::warn!(model = %name, error = error.for_operator(), "the model could not be brought up to date");
                if error.passing {
                    reconciled.remove(name);
                }
            }
        }
        // Names alone: a snapshot holds the models, and keeps their sessions from ending.
        let mut gone: Vec<String> = self.snapshot().0.keys().cloned().collect();
        gone.retain(|name| !listing.contains_key(name));
        for name in gone {
            let _lock = self.lock_model(&name).await;
            self.unload(&name, "gone from the model tier").await;
            self.forget(&name);
        }
        *seen = reconciled;
    }
}
