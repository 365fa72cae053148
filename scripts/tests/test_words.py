"""The lint of doc comments finds what it should and nothing else."""
import importlib.machinery
import importlib.util
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "check-words"
LOADER = importlib.machinery.SourceFileLoader("check_words", str(SCRIPT))
words = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_words", LOADER))
LOADER.exec_module(words)


class Words(unittest.TestCase):
    def faults(self, text):
        return [number for number, _ in words.faults(text)]

    def test_first_lines_of_doc_comments_are_statements(self):
        text = "/// What is sent.\nstruct A;\n/// Bytes sent.\n/// What follows is a continuation.\nstruct B;\n//! Whether it is.\n"
        self.assertEqual(self.faults(text), [1, 6])

    def test_one_word_says_too_little_and_a_code_span_is_a_reference(self):
        self.assertEqual(self.faults("/// Bytes.\na: u32,\n/// `[log]`.\nb: u32,\n/// Whatever is meant.\n"), [1])

    def test_plain_comments_are_free(self):
        self.assertEqual(self.faults("// What comes next is odd.\nlet a = 1;\n"), [])


class Lengths(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "docs/how-to").mkdir(parents=True)
        (self.root / "README.md").write_text("word " * words.README_WORDS)
        (self.root / "CHANGELOG.md").write_text("word " * words.CHANGELOG_WORDS)

    def test_long_pages_are_found(self):
        (self.root / "docs/how-to/page.md").write_text("word " * words.GUIDE_WORDS + "<!-- a comment\nof two lines -->")
        self.assertEqual(list(words.long_pages(self.root)), [])
        (self.root / "README.md").write_text("word " * (words.README_WORDS + 1))
        (self.root / "CHANGELOG.md").write_text("word " * (words.CHANGELOG_WORDS + 1))
        (self.root / "docs/how-to/page.md").write_text("word " * (words.GUIDE_WORDS + 1))
        self.assertEqual([fault.split(":")[0] for fault in words.long_pages(self.root)], ["README.md", "CHANGELOG.md", "docs/how-to/page.md"])

    def test_all_pages_together_are_bounded_beside_the_reference(self):
        (self.root / "docs/reference").mkdir()
        (self.root / "docs/reference/keys.md").write_text("word " * words.DOCS_WORDS)
        (self.root / "docs/page.md").write_text("word " * words.DOCS_WORDS)
        self.assertEqual(list(words.long_pages(self.root)), [])
        (self.root / "docs/page.md").write_text("word " * (words.DOCS_WORDS + 1))
        self.assertEqual([fault.split(":")[0] for fault in words.long_pages(self.root)], ["docs"])

    def test_a_long_subject_of_the_last_commit_is_found(self):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)
        for length, found in [(words.SUBJECT_CHARACTERS, 0), (words.SUBJECT_CHARACTERS + 1, 1)]:
            commit = ["git", *identity, "commit", "-q", "--allow-empty", "-m", "s" * length]
            subprocess.run(commit, cwd=self.root, check=True)
            self.assertEqual(len(list(words.long_subjects(self.root))), found)
