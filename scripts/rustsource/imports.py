"""Which file takes which names from which other file of its crate.

Comes in: a module tree. Goes out: arrows from file to file with the names. A name counts for the file that defines it,
however many `pub use` hand it on. A `mod` declaration and a `pub use` alone take nothing.
"""
from collections import defaultdict
from pathlib import Path

from .modules import Import, Module

Arrows = dict[Path, dict[Path, set[str]]]
# What a name stands for: a module, or the file and the name of a definition.
Found = Module | tuple[Path, str]


class _Names:
    """Looks names up as the compiler does, as far as modules go."""

    def __init__(self, root: Module):
        self.root = root
        self.busy: set[tuple[int, str]] = set()

    def path(self, module: Module, segments: list[str]) -> Found | None:
        """What a path means that is written in `module`; None if it leads out of the crate."""
        at, rest = self._start(module, segments)
        for index, name in enumerate(rest):
            if not isinstance(at, Module):
                break
            last = index == len(rest) - 1
            inside = self.name(at, name, wants_module=not last, local=at is module and index == 0)
            if inside is None:
                # Written by a macro, perhaps: it stands in the module's own file. A first name leads out of the crate.
                return None if index == 0 and rest is segments else (at.file, name)
            at = inside
        return at

    def _start(self, module: Module, segments: list[str]) -> tuple[Module, list[str]]:
        at, index = module, 0
        for word in segments:
            if word == "crate":
                at = self.root
            elif word == "super":
                at = at.parent or at
            elif word != "self":
                break
            index += 1
        return at, segments[index:] if index else segments

    def name(self, module: Module, name: str, wants_module: bool = False, local: bool = False) -> Found | None:
        """What `name` means inside of `module`."""
        key = (id(module), name)
        if key in self.busy:
            return None
        self.busy.add(key)
        try:
            return self._name(module, name, wants_module, local)
        finally:
            self.busy.discard(key)

    def _name(self, module: Module, name: str, wants_module: bool, local: bool) -> Found | None:
        child = module.children.get(name)
        if child is not None and (wants_module or name not in module.defines):
            return child
        if name in module.defines:
            return module.file, name
        leaves = module.imports.get(name, [])
        if local:
            leaves = [*module.local_imports.get(name, []), *leaves]
        for leaf in leaves:
            found = self.path(module, leaf.path)
            if found is not None:
                return found
        for glob in module.globs:
            inside = self.path(module, glob.path)
            if isinstance(inside, Module) and inside is not module:
                found = self.name(inside, name, wants_module)
                if found is not None:
                    return found
        return None



def arrows(root: Module) -> Arrows:
    """Every arrow between two files of the crate."""
    names = _Names(root)
    found: Arrows = defaultdict(lambda: defaultdict(set))

    def add(module: Module, target: Found | None):
        if isinstance(target, tuple) and target[0] != module.file:
            found[module.file][target[0]].add(target[1])

    for module in root.walk():
        for leaf in _leaves(module):
            if not leaf.public or leaf.name in module.names:
                add(module, names.path(module, leaf.path))
        for segments, _ in module.paths:
            add(module, names.path(module, segments))
        for glob in module.globs:
            _add_glob(module, glob, names, add)
    return {file: dict(to) for file, to in found.items()}


def _leaves(module: Module) -> list[Import]:
    return [leaf for kept in (module.imports, module.local_imports) for leaves in kept.values() for leaf in leaves]


def _add_glob(module: Module, glob: Import, names: _Names, add):
    """`use a::*` takes those names of `a` that the code writes. A lower-case name may be a variable: it must be called."""
    inside = names.path(module, glob.path)
    if not isinstance(inside, Module):
        add(module, inside)
        return
    own = module.defines | module.children.keys() | module.imports.keys() | module.local_imports.keys()
    for name, called in module.names.items():
        if name not in own and (called or name[:1].isupper()):
            add(module, names.name(inside, name))
