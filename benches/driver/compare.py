"""The library beside its peers: the same messages, the same server, in turns."""

import math
import os
import statistics
import time

from driver import tools, web
from driver.contender import Contender

# In the order of the table.
NAMES = {
    "powertools-python": "Powertools Python (BatchProcessor)",
    "powertools-typescript": "Powertools TypeScript (parallel)",
    "raw-serial": "raw Rust SDK, one after the other",
    "raw-at-once": "raw Rust SDK, 10 at once",
    "raw-groups": "raw Rust SDK, PartiQL groups (the floor)",
    "layer": "this library, the whole SQS layer",
}
FLOOR, LAYER = "raw-groups", "layer"
# About the same time for each in a round: who is quick does more batches, else the warming up of caches would be most of it.
PEERS = ("powertools-python", "powertools-typescript")
QUICKER = 5
SIZE = 10
WARM_UP = 3
LARGE_ROUNDS = 5


def measure(server, endpoint, rounds, batches):
    """All of it on one server."""
    table = f"bench-{time.time_ns()}"
    tools.run(tools.program("benches"), "create-table", endpoint, table)
    began = os.getloadavg()[0]
    sides = side_by_side(server, endpoint, table, rounds, batches)
    requests = requests_per_batch(endpoint, table)
    large = large_batches(server, endpoint, table)
    return {
        "server": server,
        "rounds": rounds,
        "batches": batches,
        "load": [began, os.getloadavg()[0]],
        "contenders": sides,
        "requests": requests,
        "large": large,
        "web": web.measure(server, endpoint, table, rounds, batches * SIZE),
    }


def side_by_side(server, endpoint, table, rounds, batches):
    contenders = [Contender(name, endpoint, table) for name in NAMES]
    reads = Contender("raw-reads", endpoint, table)
    figures = {name: {"new": [], "replay": [], "redelivery": []} for name in NAMES}
    try:
        for number in range(WARM_UP + rounds):
            tools.say(f"{server}: round {number + 1} of {WARM_UP + rounds}")
            # Each is first, second, … equally often.
            turn = number % len(contenders)
            for contender in contenders[turn:] + contenders[:turn]:
                prefix = f"{contender.name[:13]:-<13}-{number:04}"
                share = batches if contender.name in PEERS else batches * QUICKER
                taken = {
                    "new": contender.work(prefix, share, SIZE, runs=share * SIZE),
                    "replay": contender.work(prefix, share, SIZE, runs=0),
                }
                # Messages that SQS says have been here before: the layer reads first, and so does whoever writes it by hand.
                if contender.name == LAYER:
                    taken["redelivery"] = contender.work(prefix, share, SIZE, runs=0, receives=2)
                if contender.name == FLOOR:
                    taken["redelivery"] = reads.work(prefix, share, SIZE, runs=0)
                if number >= WARM_UP:
                    for scenario, report in taken.items():
                        figures[contender.name][scenario].append(report)
    finally:
        for contender in [*contenders, reads]:
            contender.__exit__()
    return {name: {scenario: summary(reports) for scenario, reports in all_.items() if reports} for name, all_ in figures.items()}


def summary(reports):
    cpu = [report["cpu_us"] / (len(report["wall_us"]) * SIZE) for report in reports]
    wall = [statistics.median(report["wall_us"]) for report in reports]
    return {
        "cpu_us": statistics.median(cpu),
        "wall_us": statistics.median(time for report in reports for time in report["wall_us"]),
        "requests": statistics.median(report["requests"] / len(report["wall_us"]) for report in reports),
        "cpu_rounds": cpu,
        "wall_rounds": wall,
    }


def requests_per_batch(endpoint, table):
    """Of new messages, for some sizes around the limit of a group."""
    sizes = [1, 10, 25, 26, 100]
    with Contender(LAYER, endpoint, table) as layer:
        return {str(size): layer.work(f"requests-{size:03}", 1, size, runs=size)["requests"] for size in sizes}


def large_batches(server, endpoint, table):
    """Each in a process of its own, several times, in turns."""
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


def figure(data, name, scenario, what):
    return data["contenders"][name][scenario][f"{what}_rounds"]


def gates(data):
    """What is wanted, and whether it `holds`. `None` is no gate, and `why` says why not: then it is reported alone."""

    def compare(what, scenario, other):
        return tools.ratio(figure(data, LAYER, scenario, what), figure(data, other, scenario, what))

    def at_most(name, found, limit):
        return {"name": name, **found, "limit": f"≤ {limit}", "holds": found["median"] <= limit}

    def cheaper_than(peer, name, what, limit):
        found, by_hand = (tools.ratio(figure(data, peer, "new", what), figure(data, ours, "new", what)) for ours in (LAYER, FLOOR))
        gate = {"name": name, **found, "limit": f"≥ {limit}", "holds": found["median"] >= limit}
        if by_hand["median"] < limit:
            # What the floor itself doesn't reach says something of the server, and nothing of the layer above.
            gate |= {"holds": None, "why": f"no gate: the floor itself has {by_hand['median']:.1f}"}
        return gate

    def reported(gate):
        """Time is much more of the machine's and of the server's making than CPU is."""
        if gate["holds"] is None:
            return gate
        return gate | {"holds": None, "why": f"{'reached' if gate['holds'] else 'missed'}; time is no gate"}

    def exactly(name, found, wanted):
        return {"name": name, "median": found, "limit": f"= {wanted}", "holds": found == wanted}

    large = {row["size"]: row for row in data["large"] if row["name"] == LAYER}
    python = "powertools-python"
    yield at_most("new: CPU, layer / floor", compare("cpu", "new", FLOOR), 1.5)
    yield reported(at_most("new: time, layer / floor", compare("wall", "new", FLOOR), 1.3))
    yield at_most("replay: CPU, layer / floor", compare("cpu", "replay", FLOOR), 1.5)
    yield reported(at_most("replay: time, layer / floor", compare("wall", "replay", FLOOR), 1.5))
    yield cheaper_than(python, "new: CPU, Powertools Python / layer", "cpu", 50)
    yield reported(cheaper_than(python, "new: time, Powertools Python / layer", "wall", 12))
    for size, found in data["requests"].items():
        yield exactly(f"requests for {size} new messages", found, 2 * math.ceil(int(size) / 25))
    yield exactly("requests for 10,000 new messages", large[10_000]["requests"], 2 * 400)
    # A tenth for noise: few runs of one batch.
    grown = tools.ratio(large[10_000]["cpu_rounds"], large[100]["cpu_rounds"])
    yield at_most("CPU per message, at 10,000 / at 100", grown, 1.1)


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
