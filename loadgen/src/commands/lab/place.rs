//! Which server of a variant, and what it is started for.

use crate::plan::VariantPlan;

/// What a server is started for. Those that serve loads run on while others are started for cold starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Loads,
    ColdStarts,
}

/// Which server of a variant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) variant: &'a VariantPlan,
    /// From 0, below the variant's `servers`.
    pub(super) number: u32,
    pub(super) purpose: Purpose,
}

impl Place<'_> {
    /// Its log's, without the ending.
    pub(super) fn log_name(&self) -> String {
        let mut name = self.variant.file_name();
        if self.purpose == Purpose::ColdStarts {
            name += "-restart";
        }
        if self.number > 0 {
            name += &format!("-{}", self.number + 1);
        }
        name
    }
}
