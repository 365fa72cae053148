//! Wrappers: each a tier around a tier.
