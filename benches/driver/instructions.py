"""Instructions of the hot paths, counted by callgrind: a regression shows without a clock, on however busy a machine.

`benches/instructions.json` is what was recorded last. A path may differ from it by the tolerance; whoever means to change one records
anew, and the change is seen in the diff. Beside that, the layer may take so many times the instructions of the floor and no more.
"""

import json
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from driver import tools

BASELINE = tools.BENCHES / "instructions.json"
# Hash maps are seeded anew in each process, and times have other digits: that moves the larger paths by up to half a percent.
TOLERANCE = 0.02
# The layer, the floor, and how many times the floor's instructions the layer may take. Valgrind's processor has no SHA instructions:
# hashing weighs more here than it does in fact, in the floor's signatures as in the layer's fingerprints.
# A gate of 1.5 held while a batch claimed its messages 25 at a time, ahead of their turns. Since a message is claimed when its
# handler can start, a batch sends more and smaller groups.
MOST = 1.55
# Half a percent is what two counts of the same program may differ by, for the reason above.
NOISE = 0.005
SIDES = {"new": ("sdk-new", "floor-new"), "replay": ("sdk-replay", "floor-replay")}
# How many times the instructions of a message in a batch of 100 one in a batch of 10,000 may take.
LARGEST, LARGE, MOST_OF_LARGE = "sdk-new-10000", "sdk-new-100", 1.03
ROUNDS = {"fingerprint-200B": 50, "fingerprint-10KB": 10, "key": 50, "settle": 50, LARGEST: 1}


def count(path, units):
    """Instructions of one unit."""
    rounds = ROUNDS.get(path, 10)
    with tempfile.TemporaryDirectory() as folder:
        tools.run(
            "valgrind",
            "--tool=callgrind",
            "--quiet",
            f"--callgrind-out-file={folder}/out",
            # Only what happens inside this function counts.
            "--toggle-collect=*hot*measured*",
            tools.program("benches"),
            "path",
            path,
            rounds,
            # glibc would copy with `rep movsb`, which valgrind counts once for each byte.
            env={**os.environ, "GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=1000000000"},
        )
        text = Path(folder, "out").read_text()
    total = int(re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE).group(1))
    if total == 0:
        sys.exit(f"callgrind saw nothing of {path}: is the program stripped?")
    return round(total / (rounds * units))


def processor():
    """What glibc chooses its copies of memcpy and the like by."""
    line = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "Features")))
    told_apart = {"avx", "avx2", "bmi2", "erms", "fsrm", "lzcnt", "abm", "movbe", "popcnt", "rtm", "sse4_2", "asimd", "sve"}
    return " ".join(sorted(told_apart & set(line.split(":")[1].split())))


def main(record):
    tools.need_valgrind()
    tools.build("benches")
    listed = [line.split() for line in tools.output(tools.program("benches"), "paths").splitlines()]
    tools.say("count instructions")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counts = list(pool.map(lambda row: count(row[0], int(row[1])), listed))
    found = {path: counted for (path, _), counted in zip(listed, counts, strict=True)}
    rustc = tools.output("rustc", "--version").split()[1]
    made = {"rustc": rustc, "processor": processor()}
    if record:
        BASELINE.write_text(json.dumps({**made, "instructions": found}, indent=2) + "\n")
    recorded = json.loads(BASELINE.read_text())
    if any(recorded[what] != made[what] for what in made):
        # Another compiler makes another program, and another processor is given other copies of memcpy; the layer and the floor
        # are still compared with each other.
        tools.say(f"recorded with {({what: recorded[what] for what in made})}, counted with {made}: the baseline is not compared")
        recorded = {"instructions": {}}
    rows = [row(path, counted, recorded["instructions"].get(path)) for path, counted in found.items()]
    gates = [gate(f"{scenario}: instructions, layer / floor", found[ours] / found[floor], MOST) for scenario, (ours, floor) in SIDES.items()]
    gates.append(gate("new: instructions, batch of 10,000 / of 100", found[LARGEST] / found[LARGE], MOST_OF_LARGE))
    tools.save("instructions", {"rows": rows, "gates": gates, "rustc": rustc})
    for one in rows:
        before = "" if one["recorded"] is None else f"{one['recorded']:>9,} recorded  {one['change']:+.2%}"
        print(f"{one['path']:18}{one['instructions']:>9,}  {before}{'' if one['holds'] else '  CHANGED'}")
    changed = [one["path"] for one in rows if not one["holds"]]
    if changed:
        print("If that is meant, record it: benches/run instructions --record")
    for one in gates:
        print(f"{one['name']}: {one['median']:.2f}, {one['limit']}{'' if one['holds'] else '  MISSED'}")
    return not changed and all(one["holds"] for one in gates)


def gate(name, ratio, most):
    return {"name": name, "median": ratio, "limit": f"≤ {most}", "holds": ratio <= most * (1 + NOISE)}


def row(path, counted, recorded):
    change = None if recorded is None else counted / recorded - 1
    return {
        "path": path,
        "instructions": counted,
        "recorded": recorded,
        "change": change,
        # Fewer is a change, too: the baseline would hide the next regression.
        "holds": change is None or abs(change) <= TOLERANCE,
    }
