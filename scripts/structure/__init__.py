"""Reads the structure of Rust crates from their source: which file takes which names from which other file."""
