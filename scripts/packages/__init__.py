"""Parts of scripts/package: what each format looks like. Each takes a tree that is laid out already and writes one file."""
