"""The Makefile stays short, and every script can be found."""
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "scripts"


class Scripts(unittest.TestCase):
    def test_the_makefile_has_at_most_15_targets(self):
        targets = re.findall(r"^[\w-]+(?=:(?!=))", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        self.assertLessEqual(len(targets), 15, targets)

    def test_every_script_is_listed(self):
        readme = (SCRIPTS / "README.md").read_text(encoding="utf-8")
        for script in sorted(SCRIPTS.iterdir()):
            if script.is_file() and script.stat().st_mode & 0o100:
                self.assertIn(f"`{script.name}`", readme)

    def test_every_name_of_run_has_a_line_and_a_program(self):
        listed = subprocess.run([SCRIPTS / "run"], capture_output=True, text=True, check=True).stdout.splitlines()
        text = (SCRIPTS / "run").read_text(encoding="utf-8")
        self.assertEqual([line.split()[0] for line in listed], re.findall(r"^run_([\w-]+)\(\)", text, re.MULTILINE))
        for program in re.findall(r"^ +(scripts/[\w/-]+)", text, re.MULTILINE):
            self.assertTrue((ROOT / program).exists(), program)

    def test_an_unknown_name_of_run_is_refused(self):
        done = subprocess.run([SCRIPTS / "run", "nope"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, "`nope`" in done.stderr), (2, True))

    def test_documents_name_targets_and_runs_that_exist(self):
        targets = set(re.findall(r"^[\w-]+(?=:(?!=))", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        names = set(re.findall(r"^run_([\w-]+)\(\)", (SCRIPTS / "run").read_text(encoding="utf-8"), re.MULTILINE))
        pages = subprocess.run(["git", "ls-files", "*.md", "scripts"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for page in pages.split():
            if page == "CHANGELOG.md" or not (ROOT / page).is_file():
                continue
            text = (ROOT / page).read_text(encoding="utf-8", errors="ignore")
            self.assertLessEqual(set(re.findall(r"`make ([a-z][a-z-]+)", text)), targets, page)
            self.assertLessEqual(set(re.findall(r"`scripts/run ([a-z][a-z0-9-]+)", text)), names, page)


if __name__ == "__main__":
    unittest.main()
