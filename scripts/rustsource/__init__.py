"""Reads Rust source: which file takes which names from which other file, and what serde makes of a type."""
