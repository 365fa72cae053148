//! A plan as a text: where its keys stand, and the values that people write in words. Knows no key.

pub(super) mod line;
pub(super) mod words;
