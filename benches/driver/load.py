"""Load: requests at a steady rate, one of five sent again, on a server and on a function, each with the library and without."""

import datetime
import json
import subprocess

from driver import report, tools

OUTPUT = tools.BENCHES / "LOAD.md"
PLOT = tools.ROOT / "docs" / "internals" / "load.svg"
# All at once: what disturbs one disturbs all.
RUNS = {
    "server": ("axum, `load-server`", "load-server", "protected", "server"),
    "server-bare": ("the same, bare", "load-server", "bare", "server"),
    "function": ("`orders-api`, eight environments", "orders-api", "protected", "function"),
    "function-bare": ("the same, bare", "orders-api", "bare", "function"),
}
RATE = 40


def main(seconds):
    tools.build("load")
    tools.build("orders-api")
    tools.say(f"{len(RUNS)} targets at once, {RATE} orders a second each, for {seconds} seconds")
    started = {
        name: subprocess.Popen(
            [tools.program("load"), which, protection, tools.program(program), str(RATE), str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, (_, program, protection, which) in RUNS.items()
    }
    try:
        reports = {name: json.loads(process.communicate()[0]) for name, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    OUTPUT.write_text(page(reports, seconds))
    PLOT.write_text(plot(reports))
    print(OUTPUT.read_text())
    wrong = [name for name, one in reports.items() if not counts(name, one)]
    for name in wrong:
        print(f"{name}: a request was lost, doubled or not answered")
    return not wrong


def counts(name, one):
    """Whether the counts are right. A bare server doubles each order that comes twice: else this would see nothing."""
    doubled = one["again"] if name == "server-bare" else 0
    return (one["lost"], one["doubled"], one["unanswered"]) == (0, doubled, 0)


PAGE = """\
# Load

Measured on {date} by `make load`, which wrote this file: {seconds} seconds, {rate} new orders a second on each target, at random
distances, and each sent again within two seconds with a chance of 20 %. All targets run at once on the same machine, each with a DynamoDB API in memory
of its own, so that a busy machine is busy for all. Latency counts from the time at which a request was *meant* to be sent:
a slow answer doesn't spare the ones behind it. *Bare* is the same program with `IDEMPOTENCY_DISABLED=true`.

## Counts

{counts}

`lost`: a client was told that the order is placed, and there is no effect. `doubled`: the effect happened more than once. The bare
server doubles each order that comes twice; the bare function can't, since its order is a conditional put: it refuses the
repetition (409). Behind the library, 409 tells a repetition to come back, since the first request is at work.

## Latency, in milliseconds

{latencies}

## Processor and memory

{memory}

![p99 over time, and memory](../docs/internals/load.svg)

- `server`: the axum server with the library.
- `server-bare`: the same server without it.
- `function`: `orders-api` in eight environments, with the library.
- `function-bare`: the same function without it.
"""


def table(head, rows):
    return report.table(head, rows).rstrip()


def page(reports, seconds):
    titles = {name: title for name, (title, *_) in RUNS.items()}
    counted = [
        [
            titles[name],
            f"{one['sent']:,}",
            f"{one['again']:,}",
            f"{one['sent'] / one['seconds']:.1f}",
            ", ".join(f"{status}: {number:,}" for status, number in one["statuses"].items()),
            one["lost"],
            f"{one['doubled']:,}",
        ]
        for name, one in reports.items()
    ]
    slow = [
        [f"{titles[name]}{', ' + part if part else ''}", *(f"{one[which][p] / 1e3:.2f}" for p in ("p50", "p99", "p999", "max"))]
        for name, one in reports.items()
        for part, which in (("first", "first_us"), ("repeated", "again_us"))
    ]
    large = [
        [
            titles[name],
            f"{one['cpu_ms'] * 1e3 / one['sent']:,.0f} µs",
            *(f"{one['memory_kib'][second] / 1024:.1f} MiB" for second in (0, len(one["memory_kib"]) // 2, -1)),
        ]
        for name, one in reports.items()
    ]
    return PAGE.format(
        date=datetime.date.today().isoformat(),
        seconds=seconds,
        rate=RATE,
        counts=table(["", "requests", "repeated", "a second", "answers", "lost", "doubled"], counted),
        latencies=table(["", "p50", "p99", "p99.9", "longest"], slow),
        memory=table(["", "CPU a request", "memory at first", "after half", "at the end"], large),
    )


# --- the plot: two fields, one above the other; four lines each

WIDTH, HEIGHT, LEFT, TOP, GAP = 720, 180, 64, 34, 60
COLOURS = {"server": "#1f77b4", "server-bare": "#8ab8d8", "function": "#d65f0e", "function-bare": "#eeb184"}


def plot(reports):
    fields = [
        ("p99 of each ten seconds, in ms", {name: [one["p99"] / 1e3 for one in run["over_time"]] for name, run in reports.items()}, 10),
        ("memory of the processes, in MiB", {name: [kib / 1024 for kib in run["memory_kib"]] for name, run in reports.items()}, 1),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * (HEIGHT + GAP) + TOP}" role="img" font-family="sans-serif" font-size="12">',
        "<title>Latency and memory under load</title>",
        "<desc>Two fields over time: the 99th percentile of the latency, and the resident memory, of four targets.</desc>",
        f'<rect width="{WIDTH}" height="{2 * (HEIGHT + GAP) + TOP}" fill="#ffffff"/>',
    ]
    for number, (title, lines, step) in enumerate(fields):
        parts += field(title, lines, step, TOP + number * (HEIGHT + GAP))
    for number, name in enumerate(reports):
        left = LEFT + number * 160
        bottom = TOP + 2 * (HEIGHT + GAP) - 8
        parts.append(f'<rect x="{left}" y="{bottom - 10}" width="14" height="10" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{left + 20}" y="{bottom}" fill="#222222">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def field(title, lines, step, top):
    tick, ticks = report.round_ticks(max(max(values) for values in lines.values()))
    most, longest = tick * ticks, max(len(values) for values in lines.values()) * step
    wide = WIDTH - LEFT - 20
    yield f'<text x="{LEFT}" y="{top - 8}" fill="#222222">{title}</text>'
    for part in range(ticks + 1):
        y = top + HEIGHT * (1 - part / ticks)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + wide}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#222222">{tick * part:g}</text>'
    minute = max(1, round(longest / 300)) * 60
    for second in range(0, int(longest) + 1, minute):
        x = LEFT + wide * second / longest
        yield f'<text x="{x:.1f}" y="{top + HEIGHT + 18}" text-anchor="middle" fill="#222222">{second // 60} min</text>'
    for name, values in lines.items():
        points = " ".join(
            f"{LEFT + wide * number * step / longest:.1f},{top + HEIGHT * (1 - value / most):.1f}" for number, value in enumerate(values)
        )
        yield f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.5"/>'
