"""`benches/RESULTS.md` and its plot, from what was measured last."""

import datetime
import math
import statistics

from driver import compare, kinesis, lane, postgres, redis, tools, web

OUTPUT = tools.BENCHES / "RESULTS.md"
PLOT = tools.ROOT / "docs" / "internals" / "results.svg"


def main():
    sides = [data for data in map(tools.load, ("dynoxide", "dynamodb-local")) if data]
    instructions, cold, sql, keys, versions = map(tools.load, ("instructions", "cold", "postgres", "redis", "versions"))
    gates = [(data["server"], gate) for data in sides for gate in compare.gates(data)]
    gates += [("callgrind", gate) for gate in (instructions or {}).get("gates", [])]
    gates += [("cold start", gate) for gate in (cold or {}).get("gates", [])]
    gates += [("PostgreSQL", gate) for gate in (sql or {}).get("gates", [])]
    gates += [("Redis", gate) for gate in (keys or {}).get("gates", [])]
    parts = [HEAD.format(date=datetime.date.today().isoformat())]
    parts.append(table(["", "figure", "found", "wanted", ""], [gate_row(where, gate) for where, gate in gates]))
    parts.append("![CPU for one new message](../docs/internals/results.svg)\n")
    for data in sides:
        parts += server(data)
    if instructions:
        parts.append(INSTRUCTIONS.format(rustc=instructions["rustc"]))
        parts.append(table(["path", "instructions"], [[row["path"], f"{row['instructions']:,}"] for row in instructions["rows"]]))
    if cold:
        parts += cold_part(cold)
    if sql:
        parts += on_postgres(sql)
    if keys:
        parts += on_redis(keys)
    if versions:
        parts.append("## Versions\n")
        parts.append(table(["", ""], [[name, version] for name, version in versions.items()]))
    OUTPUT.write_text("\n".join(parts))
    if sides:
        PLOT.write_text(plot(sides[0]))
    held = [(where, gate) for where, gate in gates if gate["holds"] is not None]
    missed = [f"{where}: {gate['name']}: {shown(gate)}, wanted {gate['limit']}" for where, gate in held if not gate["holds"]]
    tools.say(f"{OUTPUT.relative_to(tools.ROOT)}: {len(held) - len(missed)} of {len(held)} figures reached")
    print("\n".join(missed))
    return not missed


HEAD = """\
# Results

Measured on {date} by `make bench`, which wrote this file. Another machine has other microseconds: only ratios from one run say
something, and the gates are ratios.

## Gates
"""

INSTRUCTIONS = """\
## Instructions

Counted by callgrind (rustc {rustc}), for a call, or for a message in a batch of 10. `memory-…` is the whole SQS layer on a
`MemoryStore`; `sdk-…` is the same on a `DynamoDbStore` whose HTTP client answers at once, without a server; `floor-…` is the SDK by
hand against the same client. Valgrind's processor has no SHA instructions, so hashing weighs several times what it does in fact.
`benches/instructions.json` is the baseline that `benches/run instructions` compares with, within 2 %.
"""


def shown(gate):
    text = f"{gate['median']:,.2f}".rstrip("0").rstrip(".")
    if "low" in gate:
        text += f" [{gate['low']:.2f}, {gate['high']:.2f}]"
    return text


def gate_row(where, gate):
    verdict = {True: "reached", False: "**missed**", None: gate.get("why")}[gate["holds"]]
    return [where, gate["name"], shown(gate), gate["limit"], verdict]


def table(head, rows):
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def server(data):
    again, reads = (data["contenders"][name]["redelivery"] for name in (compare.LAYER, lane.FLOOR))
    large = [
        [
            {compare.LAYER: "the layer", lane.FLOOR: "the floor"}[row["name"]],
            f"{row['size']:,}",
            f"{row['cpu_us']:,.1f} µs",
            f"{row['wall_us'] / 1e3:,.1f} ms",
            f"{row['requests']:,.0f}",
            f"{row['resident_kib'] / 1024:,.1f} MiB",
            f"{(row['peak_kib'] - row['resident_kib']) / 1024:,.1f} MiB",
        ]
        for row in data["large"]
    ]
    return [
        f"## On {data['server']}\n",
        f"{data['rounds']} rounds, in turns, of {data['batches']} batches for the peers and {data['batches'] * lane.QUICKER} for the others; load average {data['load'][0]:.1f} before, "
        f"{data['load'][1]:.1f} after. CPU is the client's, user and system, for one message (median of the rounds); time is a batch's "
        "(median of all); ratios are medians of the ratios within a round. The Rust contenders, by hand as by this library, allocate with "
        "mimalloc, with `MIMALLOC_PURGE_DELAY=-1`; the peers are as they come.\n",
        side_by_side(compare.LANE, data["contenders"]),
        f"A redelivery, where SQS says that the messages were here before: the layer takes {again['cpu_us']:.0f} µs, "
        f"{again['wall_us'] / 1e3:.2f} ms and {again['requests']:g} requests, one consistent read by hand {reads['cpu_us']:.0f} µs and "
        f"{reads['wall_us'] / 1e3:.2f} ms.\n",
        f"Large batches of new messages, each in a new process, median of {compare.LARGE_ROUNDS}. `before` is what was resident before the first message, "
        "the events among it; `more` is what the batch needed on top.\n",
        table(["", "messages", "CPU per message", "time", "requests", "before", "more"], large),
        *over_streams(data),
        *over_http(data["web"]),
    ]


def side_by_side(one_lane, sides):
    layer = sides[one_lane.layer]
    rows = []
    for name, title in one_lane.names.items():
        row = [title]
        for scenario in ("new", "replay"):
            one = sides[name][scenario]
            row += [
                f"{one['cpu_us']:,.0f} µs",
                f"{one['wall_us'] / 1e3:,.2f} ms",
                f"{one['requests']:g}",
                times(tools.ratio(one["cpu_rounds"], layer[scenario]["cpu_rounds"])["median"]),
                times(tools.ratio(one["wall_rounds"], layer[scenario]["wall_rounds"])["median"]),
            ]
        rows.append(row)
    head = [f"batches of {one_lane.size}", "new: CPU", "time", "requests", "CPU ÷ layer's", "time ÷ layer's"]
    head += ["replay: CPU", "time", "requests", "CPU ÷ layer's", "time ÷ layer's"]
    return table(head, rows)


def over_streams(data):
    messages = data["batches"] * compare.SIZE
    peer, other = (kinesis.LANE.share(name, messages) for name in (kinesis.LANE.python, lane.FLOOR))
    return [
        f"Records of Kinesis, each with its own partition key: {data['rounds']} rounds; batches in a round: {peer} for the peer, {other} for "
        "the others. CPU and time include the parsing of the event, in which this library decodes Base64. The floor parses nothing.\n",
        side_by_side(kinesis.LANE, data["kinesis"]),
    ]


def over_http(data):
    def row(side):
        cells = [web.NAMES[side]]
        for scenario in web.SCENARIOS:
            for what in ("cpu", "wall"):
                one, ours = data["overheads"][side][scenario][what], data["overheads"]["library"][scenario][what]
                cells.append(f"{one['bare']:,.0f} + {statistics.median(one['rounds']):,.0f} µs")
                cells.append(times(tools.ratio(one["rounds"], ours["rounds"])["median"]))
        return cells

    head = ["a request over HTTP", "new: CPU", "overhead ÷ ours", "time", "overhead ÷ ours"]
    head += ["replay: CPU", "overhead ÷ ours", "time", "overhead ÷ ours"]
    return [
        f"Requests over HTTP, {data['requests']} a round, one after the other, {data['rounds']} rounds: what the bare handler takes, plus "
        "what protecting it adds (medians). In a replay the bare handler just runs again.\n",
        table(head, [row(side) for side in web.PAIRS]),
        "The same requests, 64 at once, each its own task in one thread (medians; p50 and p99 are of single requests, the floor has none).\n",
        table(crowd_head(), [crowd_row(data["crowd"], name) for name in web.CROWD]),
    ]


def crowd_head():
    return ["64 requests at once", *(f"{scenario}: {what}" for scenario in web.SCENARIOS for what in ("CPU", "requests", "p50", "p99"))]


def crowd_row(crowd, name):
    cells = [web.CROWD[name]]
    for scenario in web.SCENARIOS:
        one = {what: statistics.median(found) for what, found in crowd[name][scenario].items()}
        cells += [f"{one['cpu']:,.0f} µs", f"{one['requests']:.2f}"]
        cells += [f"{one[what] / 1e3:,.1f} ms" if one[what] else "" for what in ("p50", "p99")]
    return cells


def times(ratio):
    return f"{ratio:.1f} ×" if ratio >= 1.95 else f"{ratio:.2f} ×"


def cold_part(cold):
    rows = []
    for name, one in cold["functions"].items():
        wall = one["ratio_wall"]
        rows.append(
            [
                compare_title(name),
                f"{one['wall_us'] / 1e3:.2f} ms",
                f"{one['cpu_us'] / 1e3:.2f} ms",
                f"{one['bytes'] / 1e6:.2f} MB",
                f"{wall['median']:.3f} [{wall['low']:.3f}, {wall['high']:.3f}]",
            ]
        )
    return [
        "## Cold start\n",
        f"From before the process is made until its answer to the first event has arrived, on dynoxide: {cold['starts']} starts of each, "
        f"in turns, medians. Each is linked in {cold['layouts']} layouts, with its functions in another order each time: one program's luck "
        "with pages and cache lines is worth some per cent. The interval is a 95 % bootstrap over layouts and starts. The "
        "functions differ in what protects them; the unprotected one and the one by hand have the SDK's own client, which reads the system's certificates, and send one and three requests.\n",
        table(["function", "time", "CPU", "program, stripped", "this library's time ÷ its time"], rows),
    ]


def on_postgres(sql):
    def row(name, one):
        figures = [statistics.median(one[what]) for what in ("wall_us", "cpu_us", "server_us")]
        ratio = tools.ratio(sql["contenders"][postgres.OURS]["all_us"], one["all_us"])
        return [postgres.NAMES[name], *(f"{figure:,.0f} µs" for figure in figures), one["statements"], times(ratio["median"])]

    return [
        "## On PostgreSQL\n",
        f"One order and its key in one transaction, {sql['requests']} a round, one after the other on one connection, {sql['rounds']} rounds in turns "
        "(medians). The server is on this machine and doesn't sync to the disk. Statements are counted by the server.\n",
        table(["", "time", "CPU, client", "CPU, server", "statements", "this library's CPU ÷ its CPU"], [row(*one) for one in sql["contenders"].items()]),
    ]


def on_redis(keys):
    def row(name, title):
        figures = [statistics.median(keys["contenders"][name + again]["all_us"]) for again in ("", ", duplicate")]
        return [title, *(f"{figure:,.0f} µs" for figure in figures)]

    return [
        "## On Redis\n",
        f"CPU of client and server for one request, one after the other on one connection, {keys['rounds']} rounds in turns (medians). The server is on this machine.\n",
        table(["", "a new request", "a duplicate"], [row(*one) for one in redis.NAMES.items()]),
    ]


def compare_title(name):
    from driver import cold

    return cold.NAMES[name]


def plot(data):
    """Three bars on one linear axis, written by hand: a plotting library would be the largest dependency here."""
    width, left, bar, top = 760, 300, 34, 52
    names = ["powertools-python", "raw-at-once", compare.LAYER]
    values = [data["contenders"][name]["new"]["cpu_us"] for name in names]
    step, ticks = round_ticks(max(values))
    height = top + len(names) * bar + 34
    scale = (width - left - 80) / (step * ticks)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        'font-family="sans-serif" font-size="14">',
        "<title>CPU for one new message</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="26" font-size="16">CPU for one new message, in µs (batches of 10 on {data["server"]}); shorter is better</text>',
    ]
    for number in range(ticks + 1):
        x = left + step * number * scale
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 6}" y2="{height - 30}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle" fill="#666" font-size="12">{step * number:,g}</text>')
    for row, (name, value) in enumerate(zip(names, values)):
        y = top + row * bar
        mine = name == compare.LAYER
        weight, colour = (' font-weight="bold"', "#d65f0e") if mine else ("", "#33658a")
        out.append(f'<text x="12" y="{y + 18}"{weight}>{compare.NAMES[name]}</text>')
        out.append(f'<rect x="{left}" y="{y + 3}" width="{value * scale:.1f}" height="{bar - 12}" fill="{colour}"/>')
        out.append(f'<text x="{left + value * scale + 6:.1f}" y="{y + 19}"{weight}>{value:,.0f}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def round_ticks(most):
    """A round step, and how many of them reach the largest value: four to ten."""
    step = 10 ** math.floor(math.log10(most))
    step = next(step / part for part in (1, 2, 5, 10) if most / step * part >= 4)
    return step, math.ceil(most / step)
