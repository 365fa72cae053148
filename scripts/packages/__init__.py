"""Formats of scripts/package. Each takes a prepared tree and writes one file."""
