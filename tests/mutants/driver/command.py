"""The command line."""

import argparse
import json
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from . import build, reached, report, sample
from .places import HERE, OUT, RESULTS, below, say
from .trial import Trial

COUNT = 200


def main(text):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--seed", type=int, default=None)
    runs.add_argument("--count", type=int, default=COUNT)
    runs.add_argument("--jobs", type=int, default=os.cpu_count())
    runs.add_argument("--only", nargs="+")
    runs.add_argument("--id", type=int, nargs="+")
    commands.add_parser("list").add_argument("file", nargs="?", default="src/")
    commands.add_parser("check")
    commands.add_parser("lint")
    arguments = parser.parse_args()
    if arguments.command == "lint":
        return lint()
    built, programs = build.everything()
    mutants = sample.counted(built["mutants"])
    equivalent = sample.equivalents(mutants)
    match arguments.command:
        case "list":
            for mutant in mutants:
                if mutant["file"].startswith(arguments.file):
                    print(f"{report.line(mutant)}\n{report.change(mutant)}")
        case "check":
            print(f"{len(equivalent)} entries, each names one mutant")
        case "run":
            return run(arguments, built, programs, mutants, equivalent)
    return 0


def lint():
    manifest = ["--manifest-path", HERE / "Cargo.toml"]
    subprocess.run(["cargo", "fmt", *manifest, "--check"], check=True)
    target = ["--target-dir", OUT / "rewriter"]
    subprocess.run(["cargo", "clippy", *manifest, *target, "--locked", "--all-targets", "--", "-D", "warnings"], check=True)
    return 0


def run(arguments, built, programs, mutants, equivalent):
    trial = Trial(programs, reached.everything(programs, arguments.jobs), mutants)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1_000_000)
    if arguments.id:
        chosen, put_aside = [mutant for mutant in mutants if mutant["number"] in arguments.id], []
    else:
        say(f"seed {seed}")
        among = [mutant for mutant in mutants if below(mutant["file"], arguments.only)] if arguments.only else mutants
        chosen, put_aside = sample.choose(among, equivalent, seed, arguments.count)
    state = sorted(programs["contents"].values())
    results = earlier(built["code"], state) if not arguments.id else {}
    left = [mutant for mutant in chosen if mutant["key"] not in results]
    say(f"{len(chosen)} mutants, {len(chosen) - len(left)} of them known")
    lock = threading.Lock()

    def one(mutant):
        result = trial.of(mutant["number"])
        described = {name: mutant[name] for name in ("key", "number", "file", "line", "function", "operator", "from", "to")}
        stamped = {"code": built["code"], "state": state, **described, **result}
        with lock:
            results[mutant["key"]] = stamped
            with RESULTS.open("a") as out:
                out.write(json.dumps(stamped) + "\n")
            if result["verdict"] != "caught":
                print(f"{report.line(mutant)}: {result['verdict']}\n{report.change(mutant)}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, left))
    lines, survived = report.summary(chosen, put_aside, results, seed, len(mutants), len(built["refused"]))
    print("\n".join(lines))
    return 1 if survived else 0


def earlier(code, state):
    """What an earlier run found: what was caught stays caught, as long as the code is the same; what survived is asked again."""
    results = {}
    if RESULTS.exists():
        for text in RESULTS.read_text().splitlines():
            result = json.loads(text)
            if result["code"] == code and (result["verdict"] == "caught" or result["state"] == state):
                results[result["key"]] = result
    return results
