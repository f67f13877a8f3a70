"""The library beside its peers: the same messages, the same server, in turns."""

import math
import os
import statistics
import time

from driver import kinesis, lane, tools, web
from driver.contender import Contender
from driver.lane import FLOOR

NAMES = {
    "powertools-python": "Powertools Python (BatchProcessor)",
    "powertools-typescript": "Powertools TypeScript (parallel)",
    "raw-serial": "raw Rust SDK, one after the other",
    "raw-at-once": "raw Rust SDK, 10 at once",
    "raw-groups": "raw Rust SDK, PartiQL groups (the floor)",
    "layer": "this library, the whole SQS layer",
}
LAYER = "layer"
SIZE = 10
LANE = lane.Lane("SQS", NAMES, LAYER, "powertools-python", SIZE, counts_deliveries=True)
LARGE_ROUNDS = 5


def measure(server, endpoint, rounds, batches):
    """All of it on one server."""
    table = f"bench-{time.time_ns()}"
    tools.run(tools.program("benches"), "create-table", endpoint, table)
    began = os.getloadavg()[0]
    sides = lane.side_by_side(LANE, server, endpoint, table, rounds, batches * SIZE)
    streams = lane.side_by_side(kinesis.LANE, server, endpoint, table, rounds, batches * SIZE)
    requests = requests_per_batch(endpoint, table)
    large = large_batches(server, endpoint, table)
    return {
        "server": server,
        "rounds": rounds,
        "batches": batches,
        "load": [began, os.getloadavg()[0]],
        "contenders": sides,
        "kinesis": streams,
        "requests": requests,
        "large": large,
        "web": web.measure(server, endpoint, table, rounds, batches * SIZE),
    }


def requests_per_batch(endpoint, table):
    """Of new messages, for some sizes around the limit of a group."""
    sizes = [1, 10, 25, 26, 100]
    with Contender(LAYER, endpoint, table) as layer:
        return {str(size): layer.work(f"requests-{size:03}", 1, size, runs=size)["requests"] for size in sizes}


def large_batches(server, endpoint, table):
    """Each in its own process, several times, in turns."""
    shapes = {100: 20, 10_000: 1}
    taken = {(name, size): [] for name in (FLOOR, LAYER) for size in shapes}
    for again in range(LARGE_ROUNDS):
        tools.say(f"{server}: large batches, {again + 1} of {LARGE_ROUNDS}")
        for name, size in taken:
            with Contender(name, endpoint, table) as contender:
                contender.work(f"warm-{name}-{size}-{again}", 2, SIZE, runs=2 * SIZE)
                report = contender.work(f"{name}-{size:05}-{again}", shapes[size], size, runs=shapes[size] * size)
                taken[name, size].append(report)
    return [
        {
            "name": name,
            "size": size,
            "cpu_us": statistics.median(r["cpu_us"] for r in reports) / (shapes[size] * size),
            "cpu_rounds": [r["cpu_us"] / (shapes[size] * size) for r in reports],
            "wall_us": statistics.median(statistics.median(r["wall_us"]) for r in reports),
            "requests": reports[0]["requests"] / shapes[size],
            "resident_kib": statistics.median(r["resident_kib"] for r in reports),
            "peak_kib": statistics.median(r["peak_kib"] for r in reports),
        }
        for (name, size), reports in taken.items()
    ]


def gates(data):
    """What is wanted, and whether it `holds`. `None` is no gate, and `why` says why not: then it is reported alone."""

    sides = data["contenders"]

    def compare(what, scenario, other):
        return lane.compare(LANE, sides, what, scenario, LAYER, other)

    def at_most(name, found, limit):
        return {"name": name, **found, "limit": f"≤ {limit}", "holds": found["median"] <= limit}

    def reported(gate):
        """Time is much more of the machine's and of the server's making than CPU is."""
        if gate["holds"] is None:
            return gate
        return gate | {"holds": None, "why": f"{'reached' if gate['holds'] else 'missed'}; time is no gate"}

    def exactly(name, found, wanted):
        return {"name": name, "median": found, "limit": f"= {wanted}", "holds": found == wanted}

    large = {row["size"]: row for row in data["large"] if row["name"] == LAYER}
    yield at_most("new: CPU, layer / floor", compare("cpu", "new", FLOOR), 1.5)
    yield reported(at_most("new: time, layer / floor", compare("wall", "new", FLOOR), 1.3))
    yield at_most("replay: CPU, layer / floor", compare("cpu", "replay", FLOOR), 1.5)
    yield reported(at_most("replay: time, layer / floor", compare("wall", "replay", FLOOR), 1.5))
    yield lane.cheaper_than_python(LANE, sides, "new: CPU, Powertools Python / layer", "cpu", 50)
    yield reported(lane.cheaper_than_python(LANE, sides, "new: time, Powertools Python / layer", "wall", 12))
    yield kinesis.gate(data["kinesis"])
    yield from web.gates(data["web"])
    for size, found in data["requests"].items():
        yield exactly(f"requests for {size} new messages", found, 2 * math.ceil(int(size) / 25))
    yield exactly("requests for 10,000 new messages", large[10_000]["requests"], 2 * 400)
    # A tenth for noise: few runs of one batch.
    grown = tools.ratio(large[10_000]["cpu_rounds"], large[100]["cpu_rounds"])
    yield at_most("CPU per message, at 10,000 / at 100", grown, 1.1)


def http(rounds=30, batches=10):
    """The part over HTTP alone, on dynoxide; prints its gates."""
    tools.build("bench-server")
    tools.build("benches")
    with tools.Dynoxide() as endpoint:
        table = f"bench-{time.time_ns()}"
        tools.run(tools.program("benches"), "create-table", endpoint, table)
        found = list(web.gates(web.measure("dynoxide", endpoint, table, rounds, batches * SIZE)))
    for gate in found:
        print(f"{gate['name']}: {gate['median']:.2f} [{gate['low']:.2f}, {gate['high']:.2f}], wanted {gate['limit']}")
    return all(gate["holds"] for gate in found)


def main(rounds=60, batches=10):
    tools.install_peers()
    tools.build("bench-server")
    tools.build("benches")
    with tools.Dynoxide() as endpoint:
        tools.save("dynoxide", measure("dynoxide", endpoint, rounds, batches))
    # There, most of the time is the server's: fewer rounds do.
    tools.on_dynamodb_local("on-dynamodb-local", str(max(rounds // 3, 1)), str(batches))
    tools.save("versions", tools.versions())


def on_dynamodb_local(rounds, batches):
    endpoint = os.environ["DYNAMODB_LOCAL_ENDPOINT"]
    tools.save("dynamodb-local", measure("DynamoDB Local", endpoint, rounds, batches))
