"""Structs and enums as serde reads or writes them: keys, types, defaults and documentation.

Comes in: the folders of crates. Goes out: each type by its name, with the file that it stands in. Types are looked up by their
last name, first in the same file, then where there is only one of that name.
"""
import re
from dataclasses import dataclass, field
from pathlib import Path

from .lexer import Token, tokens

# A default that the code computes.
UNKNOWN = "computed"


@dataclass
class Field:
    """A field of a struct, or a variant of an enum (whose own fields are `fields`)."""

    name: str
    type: str
    doc: str
    serde: dict[str, str | None]
    fields: list["Field"] = field(default_factory=list)


@dataclass
class Shape:
    """A struct or an enum that serde knows."""

    name: str
    kind: str
    file: Path
    doc: str
    serde: dict[str, str | None]
    fields: list[Field]


class Shapes:
    """Every type of some crates, and what their default functions say."""

    def __init__(self, folders: list[Path]):
        self.shapes: dict[str, list[Shape]] = {}
        self.functions: dict[tuple[Path, str], str] = {}
        self.defaults: dict[tuple[Path, str], dict[str, str]] = {}
        for folder in folders:
            for file in sorted(folder.rglob("*.rs")):
                self._read(file)

    def find(self, name: str, near: Path | None = None) -> Shape | None:
        """The type of this name: that of the same file, else the only one, else the one of the nearest folder."""
        found = self.shapes.get(name, [])
        here = [shape for shape in found if shape.file == near]
        if here or len(found) <= 1 or near is None:
            return (here or found or [None])[0]
        return max(found, key=lambda shape: len(_common(shape.file, near)))

    def default_of(self, shape: Shape, key: Field) -> str | None:
        """A key's default as Rust writes it; None where the key must be given; "" where it is the type's own; UNKNOWN."""
        given = key.serde.get("default", "missing")
        if number := re.fullmatch(r"number::<(.*), _>", given or ""):
            return number[1].strip("{ }")
        if given not in ("missing", None):
            return self.functions.get((shape.file, given.split("::")[-1]), self._any_function(given))
        if "default" in shape.serde and given == "missing":
            own = "" if "Default" in (shape.serde.get("derives") or "") else UNKNOWN
            return self.defaults.get((shape.file, shape.name), {}).get(key.name, own)
        if given is None or key.type.startswith("Option <"):
            return ""
        return None

    def constant(self, name: str, near: Path) -> str:
        """What a constant is set to; its name where there are several of it."""
        return self.functions.get((near, name), self._any_function(name))

    def _any_function(self, name: str) -> str:
        bodies = {body for (_, named), body in self.functions.items() if named == name.split("::")[-1]}
        return bodies.pop() if len(bodies) == 1 else name

    def _read(self, file: Path):
        found = tokens(file.read_text(encoding="utf-8"), docs=True)
        reader = _Reader(found, file)
        while reader.at < len(found):
            shape = reader.item()
            if shape is not None and "erialize" in (shape.serde.get("derives") or ""):
                self.shapes.setdefault(shape.name, []).append(shape)
        self.functions |= {(file, name): body for name, body in reader.functions.items()}
        self.defaults |= {(file, name): body for name, body in reader.defaults.items()}


def _common(one: Path, two: Path) -> list[str]:
    parts = []
    for a, b in zip(one.parts, two.parts):
        if a != b:
            break
        parts.append(a)
    return parts


class _Reader:
    """Reads one file; what is no struct, enum, small function or `impl Default` is passed over."""

    def __init__(self, found: list[Token], file: Path):
        self.tokens, self.file, self.at = found, file, 0
        self.functions: dict[str, str] = {}
        self.defaults: dict[str, dict[str, str]] = {}

    def text(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].text if at < len(self.tokens) else ""

    def end_of_group(self, at: int) -> int:
        """From an opening bracket to behind its closing one."""
        depth = 0
        while at < len(self.tokens):
            if self.tokens[at].kind == "punct":
                depth += (self.tokens[at].text in "([{") - (self.tokens[at].text in ")]}")
            at += 1
            if depth == 0:
                break
        return at

    def notes(self) -> tuple[str, dict[str, str | None]]:
        """The documentation and the serde attributes that stand here."""
        doc, serde = [], {}
        while self.at < len(self.tokens):
            if self.tokens[self.at].kind == "doc":
                doc.append(self.text())
                self.at += 1
            elif self.text() == "#" and self.text(1) == "[":
                end = self.end_of_group(self.at + 1)
                body = self.tokens[self.at + 2 : end - 1]
                if body and body[0].text == "serde":
                    serde |= _arguments(body[2:-1])
                elif body and body[0].text == "default":
                    serde["is_default"] = None
                elif body and body[0].text == "derive":
                    serde["derives"] = " ".join(token.text for token in body)
                self.at = end
            else:
                break
        return " ".join(doc).strip(), serde

    def item(self) -> Shape | None:
        doc, serde = self.notes()
        word = self.text()
        if word == "pub" and self.text(1) == "(":
            self.at = self.end_of_group(self.at + 1)
            word = self.text()
        elif word == "pub":
            self.at += 1
            word = self.text()
        if word in ("struct", "enum") and self.tokens[self.at].kind == "ident":
            return self.shape(word, doc, serde)
        if word == "fn":
            self.function()
        elif word == "const" and self.text(2) == ":":
            self.constant()
        elif word == "impl" and self.text(1) == "Default" and self.text(2) == "for":
            self.implementation()
        else:
            self.at += 1
        return None

    def shape(self, kind: str, doc: str, serde: dict) -> Shape | None:
        name = self.text(1)
        self.at += 2
        while self.text() not in ("{", ";", "("):
            self.at += 1
        if self.text() != "{":
            return None
        end = self.end_of_group(self.at)
        self.at += 1
        fields = self.fields(end - 1) if kind == "struct" else self.variants(end - 1)
        self.at = end
        return Shape(name, kind, self.file, doc, serde, fields)

    def fields(self, end: int) -> list[Field]:
        found = []
        while self.at < end:
            doc, serde = self.notes()
            if self.text() == "pub":
                self.at += 1
                if self.text() == "(":
                    self.at = self.end_of_group(self.at)
            name = self.text()
            self.at += 2
            found.append(Field(serde.get("rename") or name, self.until_comma(end), doc, serde))
        return found

    def variants(self, end: int) -> list[Field]:
        found = []
        while self.at < end:
            doc, serde = self.notes()
            variant = Field(self.text(), "", doc, serde)
            self.at += 1
            if self.text() == "{":
                close = self.end_of_group(self.at)
                self.at += 1
                variant.fields = self.fields(close - 1)
                self.at = close
                self.at += self.text() == ","
            else:
                variant.type = self.until_comma(end).removeprefix("( ").removesuffix(" )")
            found.append(variant)
        return found

    def until_comma(self, end: int, brackets: tuple[str, str] = ("([{<", ")]}>")) -> str:
        """The words up to the next comma that is in no brackets, and past it."""
        depth, words = 0, []
        while self.at < end:
            text = self.text()
            if self.tokens[self.at].kind == "punct":
                if text == "," and depth == 0:
                    self.at += 1
                    break
                depth += (text in brackets[0]) - (text in brackets[1])
            words.append(text)
            self.at += 1
        return " ".join(words)

    def function(self):
        name = self.text(1)
        while self.at < len(self.tokens) and self.text() not in ("{", ";"):
            self.at += 1
        if self.text() != "{":
            return
        end = self.end_of_group(self.at)
        body = self.tokens[self.at + 1 : end - 1]
        if len(body) <= 24:
            self.functions[name] = _source(body)
        # What stands inside of a longer function is read on: types may be declared there.
        self.at = end if len(body) <= 24 else self.at + 1

    def constant(self):
        name = self.text(1)
        while self.text() not in ("=", ";"):
            self.at += 1
        start = self.at + 1
        while self.at < len(self.tokens) and self.text() != ";":
            self.at += 1
        self.functions.setdefault(name, _source(self.tokens[start : self.at]))

    def implementation(self):
        name = self.text(3)
        while self.text() != "{":
            self.at += 1
        end = self.end_of_group(self.at)
        values: dict[str, str] = {}
        while self.at < end and not (self.text() == "Self" and self.text(1) == "{" and self.text(-1) != "->"):
            self.at += 1
        if self.at < end:
            close = self.end_of_group(self.at + 1)
            self.at += 2
            while self.at < close - 1:
                key = self.text()
                self.at += 2
                start = self.at
                self.until_comma(close - 1, ("([{", ")]}"))
                behind = self.at - (self.tokens[self.at - 1].text == ",")
                values[key] = _source(self.tokens[start:behind])
        self.defaults[name] = values
        self.at = end


def _arguments(body: list[Token]) -> dict[str, str | None]:
    """`rename = "x", default` as a dictionary; a key without a value has None."""
    found: dict[str, str | None] = {}
    at = 0
    while at < len(body):
        key = body[at].text
        if at + 2 < len(body) and body[at + 1].text == "=":
            found[key] = body[at + 2].text
            at += 4
        else:
            found[key] = None
            at += 2
    return found


def _source(body: list[Token]) -> str:
    """Tokens as one would write them."""
    words = [f'"{token.text}"' if token.kind == "string" else token.text for token in body]
    return re.sub(r"\s*(::|\.|\(|\)|\[|\]|!)\s*", r"\1", " ".join(words)).replace(" ,", ",").strip()
