"""Makes the copy, rewrites its source, and builds its programs; drops the mutants that the compiler refuses, round by round."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .places import HERE, MUTANTS, OUT, PLAN, PROGRAMS, ROOT, TARGET, TREE, digest, files, load, mutated, say, store

# More than were ever needed: each round compiles further than the one before.
MOST_ROUNDS = 40
# The library's own lints are about style; these two are about code that a mutant is meant to be.
LINTS = """
[lints.rust]
warnings = "allow"
arithmetic_overflow = "allow"
overflowing_literals = "allow"
unconditional_panic = "allow"
"""


def everything():
    """The programs of today's source, with every mutant that compiles. Nothing is done if that was done before."""
    paths = [path for path in files() if not path.startswith("tests/mutants/")]
    source = [path for path in paths if path.startswith("src/") and path.endswith(".rs")]
    state = digest([*paths, *(path for path in files() if path.startswith(("tests/mutants/src/", "tests/mutants/plan")))])
    known = load(PROGRAMS)
    if known and known["state"] == state and all(os.path.exists(one) for one in known["paths"].values()):
        return load(MUTANTS), known
    rewriter = build_rewriter()
    copy(paths, source)
    before = load(MUTANTS)
    # What the compiler refused, it refuses again, as long as the mutants have the same numbers.
    code, _ = rewrite(rewriter, source, set())
    same = [code, digest([path for path in files() if path.startswith("tests/mutants/src/")])]
    refused = set(before["refused"]) if before and before["same"] == same else set()
    rewrite_until_it_compiles(rewriter, source, refused, {"code": code, "same": same})
    programs = {program["name"]: build(program) for program in PLAN["programs"]}
    contents = {name: hashlib.sha256(Path(path).read_bytes()).hexdigest() for name, path in programs.items()}
    built = {"state": state, "paths": programs, "contents": contents}
    store(PROGRAMS, built)
    return load(MUTANTS), built


def build_rewriter():
    target = OUT / "rewriter"
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", HERE / "Cargo.toml", "--target-dir", target],
        check=True,
    )
    return target / "release" / "mutants"


def copy(paths, source):
    """A file that is the same keeps its time, so that cargo builds what changed. The rewriter writes what is in `source`."""
    written = {TREE / path for path in source}
    for path in paths:
        if path in source:
            (TREE / path).parent.mkdir(parents=True, exist_ok=True)
            continue
        content = (ROOT / path).read_bytes()
        if path == "Cargo.toml":
            content = manifest(content.decode()).encode()
        target = TREE / path
        written.add(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)
            shutil.copymode(ROOT / path, target)
    for old in [path for path in TREE.rglob("*") if path.is_file() and path not in written]:
        old.unlink()


def manifest(text):
    own = "\n[lints]\nworkspace = true\n"
    if text.count(own) != 1:
        sys.exit("Cargo.toml has its lints elsewhere: driver/build.py replaces them in the copy")
    return text.replace(own, LINTS)


def rewrite_until_it_compiles(rewriter, source, refused, state):
    for number in range(1, MOST_ROUNDS + 1):
        _, mutants = rewrite(rewriter, source, refused)
        errors, _ = cargo(PLAN["programs"][0])
        store(MUTANTS, {**state, "refused": sorted(refused), "mutants": mutants})
        if not errors:
            say(f"{len(mutants)} mutants compile, {len(refused)} don't")
            return
        new = set()
        for error in errors:
            new |= blamed(error, mutants)
        if not new - refused:
            for error in errors:
                print(error["rendered"], file=sys.stderr)
            sys.exit("the copy doesn't compile, and no mutant is the reason")
        say(f"round {number}: {len(errors)} errors, {len(new - refused)} mutants less")
        refused |= new
    sys.exit(f"the copy doesn't compile after {MOST_ROUNDS} rounds")


def rewrite(rewriter, source, refused):
    """Writes the copy's source; a number for the code without its tests, and the mutants."""
    order = {
        "root": str(ROOT),
        "copy": str(TREE),
        "library": source,
        "mutated": [path for path in source if mutated(path)],
        "refused": sorted(refused),
    }
    lines = subprocess.run([rewriter], input=json.dumps(order), check=True, stdout=subprocess.PIPE, text=True).stdout
    code, *mutants = [json.loads(line) for line in lines.splitlines()]
    return code, mutants


def cargo(program):
    """Errors, and the program if there are none."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET), **program.get("build_environment", {})}
    process = subprocess.run(
        ["cargo", *program["build"], "--message-format=json"],
        cwd=TREE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    errors, executable = [], None
    for line in process.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-message" and message["message"]["level"].startswith("error"):
            if message["message"]["spans"] or message["message"]["children"]:
                errors.append(message["message"])
        elif message["reason"] == "compiler-artifact" and message["executable"] and message["target"]["name"] == program["binary"]:
            executable = message["executable"]
    if process.returncode != 0 and not errors:
        sys.exit(process.stderr)
    return errors, executable


def build(program):
    say(f"build: {program['name']}")
    errors, executable = cargo(program)
    if errors:
        for error in errors:
            print(error["rendered"], file=sys.stderr)
        sys.exit(f"{program['name']} doesn't compile in the copy")
    if not executable:
        sys.exit(f"cargo {' '.join(program['build'])} has no program `{program['binary']}`")
    return executable


def blamed(error, mutants):
    """The mutants that an error of the compiler is about."""
    spans = list(spans_of(error))
    if not spans:
        return set()
    # A variable that is set in a statement which may be left out: the statement is only named beside the error.
    if (error["code"] or {}).get("code") == "E0381":
        spans.sort(key=lambda span: span["is_primary"])
    for span in spans:
        inside = [mutant for mutant in mutants if mutant["file"] == span["file_name"] and within(span, mutant["text"])]
        if inside:
            least = min(inside, key=lambda mutant: length(mutant["text"]))
            return {least["number"]}
    # The place can't be switched at all, as where a reference to a temporary value outlives the switch.
    for span in spans:
        around = [mutant for mutant in mutants if mutant["file"] == span["file_name"] and within(span, mutant["switch"])]
        if around:
            least = min(length(mutant["switch"]) for mutant in around)
            return {mutant["number"] for mutant in around if length(mutant["switch"]) == least}
    # What a statement consumes lives on without it, to the end of the function: nothing names the statement.
    kept = {word for span in spans for word in re.findall(r"when `(\w+)` is dropped", span["label"] or "")}
    consuming = [mutant for mutant in mutants if mutant["operator"] == "statement" and mutant["file"] == spans[0]["file_name"]]
    numbers = {mutant["number"] for mutant in consuming if kept & set(re.findall(r"\w+", mutant["from"]))}
    if numbers:
        return numbers
    # A constant function that a constant calls.
    constant = re.search(r"cannot call non-const (?:associated )?(?:function|method) `(?:.*::)?(\w+)`", error["message"])
    if constant:
        return {mutant["number"] for mutant in mutants if mutant["function"].split("::")[-1] == constant[1]}
    return set()


def spans_of(error):
    ordered = sorted(error["spans"], key=lambda span: not span["is_primary"])
    for span in ordered:
        while span["expansion"]:
            span = span["expansion"]["span"]
        yield span
    for child in error["children"]:
        yield from spans_of(child)


def within(span, place):
    return place["start"] <= span["byte_start"] and span["byte_end"] <= place["end"] and place["start"] < place["end"]


def length(place):
    return place["end"] - place["start"]
