"""The modules of one crate target: what each defines, what it brings into scope, which paths it writes.

Comes in: the root file of a target (`lib.rs`, `main.rs`). Goes out: a tree of `Module`s. Names are only collected here;
`imports.py` finds out what they mean. What stands under `#[cfg(test)]` or `#[test]` is left out.
"""
import re
from dataclasses import dataclass, field
from pathlib import Path

from .lexer import Token, tokens


@dataclass
class Import:
    """One leaf of a `use`: the path, the name it has here, and whether it is handed on (`pub use`)."""

    path: list[str]
    name: str
    public: bool
    line: int


@dataclass
class Module:
    """A module: a file, or an inline `mod x { }` within one. All paths that its code writes are kept with it."""

    file: Path
    name: str
    parent: "Module | None"
    children: dict[str, "Module"] = field(default_factory=dict)
    defines: set[str] = field(default_factory=set)
    imports: dict[str, list[Import]] = field(default_factory=dict)
    # `use` inside of a function: it counts, but nobody else can reach it.
    local_imports: dict[str, list[Import]] = field(default_factory=dict)
    globs: list[Import] = field(default_factory=list)
    paths: list[tuple[list[str], int]] = field(default_factory=list)
    # Every name in the code outside of `use`, with whether it looks like more than a variable.
    names: dict[str, bool] = field(default_factory=dict)

    def walk(self):
        """This module and all below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()


class MissingFile(Exception):
    """A `mod x;` whose file is nowhere to be found."""


_DEFINES = {"fn", "struct", "enum", "trait", "type", "const", "static"}
_ENDS_WITH_SEMICOLON = {"use", "const", "static", "let", "type"}
_ENDS_WITH_BLOCK = {"fn", "struct", "enum", "trait", "impl", "mod", "union", "macro_rules", "extern"}
_BEFORE_ITEM = {"pub", "unsafe", "async", "default"}
_OPEN, _CLOSE = {"(", "[", "{"}, {")", "]", "}"}
_PATH_IN_STRING = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)+")


def read_crate(root: Path) -> Module:
    """The module tree of the target whose root file is `root`."""
    module = Module(root, "crate", None)
    _Reader(module, root.parent).read()
    return module


class _Reader:
    """Reads one file from left to right, with a stack of the braces that are open."""

    def __init__(self, module: Module, children_in: Path):
        self.file = module.file
        self.tokens = tokens(module.file.read_text(encoding="utf-8"))
        self.at = 0
        # A brace is of an inline module, or of anything else; the folder is where `mod x;` looks for its file.
        self.stack: list[tuple[Module, Path, bool]] = [(module, children_in, True)]

    def read(self):
        while self.at < len(self.tokens):
            self._step()

    # The token `ahead` of the one that is read.
    def _peek(self, ahead: int = 0) -> Token:
        at = self.at + ahead
        return self.tokens[at] if 0 <= at < len(self.tokens) else Token("other", "", 0)

    def _step(self):
        token = self._peek()
        if token.kind == "punct":
            self._punctuation(token)
        elif token.kind == "ident":
            self._word(token)
        else:
            self.at += 1

    def _punctuation(self, token: Token):
        module, folder, _ = self.stack[-1]
        if token.text == "#" and self._peek(1).text in ("[", "!"):
            self._attributes()
        elif token.text == "{":
            self.stack.append((module, folder, False))
            self.at += 1
        elif token.text == "}":
            if len(self.stack) > 1:
                self.stack.pop()
            self.at += 1
        else:
            self.at += 1

    def _word(self, token: Token):
        module, _, top = self.stack[-1]
        if token.text == "pub" and self._peek(1).text == "(" and self._peek(2).text in ("crate", "super", "self", "in"):
            self.at = self._group_end(self.at + 1)
        elif token.text == "mod" and self._peek(1).kind == "ident":
            self._module(path=None)
        elif token.text == "use" and self._peek(1).text != "<":
            self._use()
        elif token.text == "macro_rules" and self._peek(1).text == "!":
            module.defines.add(self._peek(2).text)
            self.at += 3
        elif top and token.text in _DEFINES | {"union"} and self._peek(1).kind == "ident":
            self._definition(token)
        else:
            self._path(module)

    def _definition(self, token: Token):
        name = self._peek(1).text
        if token.text == "static" and name == "mut":
            name = self._peek(2).text
        is_name = name not in _DEFINES | {"unsafe", "async", "extern"}
        if is_name and (token.text != "union" or self._peek(2).text in ("{", "<", "where")):
            self.stack[-1][0].defines.add(name)
            self.at += 2
        else:
            self.at += 1

    def _path(self, module: Module):
        """A name with what follows it behind `::`. `$crate` inside of a macro reads as `crate`."""
        before, start = self._peek(-1).text, self._peek()
        segments = [start.text]
        self.at += 1
        while self._peek().text == "::" and self._peek(1).kind == "ident":
            segments.append(self._peek(1).text)
            self.at += 2
        if before in ("::", "."):
            return
        behind = self._peek().text
        called = len(segments) > 1 or behind in ("(", "!", ")", ",", "::")
        module.names[segments[0]] = module.names.get(segments[0], False) or called
        if len(segments) > 1:
            module.paths.append((segments, start.line))

    # From the opening bracket at `at` to behind its closing one.
    def _group_end(self, at: int) -> int:
        depth = 0
        while at < len(self.tokens):
            text, kind = self.tokens[at].text, self.tokens[at].kind
            if kind == "punct":
                depth += (text in _OPEN) - (text in _CLOSE)
            at += 1
            if depth == 0:
                break
        return at

    def _attributes(self):
        """All attributes that stand together; the item behind them is skipped where one of them says that it is a test."""
        test, path, inner = False, None, False
        while self._peek().text == "#" and self._peek(1).text in ("[", "!"):
            inner = self._peek(1).text == "!"
            start = self.at + (2 if inner else 1)
            end = self._group_end(start)
            body = self.tokens[start + 1 : end - 1]
            words = [token.text for token in body]
            test = test or _is_test(words)
            if words[:2] == ["path", "="] and len(body) > 2:
                path = body[2].text
            if not test:
                self._paths_of_attribute(start + 1, end - 1)
            self.at = end
            if inner and test:
                # `#![cfg(test)]`: all that is left of the file or of the block is a test.
                self.at = len(self.tokens)
                return
        if test:
            self._skip_item()
        elif path is not None:
            self._skip_to_mod(path)

    def _paths_of_attribute(self, start: int, end: int):
        module = self.stack[-1][0]
        self.at = start
        while self.at < end:
            token = self._peek()
            if token.kind == "ident":
                self._path(module)
                continue
            if token.kind == "string" and _PATH_IN_STRING.fullmatch(token.text):
                module.paths.append((token.text.split("::"), token.line))
            self.at += 1

    def _skip_to_mod(self, path: str):
        if self._peek().text == "pub":
            self.at += 1
            if self._peek().text == "(":
                self.at = self._group_end(self.at)
        if self._peek().text == "mod":
            self._module(path)

    def _skip_item(self):
        """Past the item, field, arm or statement that stands here."""
        while self._peek().text in _BEFORE_ITEM:
            self.at += 1
            if self._peek().text == "(":
                self.at = self._group_end(self.at)
        word = self._peek().text
        if word == "const" and self._peek(1).text in ("fn", "unsafe", "async", "extern"):
            word = "fn"
        while self.at < len(self.tokens):
            text = self._peek().text if self._peek().kind == "punct" else ""
            if text in _CLOSE:
                return
            if text in _OPEN:
                self.at = self._group_end(self.at)
                if text == "{" and word not in _ENDS_WITH_SEMICOLON:
                    return
                continue
            self.at += 1
            if text == ";" or (text == "," and word not in _ENDS_WITH_SEMICOLON | _ENDS_WITH_BLOCK):
                return

    def _module(self, path: str | None):
        parent, folder, _ = self.stack[-1]
        name = self._peek(1).text
        inline = self._peek(2).text == "{"
        self.at += 3
        if inline:
            child = Module(self.file, name, parent)
            self.stack.append((child, folder / (path or name), True))
        else:
            file = self._file_of(folder, name, path)
            child = Module(file, name, parent)
            own_folder = file.parent if file.name == "mod.rs" or path else file.parent / name
            _Reader(child, own_folder).read()
        parent.children[name] = child

    def _file_of(self, folder: Path, name: str, path: str | None) -> Path:
        if path is not None:
            tried = [(self.file.parent if len(self.stack) == 1 else folder) / path]
        else:
            tried = [folder / f"{name}.rs", folder / name / "mod.rs"]
        for file in tried:
            if file.is_file():
                return file.resolve()
        raise MissingFile(f"{self.file}: no file for `mod {name};` (looked for {', '.join(map(str, tried))})")

    def _use(self):
        public = self._is_public()
        self.at += 1
        line = self._peek().line
        end = self.at
        while end < len(self.tokens) and self.tokens[end].text != ";":
            end += 1
        module, _, top = self.stack[-1]
        for path, name in _leaves([token.text for token in self.tokens[self.at : end]]):
            leaf = Import(path, name, public, line)
            if name == "*":
                module.globs.append(leaf)
            else:
                (module.imports if top else module.local_imports).setdefault(name, []).append(leaf)
        self.at = end + 1

    def _is_public(self) -> bool:
        """Whether `pub` or `pub(...)` stands before the token that is read."""
        if self._peek(-1).text == "pub":
            return True
        if self._peek(-1).text != ")":
            return False
        back = self.at - 1
        while back > 0 and self.tokens[back].text != "(":
            back -= 1
        return back > 0 and self.tokens[back - 1].text == "pub"


def _is_test(words: list[str]) -> bool:
    """Whether an attribute's words keep its item for tests: `test`, `tokio::test`, `cfg(test)`, `cfg(all(test, ..))`."""
    if words[:1] == ["cfg"]:
        inner = words[2:-1]
        return inner == ["test"] or (inner[:1] == ["all"] and "test" in inner and "not" not in inner)
    return words[:1] == ["test"] or words[-1:] == ["test"] and "::" in words or words[:3] == ["tokio", "::", "test"]


def _leaves(words: list[str]) -> list[tuple[list[str], str]]:
    """Each path of a `use` tree with the name it brings: `a::{b, c as d, e::*, self}`."""
    prefix: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "::":
            at += 1
        elif word == "{":
            found = []
            for part in _split(words[at + 1 : _matching(words, at)]):
                for path, name in _leaves(part):
                    found.append(_joined(prefix, path, name))
            return found
        elif word == "*":
            return [(prefix, "*")]
        elif word == "as":
            return [(prefix, words[at + 1])]
        else:
            prefix = [*prefix, word]
            at += 1
    return [(prefix, prefix[-1])] if prefix else []


def _joined(prefix: list[str], path: list[str], name: str) -> tuple[list[str], str]:
    """`self` in braces is the module before the braces."""
    if path == ["self"]:
        return prefix, prefix[-1] if name == "self" else name
    return [*prefix, *path], name


def _matching(words: list[str], at: int) -> int:
    depth = 0
    while at < len(words):
        depth += (words[at] == "{") - (words[at] == "}")
        if depth == 0:
            return at
        at += 1
    return len(words)


def _split(words: list[str]) -> list[list[str]]:
    """The parts between commas that are in no inner braces."""
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "{") - (word == "}")
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]
