"""Measures contenders in turns, round by round: one server, the same batches for each."""

import statistics
from dataclasses import dataclass

from driver import tools
from driver.contender import Contender

# A quick contender does more batches in a round, else the warming up of caches would be most of its time.
QUICKER = 5
WARM_UP = 3
FLOOR = "raw-groups"


@dataclass(frozen=True)
class Lane:
    """Names the contenders, and has the size of their batches."""

    title: str
    # In the order of the table.
    names: dict
    layer: str
    # The peer that the layer is held against.
    python: str
    size: int
    # Before each id: lanes share a table.
    mark: str = ""
    # Whether an event has a delivery count. With a count above 1 the layer reads first, and is held against reads by hand.
    counts_deliveries: bool = False

    def share(self, name, messages):
        """Gives the batches of a contender in a round, in which a peer takes `messages`."""
        batches = max(messages // self.size, 1)
        return batches if name.startswith("powertools") else batches * QUICKER


def side_by_side(lane, server, endpoint, table, rounds, messages):
    contenders = [Contender(name, endpoint, table) for name in lane.names]
    readers = {lane.layer: contenders[[*lane.names].index(lane.layer)], FLOOR: Contender("raw-reads", endpoint, table)}
    figures = {name: {"new": [], "replay": [], "redelivery": []} for name in lane.names}
    try:
        for number in range(WARM_UP + rounds):
            tools.say(f"{server}, {lane.title}: round {number + 1} of {WARM_UP + rounds}")
            # Each is first, second, … equally often.
            turn = number % len(contenders)
            for contender in contenders[turn:] + contenders[:turn]:
                prefix = f"{(lane.mark + contender.name)[:13]:-<13}-{number:04}"
                share = lane.share(contender.name, messages)
                taken = {
                    "new": contender.work(prefix, share, lane.size, runs=share * lane.size),
                    "replay": contender.work(prefix, share, lane.size, runs=0),
                }
                if lane.counts_deliveries and contender.name in readers:
                    reader = readers[contender.name]
                    taken["redelivery"] = reader.work(prefix, share, lane.size, runs=0, receives=2)
                if number >= WARM_UP:
                    for scenario, report in taken.items():
                        figures[contender.name][scenario].append(report)
    finally:
        for contender in [*contenders, readers[FLOOR]]:
            contender.__exit__()
    return {
        name: {scenario: summary(reports, lane.size) for scenario, reports in all_.items() if reports}
        for name, all_ in figures.items()
    }


def summary(reports, size):
    cpu = [report["cpu_us"] / (len(report["wall_us"]) * size) for report in reports]
    wall = [statistics.median(report["wall_us"]) for report in reports]
    return {
        "cpu_us": statistics.median(cpu),
        "wall_us": statistics.median(time for report in reports for time in report["wall_us"]),
        "requests": statistics.median(report["requests"] / len(report["wall_us"]) for report in reports),
        "cpu_rounds": cpu,
        "wall_rounds": wall,
    }


def compare(lane, sides, what, scenario, one, other):
    """Gives the ratio of two contenders' figures."""
    return tools.ratio(*(sides[name][scenario][f"{what}_rounds"] for name in (one, other)))


def cheaper_than_python(lane, sides, name, what, limit):
    """Gives the gate: for new messages, the peer takes at least `limit` times what the layer takes."""
    found, by_hand = (compare(lane, sides, what, "new", lane.python, ours) for ours in (lane.layer, FLOOR))
    gate = {"name": name, **found, "limit": f"≥ {limit}", "holds": found["median"] >= limit}
    if by_hand["median"] < limit:
        # What the floor itself doesn't reach says something of the server, and nothing of the layer above.
        gate |= {"holds": None, "why": f"no gate: the floor itself has {by_hand['median']:.1f}"}
    return gate
