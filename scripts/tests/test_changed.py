"""The quick tier finds the crates that own changed files."""
import importlib.machinery
import importlib.util
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "check-changed"
LOADER = importlib.machinery.SourceFileLoader("check_changed", str(SCRIPT))
changed = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_changed", LOADER))
LOADER.exec_module(changed)

CRATES = {"loadgen": "loadgen", "analysis": "loadgen/analysis", "server": "server"}


class ChangedCrates(unittest.TestCase):
    def test_the_deepest_crate_owns_a_file(self):
        self.assertEqual(changed.changed_crates(["loadgen/analysis/src/lib.rs"], CRATES), ["analysis"])
        self.assertEqual(changed.changed_crates(["loadgen/src/a/b.rs", "server/Cargo.toml"], CRATES), ["loadgen", "server"])

    def test_files_outside_of_crates_change_none(self):
        self.assertEqual(changed.changed_crates(["README.md", "docs/gpu.md"], CRATES), [])

    def test_the_workspace_files_change_every_crate(self):
        for file in ("Cargo.lock", "Cargo.toml", ".cargo/config.toml"):
            self.assertEqual(changed.changed_crates([file], CRATES), sorted(CRATES))


if __name__ == "__main__":
    unittest.main()
