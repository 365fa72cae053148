//! The suite that each tier and wrapper must pass.
