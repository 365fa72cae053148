"""Tests of what scripts/reference reads from code and from comments."""
import importlib.machinery
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))
from rustsource import comments  # noqa: E402
from rustsource.shapes import UNKNOWN, Shapes  # noqa: E402

CODE = """
/// A plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// Its name,
    /// in one word.
    pub(super) name: String,
    #[serde(default = "ten", rename = "times")]
    repeats: u32,
    #[serde(default)]
    keys: BTreeMap<String, Vec<u8>>,
    limit: Option<f64>,
}
#[derive(Deserialize)]
#[serde(default)]
struct Limits { most: usize, least: usize, hidden: u8 }
impl Default for Limits {
    fn default() -> Self {
        Self { most: 64 << 20, least: Self::LEAST, ..Self::other() }
    }
}
#[derive(Default, serde::Serialize)]
enum Way { /// Fast.
    #[default] Fast, Slow { by_ms: u64 }, Held(Box<Plan>) }
struct NotSerdes { x: u8 }
const fn ten() -> u32 { 10 }
"""


def loaded():
    loader = importlib.machinery.SourceFileLoader("reference_script", str(SCRIPTS / "reference"))
    reference = importlib.util.module_from_spec(importlib.util.spec_from_loader("reference_script", loader))
    loader.exec_module(reference)
    return reference


class ShapesAreRead(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        (Path(kept.name) / "lib.rs").write_text(CODE, encoding="utf-8")
        self.shapes = Shapes([Path(kept.name)])

    def defaults(self, name):
        shape = self.shapes.find(name)
        return {key.name: self.shapes.default_of(shape, key) for key in shape.fields}

    def test_fields_have_their_names_types_and_documentation(self):
        plan = self.shapes.find("Plan")
        self.assertEqual(plan.doc, "A plan.")
        self.assertEqual([key.name for key in plan.fields], ["name", "times", "keys", "limit"])
        self.assertEqual(plan.fields[0].doc, "Its name, in one word.")
        self.assertEqual(plan.fields[2].type, "BTreeMap < String , Vec < u8 > >")
        self.assertIsNone(self.shapes.find("NotSerdes"))

    def test_defaults_come_from_functions_types_and_implementations(self):
        self.assertEqual(self.defaults("Plan"), {"name": None, "times": "10", "keys": "", "limit": ""})
        self.assertEqual(self.defaults("Limits"), {"most": "64 < < 20", "least": "Self::LEAST", "hidden": UNKNOWN})

    def test_variants_have_their_fields(self):
        way = self.shapes.find("Way")
        self.assertEqual([variant.name for variant in way.fields], ["Fast", "Slow", "Held"])
        self.assertIn("is_default", way.fields[0].serde)
        self.assertEqual([key.name for key in way.fields[1].fields], ["by_ms"])
        self.assertEqual(way.fields[2].type, "Box < Plan >")


class LinksOfCommentsBecomeWords(unittest.TestCase):
    def test_a_type_is_a_word_and_a_path_or_a_constant_is_a_fault(self):
        reference = loaded()
        self.assertEqual(reference.links_as_words("Read with `O_DIRECT` into a [`Block`](crate::Block)."), "Read with `O_DIRECT` into a `Block`.")
        self.assertEqual(reference.faults, [])
        reference.links_as_words("Made by [`crate::conclude`], at most [`MAX_SIZE`].")
        self.assertEqual(len(reference.faults), 2)

    def test_a_default_in_words_stands_in_its_own_column(self):
        reference = loaded()
        for text, stated in (
            ("Address (default: `a:1`); port 0 is free.", "`a:1`"),
            ("Values (default: floats of [0, 1), texts (of words)).", "floats of [0, 1), texts (of words)"),
            ("As the default: none.", None),
        ):
            found = reference.STATED.search(text)
            self.assertEqual(found and found[1], stated)


class SchemasBecomeTables(unittest.TestCase):
    def test_tables_have_their_keys_with_required_ones_first(self):
        reference = loaded()
        step = {"properties": {"take": {"type": "object", "additionalProperties": {"type": "string"}}, "again": {"$ref": "#/$defs/Step"}}}
        rate = {"type": "number", "minimum": 0.5, "maximum": 20.0}
        root = {
            "properties": {"step": {"type": "array", "items": {"$ref": "#/$defs/Step"}}, "a": rate, "z": {"enum": ["x", "y"]}},
            "required": ["z"],
            "$defs": {"Step": step | {"description": "One step."}},
        }
        found = reference.schema_tables(root, root, "top")
        self.assertEqual([name for name, *_ in found["top"][1]], ["z", "a"])
        self.assertEqual(found["`[[step]]`"][0], "One step.")
        self.assertEqual([name for name, *_ in found["`[[step]]`"][1]], ["again", "take"])
        words = [reference.schema_in_words(root, key) for key in (rate, root["properties"]["z"], step["properties"]["take"], True)]
        self.assertEqual(words, ["number, 0.5 to 20", "`x` or `y`", "table of string", "any value"])
        self.assertEqual(reference.shown_default(None, False, "Time (default: 3 s)."), ("3 s", "Time."))


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
'''
        known = {("", "a"), ("", "b"), ("t", "c"), ("t", "d")}
        said = comments.read(text, known)
        self.assertEqual(said.tables, {"t": "Above the table."})
        self.assertEqual(said.keys[("", "a")], comments.Said("The first, a = b in prose.", '"x # y"', True))
        self.assertEqual(said.keys[("", "b")].comment, "beside")
        self.assertEqual(said.keys[("t", "c")].comment, "")
        self.assertEqual(said.keys[("t", "d")], comments.Said("Commented out.", "2", False))


if __name__ == "__main__":
    unittest.main()
