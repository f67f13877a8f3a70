"""Cold start: a process is made, asks the Runtime API for an event, and answers it. And the size of its program."""

import json
import shutil
import statistics
import subprocess

from driver import tools

NAMES = {
    "cold-plain": "unprotected: the business write alone",
    "cold-by-hand": "claim and completion written against the SDK",
    "cold-guarded": "this library",
}
OURS, THEIRS = "cold-guarded", "cold-by-hand"
MOST = 1.05
MOST_BYTES = 700_000


def main(starts):
    tools.build("bench-server")
    # Each on its own: what one needs is not built into another.
    for name in NAMES:
        tools.build(name)
    tools.build("cold-starts", "benches")
    folder = tools.TARGET / "stripped"
    folder.mkdir(exist_ok=True)
    programs = {name: folder / name for name in NAMES}
    for name, path in programs.items():
        shutil.copy(tools.program(name), path)
        # As it is deployed, whatever the profile does.
        tools.run("strip", path)
    with tools.Dynoxide() as endpoint:
        for table in ("records", "ledger"):
            tools.run(tools.program("benches"), "create-table", endpoint, table)
        tools.say(f"{starts} starts of each function")
        report = json.loads(tools.output(tools.program("cold-starts"), endpoint, starts, *programs.values(), stderr=subprocess.DEVNULL))
    taken = {name: one for name, one in zip(NAMES, report, strict=True)}
    ours = taken[OURS]
    data = {
        "starts": starts,
        "functions": {
            name: {
                "bytes": programs[name].stat().st_size,
                "wall_us": statistics.median(one["wall_us"]),
                "cpu_us": statistics.median(one["cpu_us"]),
                "ratio_wall": tools.ratio_of_medians(ours["wall_us"], one["wall_us"]),
                "ratio_cpu": tools.ratio_of_medians(ours["cpu_us"], one["cpu_us"]),
            }
            for name, one in taken.items()
        },
    }
    more = data["functions"][OURS]["bytes"] - data["functions"][THEIRS]["bytes"]
    wall = data["functions"][THEIRS]["ratio_wall"]
    data["gates"] = [
        {"name": "cold start: time, with / without", **wall, "limit": f"≤ {MOST}, with its interval", "holds": wall["high"] <= MOST},
        {"name": "program: more KB with than without", "median": more / 1_000, "limit": f"≤ {MOST_BYTES // 1_000}", "holds": more <= MOST_BYTES},
    ]
    tools.save("cold", data)
    for name, one in data["functions"].items():
        wall, cpu = one["ratio_wall"], one["ratio_cpu"]
        print(
            f"{name:14}{one['bytes']:>12,} bytes {one['wall_us'] / 1e3:8.2f} ms {one['cpu_us'] / 1e3:8.2f} ms CPU;  {OURS} takes "
            f"{wall['median']:.3f} [{wall['low']:.3f}, {wall['high']:.3f}] of its time, {cpu['median']:.3f} of its CPU"
        )
    for gate in data["gates"]:
        print(f"{gate['name']}: {gate['median']:.3f}, {gate['limit']}{'' if gate['holds'] else '  MISSED'}")
    return all(gate["holds"] for gate in data["gates"])
