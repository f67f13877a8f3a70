"""Where things are, and what plan.toml says."""

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HERE = ROOT / "tests" / "mutants"
OUT = ROOT / "target" / "mutants"
# The copy, whose `src` has the switches.
TREE = OUT / "tree"
MUTANTS = OUT / "mutants.json"
PROGRAMS = OUT / "programs.json"
REACHED = OUT / "reached.json"
RESULTS = OUT / "results.jsonl"
# Not the library's own: cargo gives a workspace's programs the same name wherever it lies, and a test that is built meanwhile would
# take a mutated one's place.
TARGET = OUT / "build"

PLAN = tomllib.loads((HERE / "plan.toml").read_text())


def say(text):
    print(f"--- {text}", file=sys.stderr, flush=True)


def files():
    """Everything that git knows or would know, from the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return sorted(path for path in listed.splitlines() if (ROOT / path).is_file())


def mutated(path):
    """Whether a file gets mutants: each one that the plan doesn't leave out."""
    return not below(path, PLAN["left_out"])


def below(path, starts):
    """Whether a file is one of these, or in the folder of one, from src/ on."""
    path = path.removeprefix("src/")
    return any(path == start or path.startswith((f"{start}.", f"{start}/")) for start in starts)


def digest(paths):
    total = hashlib.sha256()
    for path in paths:
        total.update(path.encode() + b"\0" + (ROOT / path).read_bytes() + b"\0")
    return total.hexdigest()


def load(path):
    return json.loads(path.read_text()) if path.exists() else None


def store(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    new.rename(path)
