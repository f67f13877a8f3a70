"""Finds out which mutants each test reaches, and how long it takes: a test that never comes by a mutant can't notice it."""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from .places import OUT, PLAN, REACHED, TREE, load, say, store
from .process import run

# For a test alone. None takes as long without a mutant.
LIMIT = 300
# A test that fails once and then passes isn't steady, but it does pass.
ATTEMPTS = 3


def everything(programs, jobs):
    """By program and test: `seconds`, and the numbers `reached`. Recorded once for each program that is built."""
    known = load(REACHED) or {}
    recorded = {}
    for program in PLAN["programs"]:
        name = program["name"]
        content = [programs["contents"][name], program]
        if name in known and known[name]["content"] == content:
            recorded[name] = known[name]["tests"]
            continue
        say(f"{name}: record what each test reaches")
        recorded[name] = every_test(program, programs["paths"][name], jobs)
        known[name] = {"content": content, "tests": recorded[name]}
        store(REACHED, known)
    return recorded


def every_test(program, executable, jobs):
    names = tests(program, executable) if program.get("each") else [""]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda name: record(program, executable, name), names))
    bad = [name or program["name"] for name, one in zip(names, found, strict=True) if one is None]
    if bad:
        sys.exit(f"{program['name']}: fails without a mutant: {', '.join(bad)}")
    say(f"{len(names)} tests, {sum(one['seconds'] for one in found):.0f} s one after the other")
    return dict(zip(names, found, strict=True))


def tests(program, executable):
    listed = subprocess.run([executable, "--list", "--format", "terse"], cwd=TREE, check=True, capture_output=True, text=True).stdout
    names = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    return [name for name in names if not any(skipped in name for skipped in program.get("skip", []))]


def arguments(program, names):
    if program.get("each"):
        return ["--exact", *names]
    return program.get("arguments", [])


def record(program, executable, name):
    for _ in range(ATTEMPTS):
        handle, path = tempfile.mkstemp(dir=OUT, prefix="reached-")
        os.close(handle)
        try:
            environment = {**program.get("environment", {}), "MUTANTS_REACHED": path}
            end = run(executable, arguments(program, [name]), LIMIT, environment)
            if end.how == "passed":
                with open(path) as lines:
                    return {"seconds": end.seconds, "cpu": end.cpu, "reached": sorted({int(line) for line in lines})}
        finally:
            os.unlink(path)
    print(end.output, file=sys.stderr)
    return None
