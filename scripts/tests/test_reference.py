"""Tests of what scripts/reference reads from schemas and from comments."""
import importlib.machinery
import importlib.util
import re
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True


def loaded():
    loader = importlib.machinery.SourceFileLoader("reference_script", str(SCRIPTS / "reference"))
    reference = importlib.util.module_from_spec(importlib.util.spec_from_loader("reference_script", loader))
    loader.exec_module(reference)
    return reference


class LinksOfCommentsBecomeWords(unittest.TestCase):
    def test_a_type_is_a_word_and_a_path_or_a_constant_is_a_fault(self):
        reference = loaded()
        self.assertEqual(reference.links_as_words("Read with `O_DIRECT` into a [`Block`](crate::Block)."), "Read with `O_DIRECT` into a `Block`.")
        self.assertEqual(reference.faults, [])
        self.assertEqual(reference.links_as_words("Ratio; `None` without look-ups."), "Ratio; `null` without look-ups.")
        reference.links_as_words("Made by [`crate::conclude`], at most [`MAX_SIZE`].")
        self.assertEqual(len(reference.faults), 2)

    def test_no_page_has_a_name_of_the_code(self):
        for page in (SCRIPTS.parent / "docs/reference").glob("*.md"):
            self.assertEqual(re.findall(r"`None`|\bcrate::\w+|\bMAX_\w+", page.read_text()), [], page.name)

    def test_a_default_in_words_stands_in_its_own_column(self):
        reference = loaded()
        for text, stated in (
            ("Address (default: `a:1`); port 0 is free.", "`a:1`"),
            ("Values (default: floats of [0, 1), texts (of words)).", "floats of [0, 1), texts (of words)"),
            ("As the default: none.", None),
        ):
            found = reference.STATED.search(text)
            self.assertEqual(found and found[1], stated)


STEP = {"properties": {"take": {"type": "object", "additionalProperties": {"type": "string"}}, "again": {"$ref": "#/$defs/Step"}}}
RATE = {"type": "number", "minimum": 0.5, "maximum": 20.0}
ROOT = {
    "properties": {"step": {"type": "array", "items": {"$ref": "#/$defs/Step"}}, "a": RATE, "z": {"enum": ["x", "y"]}},
    "required": ["z"],
    "$defs": {"Step": STEP | {"description": "One step."}},
}


class SchemasBecomeTables(unittest.TestCase):
    def test_tables_have_their_keys_with_required_ones_first(self):
        reference = loaded()
        found = reference.toml_tables(ROOT, ROOT, "top")
        self.assertEqual(list(found[""].keys), ["z", "a"])
        self.assertEqual((found["step"].heading, found["step"].note, list(found["step"].keys)), ("`[[step]]`", "One step.", ["again", "take"]))
        words = [reference.in_words(ROOT, key) for key in (RATE, ROOT["properties"]["z"], STEP["properties"]["take"], True)]
        self.assertEqual(words, ["number, 0.5 to 20", "`x` or `y`", "table of string", "any value"])
        self.assertEqual(reference.shown_default(None, False, "Time (default: 3 s)."), ("3 s", "Time."))

    def test_a_shipped_file_decides_order_and_meaning_and_its_values_are_the_defaults(self):
        reference = loaded()
        root = {"properties": {"a": {"default": 1, "type": "integer"}, "b": {"default": 2, "type": "integer"}}}
        tables = reference.toml_tables(root, root, "Top")
        with tempfile.TemporaryDirectory() as folder:
            reference.ROOT = Path(folder)
            file = Path(folder, "x.toml")
            file.write_text("# The b.\nb = 2\n# The a.\n# a = 7\n", encoding="utf-8")
            page = reference.toml_page(root, tables, file)
            self.assertEqual(page.splitlines()[-2:], ["| `b` | integer | `2` | The b. |", "| `a` | integer | `1` | The a. |"])
            reference.check_values(tables, file)
            self.assertEqual(reference.faults, [])
            file.write_text("a = 7", encoding="utf-8")
            reference.check_values(tables, file)
        self.assertEqual(reference.faults, ["x.toml says .a = 7, and the code's default is 1"])
        reference.toml_page(root, tables)
        self.assertIn("`.b` is explained neither by the code nor by a shipped file", reference.faults)

    def test_choices_are_named_by_their_tag_or_only_key(self):
        reference = loaded()
        tagged = {"properties": {"kind": {"const": "x"}, "n": {"type": "integer"}}}
        outside = {"properties": {"after": {"$ref": "#/$defs/Step"}}}
        found = reference.json_choices(ROOT, {"oneOf": [{"enum": ["p", "q"]}, tagged, outside]})
        self.assertEqual([row[:2] for row in found], [("`p`", ""), ("`q`", ""), ('`{"kind": "x"}`', "`n`: integer"), ("`after`", "[Step](#step)")])
        part = {"properties": {"b": {}, "a": {"default": 0}, "c": {}}, "required": ["a", "c"], "anyOf": [outside]}
        self.assertEqual([(name, there) for name, _, there in reference.json_keys(part)], [("c", "yes"), ("b", "no"), ("a", "no"), ("after", "no")])


class CommentsAreRead(unittest.TestCase):
    def test_each_key_has_the_words_above_and_beside_it(self):
        text = '''
# The first, a = b in prose.
a = "x # y"
b = 2 # beside

# Above the table.
[t]
c = 1
# Commented out.
# d = 2
e = 3
'''
        said = loaded().Commented(text, {("", "a"), ("", "b"), ("t", "c"), ("t", "d"), ("t", "e")})
        self.assertEqual(said.tables, {"": "", "t": "Above the table."})
        words = ["The first, a = b in prose.", "beside", "", "Commented out.", "See `d`."]
        self.assertEqual(list(said.keys.values()), words)


if __name__ == "__main__":
    unittest.main()
