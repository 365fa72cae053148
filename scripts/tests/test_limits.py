"""The repository stays within its own limits: kept results, targets of the Makefile."""
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS_BYTES, TARGETS, RUNS_WITH_HISTOGRAMS = 2_000_000, 15, 2


class Limits(unittest.TestCase):
    def test_kept_results_are_small(self):
        listed = subprocess.run(["git", "ls-files", "-z", "results"], cwd=ROOT, capture_output=True, text=True, check=True)
        files = [ROOT / name for name in listed.stdout.split("\0") if name]
        self.assertLessEqual(sum(file.stat().st_size for file in files), RESULTS_BYTES)
        self.assertLessEqual(len({file.parent for file in files if file.suffix == ".hdr"}), RUNS_WITH_HISTOGRAMS)

    def test_the_makefile_has_few_targets_and_lists_all(self):
        text = (ROOT / "Makefile").read_text()
        phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()
        targets = re.findall(r"^([a-z][a-z-]*):(?!=)", text, re.MULTILINE)
        self.assertLessEqual(len(targets), TARGETS)
        self.assertEqual(sorted(targets), sorted(phony))


if __name__ == "__main__":
    unittest.main()
