"""Tests of scripts/check-structure on small made-up crates: python3 -m unittest discover -s scripts/tests"""
import importlib.util
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))
from rustsource import circles, imports, lexer, modules  # noqa: E402

_loader = SourceFileLoader("check_structure", str(SCRIPTS / "check-structure"))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_structure", _loader))
_loader.exec_module(check)


class Crates(unittest.TestCase):
    """Writes a crate's files to a folder of its own, and reads them."""

    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.src = Path(kept.name).resolve()

    def write(self, files: dict[str, str]):
        for name, text in files.items():
            path = self.src / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def arrows(self, files: dict[str, str]) -> dict[str, dict[str, set[str]]]:
        self.write(files)
        found = imports.arrows(modules.read_crate(self.src / "lib.rs"))
        short = lambda path: str(path.relative_to(self.src))  # noqa: E731
        return {short(file): {short(to): names for to, names in taken.items()} for file, taken in found.items() if taken}

    def circles(self, files: dict[str, str]) -> list[list[str]]:
        return circles.circles(self.arrows(files))


class Circles(Crates):
    def test_a_crate_without_a_circle_has_none(self):
        files = {"lib.rs": "mod a; mod b;", "a.rs": "use crate::b::B; pub struct A(B);", "b.rs": "pub struct B;"}
        self.assertEqual(self.circles(files), [])
        self.assertEqual(self.arrows(files), {"a.rs": {"b.rs": {"B"}}})

    def test_two_files_that_use_each_other_are_one(self):
        files = {"lib.rs": "mod a; mod b;", "a.rs": "use crate::b::B; pub struct A(B);", "b.rs": "pub struct B; fn f(a: &crate::a::A) {}"}
        self.assertEqual(self.circles(files), [["a.rs", "b.rs"]])

    def test_a_circle_is_found_through_a_re_export(self):
        files = {
            "lib.rs": "pub mod room; pub mod other;",
            "room/mod.rs": "mod inner; pub use inner::Inner;",
            "room/inner.rs": "use crate::other::Other; pub struct Inner(Other);",
            "other.rs": "use crate::room::Inner; pub struct Other; pub fn of(_: &Inner) {}",
        }
        self.assertEqual(self.circles(files), [["other.rs", "room/inner.rs"]])
        self.assertNotIn("room/mod.rs", self.arrows(files))

    def test_a_circle_is_found_through_a_glob(self):
        files = {
            "lib.rs": "mod a; mod b;",
            "a.rs": "use crate::b::*; pub struct A(B);",
            "b.rs": "pub struct B; pub struct Unused; use super::a::A; fn f(_: A) {}",
        }
        self.assertEqual(self.circles(files), [["a.rs", "b.rs"]])
        self.assertEqual(self.arrows(files)["a.rs"], {"b.rs": {"B"}})

    def test_a_circle_of_tests_is_none(self):
        files = {
            "lib.rs": "mod a; mod b;",
            "a.rs": "use crate::b::B; pub struct A(B);",
            "b.rs": """
                pub struct B;
                #[cfg(test)]
                use crate::a::A;
                #[cfg(all(test, unix))]
                mod tests { use super::*; use crate::a::A; #[test] fn t() { let _: Option<A> = None; } }
                #[test]
                fn also() { crate::a::A::new(); }
                #[tokio::test(start_paused = true)]
                async fn too() { crate::a::A::new(); }
            """,
        }
        self.assertEqual(self.circles(files), [])

    def test_a_module_and_its_part_that_use_each_other_are_one(self):
        files = {
            "lib.rs": "mod room;",
            "room.rs": "mod part; pub struct Shared; pub fn run() { part::go(&Shared) }",
            "room/part.rs": "use super::Shared; pub fn go(_: &Shared) {}",
        }
        self.assertEqual(self.circles(files), [["room.rs", "room/part.rs"]])

    def test_the_largest_circle_comes_first_and_each_can_be_opened(self):
        graph = {1: {2: "x"}, 2: {1: "xyz"}, 3: {4: "x"}, 4: {5: "x"}, 5: {3: "x", 6: "x"}, 6: {}}
        self.assertEqual(circles.circles(graph), [[3, 4, 5], [1, 2]])
        self.assertEqual(circles.cuts([1, 2], graph), [(1, 2)])
        self.assertEqual(circles.cuts([3, 4, 5], graph), [(3, 4)])


class Imports(Crates):
    def test_trees_of_use_are_read_whole(self):
        files = {
            "lib.rs": "mod a; mod b; mod user;",
            "a.rs": "pub struct One; pub struct Two; pub mod deep { pub fn three() {} }",
            "b.rs": "pub trait Four {}",
            "user.rs": "use crate::{a::{self, One as First, deep::{three}}, b::Four as _}; fn f(_: a::Two) { three() }",
        }
        self.assertEqual(self.arrows(files), {"user.rs": {"a.rs": {"One", "Two", "three"}, "b.rs": {"Four"}}})

    def test_a_module_alone_is_no_import(self):
        self.assertEqual(self.arrows({"lib.rs": "mod a; mod b;", "a.rs": "pub struct A;", "b.rs": "use crate::a;"}), {})

    def test_a_re_export_that_its_file_uses_is_an_import(self):
        files = {"lib.rs": "mod a; pub use a::A; pub fn make() -> A { A }", "a.rs": "pub struct A;"}
        self.assertEqual(self.arrows(files), {"lib.rs": {"a.rs": {"A"}}})

    def test_renamed_and_chained_re_exports_lead_to_the_file_that_defines(self):
        files = {
            "lib.rs": "mod a; mod b; mod c; mod user;",
            "a.rs": "pub struct A;",
            "b.rs": "pub(crate) use crate::a::A as Renamed;",
            "c.rs": "pub use super::b::*;",
            "user.rs": "fn f(_: crate::c::Renamed) {}",
        }
        self.assertEqual(self.arrows(files), {"user.rs": {"a.rs": {"A"}}})

    def test_paths_in_attributes_count_and_words_in_strings_and_comments_do_not(self):
        files = {
            "lib.rs": "mod a; mod b; mod user;",
            "a.rs": "pub fn two() -> u32 { 2 }",
            "b.rs": "pub fn parse() {}",
            "user.rs": """
                // crate::b::parse() /* crate::b::parse() */
                const TEXT: &str = r#"crate::b::parse() " "#; const C: char = '"';
                struct S { #[serde(default = "crate::a::two")] n: u32 }
                /* /* crate::b::parse() */ crate::b::parse() */
            """,
        }
        self.assertEqual(self.arrows(files), {"user.rs": {"a.rs": {"two"}}})

    def test_macros_and_use_within_a_function_count(self):
        files = {
            "lib.rs": "mod a; mod b; mod user;",
            "a.rs": "macro_rules! twice { () => { $crate::b::f() } } pub(crate) use twice;",
            "b.rs": "pub fn f() {}",
            "user.rs": "fn g() { use crate::a::twice; twice!() }",
        }
        self.assertEqual(self.arrows(files), {"a.rs": {"b.rs": {"f"}}, "user.rs": {"a.rs": {"twice"}}})

    def test_mod_finds_its_file_in_all_the_ways(self):
        files = {
            "lib.rs": 'mod a; mod b; #[path = "elsewhere/c.rs"] mod renamed; mod inline { pub mod d; }',
            "a/mod.rs": "pub mod inner;",
            "a/inner.rs": "pub struct I;",
            "b.rs": "pub mod inner;",
            "b/inner.rs": "use crate::a::inner::I; pub struct J(I);",
            "elsewhere/c.rs": "use super::b::inner::J; pub struct C(J);",
            "inline/d.rs": "use crate::renamed::C; fn f(_: C) {}",
        }
        self.assertEqual(
            self.arrows(files),
            {"b/inner.rs": {"a/inner.rs": {"I"}}, "elsewhere/c.rs": {"b/inner.rs": {"J"}}, "inline/d.rs": {"elsewhere/c.rs": {"C"}}},
        )

    def test_a_missing_file_is_named(self):
        with self.assertRaisesRegex(modules.MissingFile, "no file for `mod gone;`"):
            self.arrows({"lib.rs": "mod gone;"})

    def test_lifetimes_and_characters_are_told_apart(self):
        words = [token.text for token in lexer.tokens("fn f<'a>(x: &'a str) { '{'; b'\\''; '\\u{7b}' }")]
        self.assertEqual(words.count("{"), 1)
        self.assertIn("'a", words)


class Rules(Crates):
    def crate(self, name, imports=(), libraries=()):
        crate = check.Crate.__new__(check.Crate)
        crate.name, crate.imports, crate.libraries = name, list(imports), list(libraries)
        crate.folder, crate.roots = self.src.parent, []
        return crate

    def test_each_way_to_break_the_crate_rules_is_told(self):
        faults = check.crate_faults(
            [
                self.crate("tierlab-server", ["tierlab-storage"], ["tokio"]),
                self.crate("tierlab-loadgen", ["tierlab-server"]),
                self.crate("tierlab-analysis", [], ["tokio"]),
                self.crate("tierlab-new"),
            ]
        )
        self.assertEqual(len(faults), 3)
        self.assertIn("tierlab-loadgen must not depend on tierlab-server", faults[0])
        self.assertIn("tierlab-analysis must not depend on tokio: it computes", faults[1])
        self.assertIn("tierlab-new is new", faults[2])

    def test_the_rules_themselves_have_no_circle(self):
        self.assertEqual(circles.circles(check.MAY_IMPORT), [])
        self.assertLessEqual(set().union(*check.MAY_IMPORT.values()), set(check.MAY_IMPORT))

    def test_a_folder_with_too_many_entries_is_told(self):
        crate = self.crate("tierlab-x")
        crate.folder = self.src
        self.write({f"src/full/f{n}.rs": "" for n in range(check.MAX_ENTRIES + 1)} | {"src/lib.rs": ""})
        self.assertEqual([fault.split()[0] for fault in check.folder_faults(crate, self.src)], ["src/full"])

    def test_what_the_map_names_must_be_there(self):
        crate = self.crate("tierlab-x")
        crate.folder = self.src / "x"
        self.write({"x/src/there/f.rs": "", "ARCHITECTURE.md": "`x/src/`, `there/f.rs`, `there/`\n`x/gone.rs` and `some words`, `a::b`"})
        self.assertEqual(check.map_faults([crate], self.src), ["ARCHITECTURE.md:2: there is no x/gone.rs; what has moved has another name here too"])

    def test_unsafe_code_is_told_outside_of_its_rooms(self):
        crate = self.crate("tierlab-x")
        crate.folder = self.src / "storage"
        self.write(
            {
                "storage/src/tiers/nvme/ring.rs": "unsafe fn f() {}",
                "storage/src/words.rs": '// unsafe\nconst A: &str = "unsafe"; #![deny(unsafe_code)]',
                "storage/src/other.rs": "\nfn f() { unsafe { g() } }",
            }
        )
        self.assertEqual([fault.split(": ")[0] for fault in check.unsafe_faults(crate, self.src)], ["storage/src/other.rs:2"])


if __name__ == "__main__":
    unittest.main()
