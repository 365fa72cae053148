//! List of the models on a tier.

use crate::error::LoadError;
use std::collections::BTreeMap;
use tierlab_formats::model::{MODELS_PREFIX, is_plain_name};
use tierlab_storage::{Object, ObjectPath, Tier};

/// The objects of every model on the tier, by model.
pub(crate) type Listing = BTreeMap<String, Vec<Object>>;

/// Lists the models. Folders whose names are no plain names are passed over with a warning.
pub(crate) async fn list(tier: &dyn Tier) -> Result<Listing, LoadError> {
    list_below(tier, MODELS_PREFIX).await
}

/// Lists one model; none of that name gives an empty listing.
pub(crate) async fn list_one(tier: &dyn Tier, name: &str) -> Result<Listing, LoadError> {
    if is_plain_name(name) {
        list_below(tier, &format!("{MODELS_PREFIX}/{name}")).await
    } else {
        Ok(Listing::new())
    }
}

async fn list_below(tier: &dyn Tier, prefix: &str) -> Result<Listing, LoadError> {
    let prefix = ObjectPath::new(prefix)?;
    let mut models = Listing::new();
    for object in tier.list(Some(&prefix)).await? {
        let Some(name) = object
            .path
            .segments()
            .nth(1)
            .filter(|_| object.path.segments().count() > 2)
        else {
            continue;
        };
        if is_plain_name(name) {
            models.entry(name.to_owned()).or_default().push(object);
        } else {
            tracing::warn!(object = %object.path, "passed over: the model's name is no plain name");
        }
    }
    Ok(models)
}
