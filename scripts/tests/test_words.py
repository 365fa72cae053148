"""The lint of doc comments finds what it should and nothing else."""
import importlib.machinery
import importlib.util
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
