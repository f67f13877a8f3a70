"""What protecting a request over HTTP costs: by itself beside the SDK by hand and Powertools (TypeScript), each over its own bare
handler; and among many at once, with and without groups."""

import statistics

from driver import tools
from driver.contender import Contender

# What is measured: the bare handler, and the same one protected.
PAIRS = {
    "floor": ("web-bare", "web-floor"),
    "library": ("web-bare", "web-layer"),
    "grouped": ("web-bare", "web-grouped"),
    "typescript": ("web-typescript-bare", "web-typescript"),
}
NAMES = {
    "floor": "a conditional put and an update by hand (the floor)",
    "library": "this library, the HTTP layer",
    "grouped": "the same with `group_requests`",
    "typescript": "Powertools TypeScript (makeIdempotent)",
}
# 64 requests at once, each its own task.
CROWD = {
    "crowd-floor": "PartiQL groups of 25 by hand (the floor)",
    "crowd-layer": "the HTTP layer",
    "crowd-grouped": "the HTTP layer with `group_requests`",
}
CROWD_REQUESTS = 1_920
SCENARIOS = ("new", "replay")
WARM_UP = 3


def measure(server, endpoint, table, rounds, requests):
    """So many requests a round, one after the other, each scenario by each contender."""
    names = dict.fromkeys(name for pair in PAIRS.values() for name in pair)
    contenders = [Contender(name, endpoint, table) for name in names]
    figures = {one.name: {scenario: {"cpu": [], "wall": []} for scenario in SCENARIOS} for one in contenders}
    try:
        for number in range(WARM_UP + rounds):
            tools.say(f"{server}, HTTP: round {number + 1} of {WARM_UP + rounds}")
            turn = number % len(contenders)
            for one in contenders[turn:] + contenders[:turn]:
                for scenario in SCENARIOS:
                    runs = requests if scenario == "new" or one.name.endswith("bare") else 0
                    report = one.work(f"{one.name:-<19}-{number:04}", requests, 1, runs=runs)
                    if number >= WARM_UP:
                        figures[one.name][scenario]["cpu"].append(report["cpu_us"] / requests)
                        figures[one.name][scenario]["wall"].append(statistics.median(report["wall_us"]))
    finally:
        for one in contenders:
            one.__exit__()
    return {
        "requests": requests,
        "rounds": rounds,
        "overheads": {side: overheads(figures, *pair) for side, pair in PAIRS.items()},
        "whole": {pair[1]: figures[pair[1]] for pair in PAIRS.values()},
        "crowd": crowd(server, endpoint, table, rounds),
    }


def crowd(server, endpoint, table, rounds):
    """New requests, 64 at once, by each contender in turns."""
    contenders = [Contender(name, endpoint, table) for name in CROWD]
    figures = {name: {scenario: {"cpu": [], "wall": [], "requests": [], "p50": [], "p99": []} for scenario in SCENARIOS} for name in CROWD}
    try:
        for number in range(WARM_UP + rounds):
            tools.say(f"{server}, HTTP at once: round {number + 1} of {WARM_UP + rounds}")
            turn = number % len(contenders)
            for one in contenders[turn:] + contenders[:turn]:
                for scenario in SCENARIOS:
                    runs = CROWD_REQUESTS if scenario == "new" else 0
                    report = one.work(f"{one.name:-<19}-{number:04}", 1, CROWD_REQUESTS, runs=runs)
                    if number >= WARM_UP:
                        taken = figures[one.name][scenario]
                        taken["cpu"].append(report["cpu_us"] / CROWD_REQUESTS)
                        taken["wall"].append(sum(report["wall_us"]) / CROWD_REQUESTS)
                        taken["requests"].append(report["requests"] / CROWD_REQUESTS)
                        taken["p50"].append(report["p50_us"])
                        taken["p99"].append(report["p99_us"])
    finally:
        for one in contenders:
            one.__exit__()
    return figures


def gates(data):
    """What is wanted of the layer by itself, and of groups."""

    def ratio(ours, theirs, scenario):
        return tools.ratio(ours[scenario]["cpu"], theirs[scenario]["cpu"])

    def gate(name, found, limit, holds):
        return {"name": name, **found, "limit": limit, "holds": holds(found["median"])}

    whole, many = data["whole"], data["crowd"]
    for scenario in SCENARIOS:
        found = ratio(whole["web-layer"], whole["web-floor"], scenario)
        yield gate(f"HTTP, {scenario}: CPU, layer / floor", found, "≤ 1.15", lambda median: median <= 1.15)
    found = ratio(whole["web-grouped"], whole["web-layer"], "new")
    yield gate("HTTP, new: CPU, with groups / without, one at a time", found, "≤ 1.02", lambda median: median <= 1.02)
    found = ratio(many["crowd-grouped"], many["crowd-floor"], "new")
    yield gate("HTTP, new, 64 at once: CPU, with groups / floor", found, "≤ 1.5", lambda median: median <= 1.5)
    found = ratio(many["crowd-layer"], many["crowd-grouped"], "new")
    yield gate("HTTP, new, 64 at once: CPU, without groups / with", found, "≥ 3", lambda median: median >= 3)


def overheads(figures, bare, protected):
    """Protected less bare, round by round."""
    return {
        scenario: {
            what: {
                "bare": statistics.median(figures[bare][scenario][what]),
                "rounds": [
                    more - less
                    for more, less in zip(figures[protected][scenario][what], figures[bare][scenario][what], strict=True)
                ],
            }
            for what in ("cpu", "wall")
        }
        for scenario in SCENARIOS
    }
