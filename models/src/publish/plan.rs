//! Changes to make to a tier.

use crate::error::ModelsError;
use std::fs;
use std::path::PathBuf;
use tierlab_storage::{Body, ObjectPath};

/// One change to the tier.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) object: ObjectPath,
    pub(super) change: Change,
}

#[derive(Debug)]
pub(super) enum Change {
    Put { body: Body, bytes: u64 },
    Remove,
}

/// Changes in their order, and the number of objects that need none.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) already_there: usize,
}

impl Plan {
    pub(super) fn put_file(&mut self, object: ObjectPath, path: PathBuf) -> Result<(), ModelsError> {
        let bytes = fs::metadata(&path).map_err(ModelsError::io("look at", &path))?.len();
        self.steps.push(Step {
            object,
            change: Change::Put {
                body: Body::File(path),
                bytes,
            },
        });
        Ok(())
    }

    pub(super) fn bytes(&self) -> u64 {
        let bytes = |step: &Step| match step.change {
            Change::Put { bytes, .. } => bytes,
            Change::Remove => 0,
        };
        self.steps.iter().map(bytes).sum()
    }
}
