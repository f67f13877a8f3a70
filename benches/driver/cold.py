"""Cold start: a process is made, asks the Runtime API for an event, and answers it. And the size of its program."""

import hashlib
import json
import shutil
import subprocess

from driver import tools

NAMES = {
    "cold-plain": "unprotected: the business write alone",
    "cold-by-hand": "claim and completion written against the SDK",
    "cold-guarded": "this library",
}
OURS, BY_HAND, BARE = "cold-guarded", "cold-by-hand", "cold-plain"
MOST = 1.0
MOST_BYTES = 500_000
# What the gate compares with stays as it is: another way to start would move the figure without anybody's doing.
FROZEN = ("plain/Cargo.toml", "plain/src/main.rs", "shared/Cargo.toml", "shared/src/lib.rs")
CHECKSUM = "e1a32492a1313996ffecd7836e23183a15c1bac689c36c78d1ac209477346269"


def frozen():
    found = hashlib.sha256(b"".join((tools.BENCHES / "cold" / path).read_bytes() for path in FROZEN)).hexdigest()
    if found != CHECKSUM:
        raise SystemExit(f"the unprotected function has changed ({', '.join(FROZEN)}): put it back, or say why and set CHECKSUM to {found}")


def main(starts):
    frozen()
    tools.build("bench-server")
    # Each on its own: what one needs is not built into another.
    for name in NAMES:
        tools.build(name)
    tools.build("cold-starts", "benches")
    layouts = {name: tools.layouts(name) for name in NAMES}
    folder = tools.TARGET / "deployed"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    # In turns, each function in each of its layouts. Copies: a file that the linker wrote lies in the page cache in small pieces,
    # which costs a start up to a sixth more.
    programs = [
        (name, shutil.copy(layouts[name][number], folder)) for number in range(tools.LAYOUT_COUNT) for name in NAMES
    ]
    of_each = -(-starts // tools.LAYOUT_COUNT)
    with tools.Dynoxide() as endpoint:
        for table in ("records", "ledger"):
            tools.run(tools.program("benches"), "create-table", endpoint, table)
        tools.say(f"{of_each * tools.LAYOUT_COUNT} starts of each function, in {tools.LAYOUT_COUNT} layouts")
        paths = [path for _, path in programs]
        report = json.loads(tools.output(tools.program("cold-starts"), endpoint, of_each, *paths, stderr=subprocess.DEVNULL))
    taken = {name: {"wall_us": [], "cpu_us": []} for name in NAMES}
    for (name, _), one in zip(programs, report, strict=True):
        for what, figures in taken[name].items():
            figures.append(one[what])
    ours = taken[OURS]
    data = {
        "starts": of_each * tools.LAYOUT_COUNT,
        "layouts": tools.LAYOUT_COUNT,
        "functions": {
            name: {
                "bytes": tools.program(name).stat().st_size,
                "wall_us": tools.median_of_all(one["wall_us"]),
                "cpu_us": tools.median_of_all(one["cpu_us"]),
                "ratio_wall": tools.ratio_of_medians(ours["wall_us"], one["wall_us"]),
                "ratio_cpu": tools.ratio_of_medians(ours["cpu_us"], one["cpu_us"]),
            }
            for name, one in taken.items()
        },
    }
    more = data["functions"][OURS]["bytes"] - data["functions"][BY_HAND]["bytes"]
    wall = data["functions"][BARE]["ratio_wall"]
    data["gates"] = [
        {"name": "cold start: time, protected / unprotected", **wall, "limit": f"≤ {MOST:.2f}, with its interval", "holds": wall["high"] <= MOST},
        {"name": "program: more KB than by hand", "median": more / 1_000, "limit": f"≤ {MOST_BYTES // 1_000}", "holds": more <= MOST_BYTES},
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
