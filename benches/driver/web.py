"""What protecting a request over HTTP costs: the library's layer, and Powertools (TypeScript), each over its own bare handler."""

import statistics

from driver import tools
from driver.contender import Contender

# What is measured: the bare handler, and the same one protected.
PAIRS = {
    "library": ("web-bare", "web-layer"),
    "typescript": ("web-typescript-bare", "web-typescript"),
}
NAMES = {
    "library": "this library, the HTTP layer",
    "typescript": "Powertools TypeScript (makeIdempotent)",
}
SCENARIOS = ("new", "replay")
WARM_UP = 3


def measure(server, endpoint, table, rounds, requests):
    """So many requests a round, one after the other, each scenario by each contender."""
    contenders = [Contender(name, endpoint, table) for pair in PAIRS.values() for name in pair]
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
    return {"requests": requests, "rounds": rounds, "overheads": {side: overheads(figures, *pair) for side, pair in PAIRS.items()}}


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
