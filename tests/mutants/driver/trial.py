"""Turns one mutant on, and runs the tests that reach it until one fails."""

from .places import PLAN, below
from .process import run
from .reached import arguments

# Quick tests first, in one process; then those that take longer. Seconds of their time alone.
BATCHES = [1.0, 5.0, 30.0]
# A mutant may make a test slower. This many times what it takes alone, and a start.
TIMES, START = 10, 20


class Trial:
    """Every test that there is, and what it reaches."""

    def __init__(self, programs, reached, mutants):
        self.paths = programs["paths"]
        self.reached = reached
        self.tests = {}
        files = {mutant["number"]: mutant["file"] for mutant in mutants}
        for program in PLAN["programs"]:
            by_mutant = {}
            for name, test in reached[program["name"]].items():
                for number in test["reached"]:
                    if "files" not in program or below(files.get(number, ""), program["files"]):
                        by_mutant.setdefault(number, []).append((test["seconds"], name))
            self.tests[program["name"]] = by_mutant

    def of(self, number):
        """`caught`, with the test and how; `survived`, with the number of tests; or `unreached`."""
        asked, cpu, seconds, unsteady = 0, 0.0, 0.0, []
        for program in PLAN["programs"]:
            for batch in batches(sorted(self.tests[program["name"]].get(number, []))):
                asked += len(batch)
                while batch:
                    end = self.run(program, batch, number)
                    cpu, seconds = cpu + end.cpu, seconds + end.seconds
                    if end.how == "passed":
                        break
                    caught = {"verdict": "caught", "by": program["name"], "how": end.how, "cpu": cpu, "seconds": seconds}
                    if end.how == "time" or not end.failed or not program.get("each"):
                        return caught | {"test": end.failed[0] if end.failed else None}
                    # A failure counts if it comes again: some tests are at odds with a busy machine.
                    test = end.failed[0]
                    again = self.run(program, [one for one in batch if one[1] == test], number)
                    cpu, seconds = cpu + again.cpu, seconds + again.seconds
                    if again.how != "passed":
                        return caught | {"test": test, "cpu": cpu, "seconds": seconds}
                    unsteady.append(test)
                    batch = [one for one in batch if one[1] != test]
        verdict = "survived" if asked else "unreached"
        return {"verdict": verdict, "tests": asked, "cpu": cpu, "seconds": seconds, "unsteady": unsteady}

    def run(self, program, batch, number):
        alone = sum(seconds for seconds, _ in batch)
        environment = {**program.get("environment", {}), "MUTANT": str(number)}
        names = [name for _, name in batch]
        return run(self.paths[program["name"]], arguments(program, names), START + TIMES * alone, environment)


def batches(tests):
    """Of tests by their time, the quick ones first."""
    batch, total, limits = [], 0.0, iter(BATCHES)
    limit = next(limits)
    for test in tests:
        if batch and total + test[0] > limit:
            yield batch
            batch, total, limit = [], 0.0, next(limits, limit)
        batch.append(test)
        total += test[0]
    if batch:
        yield batch
