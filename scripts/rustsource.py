"""Reads Rust source as far as figures need it: what is code, which modules there are, and which file takes a name from which.

A file A imports a file B if code of A, tests aside, names something that B defines: by a `use`, or by a path that begins with
`crate`, `super`, `self` or a child module. Re-exports are followed to the file that defines the name. Two things are no imports:
`mod child;`, and a parent's `pub use child::Name` where the parent itself does not use the name: that only hands it on.

A circle is a set of files that reach each other by such arrows. In Rust a child module sees its parent's private parts, and often
implements its parent's types: where a parent and its child import each other, and no other file is between them, they count as
one file that is written in two.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*)
    |(?P<block>/\*)
    |(?P<raw>\b(?:br|cr|r)(?P<hashes>\#*)")
    |(?P<string>\b[bc]?"|")
    |(?P<char>\bb?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^\\'\n])'|'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^\\'\n])')""",
    re.VERBOSE,
)
STRING_END = re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL)
BLOCK_EDGE = re.compile(r"/\*|\*/")
# `test` alone, or as one of several conditions that must all hold.
TEST_ATTRIBUTE = re.compile(r"#\[cfg\((?:test|all\((?:[^()]*,\s*)?test\b(?:[^()]|\([^()]*\))*\))\)\]")
ATTRIBUTE = re.compile(r"\s*#!?\[")
DEFINITION = re.compile(
    r"\b(?:(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?fn|struct|enum|union|trait|type|const|static|macro_rules!)\s+(?:mut\s+)?(\w+)"
)
MODULE = re.compile(r"\bmod\s+(\w+)\s*([;{])")
USE = re.compile(r"(\bpub(?:\([^)]*\))?\s+)?\buse\s+([^;]*);")
PATH = re.compile(r"(?<![\w:])\w+(?:::\w+)+")


def without_comments(text, keep_strings=True):
    """The text with comments blanked, line by line; on request also what strings and characters contain."""
    parts, at = [], 0

    def blank(start, end):
        parts.append(re.sub(r"[^\n]", " ", text[start:end]))

    while found := TOKEN.search(text, at):
        start = found.start()
        parts.append(text[at:start])
        if found["comment"]:
            at = found.end()
        elif found["block"]:
            at, depth = found.end(), 1
            while depth and (edge := BLOCK_EDGE.search(text, at)):
                depth += 1 if edge[0] == "/*" else -1
                at = edge.end()
        else:
            if found["raw"]:
                close = '"' + found["hashes"]
                at = text.index(close, found.end()) + len(close)
            elif found["string"]:
                at = STRING_END.match(text, found.end()).end()
            else:
                at = found.end()
            if keep_strings:
                parts.append(text[start:at])
                continue
        blank(start, at)
    parts.append(text[at:])
    return "".join(parts)


def closing(text, start):
    """Where the bracket at `start` is closed, and one further. The text has no strings."""
    depth = 0
    for place in range(start, len(text)):
        if text[place] in "([{":
            depth += 1
        elif text[place] in ")]}":
            depth -= 1
            if depth == 0:
                return place + 1
    raise ValueError("a bracket that is never closed")


def item_end(text, start):
    """Where the item that begins at `start` ends, its attributes included."""
    while found := ATTRIBUTE.match(text, start):
        start = closing(text, found.end() - 1)
    for found in re.compile(r"[;{(\[]").finditer(text, start):
        if found.start() < start:
            continue
        if found[0] == ";":
            return found.end()
        start = closing(text, found.start())
        if found[0] == "{":
            # A `use` has braces before its end.
            rest = re.compile(r"\s*;").match(text, start)
            return rest.end() if rest else start
    raise ValueError("an item without an end")


@dataclass
class Source:
    """One file, without comments and tests."""

    path: Path
    # With its strings, to count lines; and without them, to read names.
    code: str
    names: str
    # Child modules that are compiled for tests alone.
    test_modules: set = field(default_factory=set)

    @classmethod
    def of(cls, path, text):
        code, names = without_comments(text), without_comments(text, keep_strings=False)
        tests = set()
        while found := TEST_ATTRIBUTE.search(names):
            end = item_end(names, found.start())
            module = MODULE.search(names, found.start(), end)
            if module and module[2] == ";":
                tests.add(module[1])
            gap = re.sub(r"[^\n]", " ", names[found.start() : end])
            code = code[: found.start()] + gap + code[end:]
            names = names[: found.start()] + gap + names[end:]
        return cls(path, code, names, tests)

    def lines(self):
        return sum(1 for line in self.code.splitlines() if line.strip())


@dataclass
class Use:
    """One name of a `use`: what it is called here, and the path to it."""

    name: str
    path: tuple
    is_public: bool


def use_tree(text, prefix=()):
    """Every `(name, path)` of a `use` declaration's tree."""
    text = text.strip()
    if text.startswith("{"):
        depth, start = 0, 1
        for place, letter in enumerate(text):
            depth += {"{": 1, "}": -1}.get(letter, 0)
            if (letter == "," and depth == 1) or depth == 0:
                if text[start:place].strip():
                    yield from use_tree(text[start:place], prefix)
                start = place + 1
        return
    brace = text.find("{")
    if brace >= 0:
        head = tuple(word.strip() for word in text[:brace].split("::") if word.strip())
        yield from use_tree(text[brace:], prefix + head)
        return
    path, _, alias = (part.strip() for part in re.sub(r"\s+as\s+", "\0", text).partition("\0"))
    whole = prefix + tuple(word.strip() for word in path.split("::") if word.strip())
    if whole[-1] == "self" and len(whole) > 1:
        whole = whole[:-1]
    yield alias or whole[-1], whole


class Crate:
    """All files that are reached from `src/lib.rs` without a test module, and who imports whom."""

    def __init__(self, root):
        self.root = root / "src"
        self.sources = {}
        self.tests = set()
        # By the module's path: its file, its definitions and its text, and its `use`s.
        self.files, self.defined, self.uses = {}, {}, {}
        self._read((), self.root / "lib.rs", self.root)

    def _read(self, module, path, folder):
        source = Source.of(path, path.read_text())
        self.sources[path] = source
        self._declare(module, path, source.names)
        for name in source.test_modules:
            self.tests.update(self._files_of(name, folder))
        for found in MODULE.finditer(source.names):
            if found[2] == ";":
                child = next(iter(self._files_of(found[1], folder, below=False)))
                self._read((*module, found[1]), child, folder / found[1])

    def _files_of(self, name, folder, below=True):
        alone = [path for path in (folder / f"{name}.rs", folder / name / "mod.rs") if path.exists()]
        return alone + (sorted((folder / name).rglob("*.rs")) if below else [])

    def _declare(self, module, path, text):
        """A module's own names. An inline module is one of its own, in the same file."""
        while inline := next((found for found in MODULE.finditer(text) if found[2] == "{"), None):
            end = closing(text, inline.end() - 1)
            self._declare((*module, inline[1]), path, text[inline.end() : end - 1])
            text = text[: inline.start()] + text[end:]
        self.files[module] = path
        self.uses[module] = [
            Use(name, full, bool(found[1])) for found in USE.finditer(text) for name, full in use_tree(found[2])
        ]
        self.defined[module] = set(DEFINITION.findall(text)), USE.sub("", text)

    def _absolute(self, module, path):
        """A path from the crate's root; `None` for another crate's."""
        if path[0] == "crate":
            return path[1:]
        while path and path[0] in ("self", "super"):
            module, path = (module[:-1] if path[0] == "super" else module), path[1:]
            if not path or path[0] != "super":
                return module + path
        return module + path if module + path[:1] in self.files else None

    def file_of(self, path, seen=()):
        """The file that defines what a path from the root names."""
        module = ()
        while len(module) < len(path) and path[: len(module) + 1] in self.files:
            module = path[: len(module) + 1]
        rest = path[len(module) :]
        if rest and rest[0] not in self.defined[module][0] and path not in seen:
            for use in self.uses[module]:
                target = self._absolute(module, use.path)
                if target is not None and use.name == rest[0]:
                    return self.file_of(target + rest[1:], (*seen, path))
        return self.files[module]

    def arrows(self):
        """`{(file, file): names}`: the first imports these from the second."""
        found = {}
        for module, own in self.files.items():
            text = self.defined[module][1]
            words = set(re.findall(r"\w+", text))
            paths = [tuple(path.split("::")) for path in PATH.findall(text)]
            for use in self.uses[module]:
                target = self._absolute(module, use.path)
                is_child = target is not None and len(target) > len(module) and target[: len(module)] == module
                if not (use.is_public and is_child and use.name not in words):
                    paths.append(use.path)
            for path in paths:
                target = self._absolute(module, path)
                if target is None:
                    continue
                # All names of a module: the module.
                target = target[:-1] if target and target[-1] == "*" else target
                other = self.file_of(target)
                if other != own:
                    found.setdefault((own, other), set()).add(target[-1] if target else "crate")
        return found

    def families(self, arrows):
        """By file: its nearest ancestor that it is one with, or itself."""

        def one_with(path):
            for parent in path.parents:
                if parent == self.root:
                    break
                above = parent.with_suffix(".rs")
                if (path, above) in arrows and (above, path) in arrows:
                    return one_with(above)
            return path

        return {path: one_with(path) for path in self.sources}

    def room(self, path):
        """The first name below `src/`, of a folder or of the file beside it."""
        return path.relative_to(self.root).parts[0].removesuffix(".rs")


def circles(arrows):
    """The sets of nodes that reach each other (Tarjan's strongly connected components), each larger than one."""
    following = {}
    for one, other in sorted(arrows):
        following.setdefault(one, []).append(other)
    index, lowest, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = lowest[node] = len(index)
        stack.append(node)
        for other in following.get(node, []):
            if other not in index:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], index[other])
        if lowest[node] == index[node]:
            place = stack.index(node)
            members = stack[place:]
            del stack[place:]
            if len(members) > 1:
                found.append(sorted(members))

    for node in list(following):
        if node not in index:
            visit(node)
    return sorted(found)
