"""The open transaction on PostgreSQL: one order with its key, by hand and by the library."""

import json

from driver import tools

NAMES = {
    "by hand": "by hand: BEGIN, INSERT … ON CONFLICT, INSERT, UPDATE, COMMIT",
    "by hand, prepared": "the same, with prepared statements (a proxy would pin the connection)",
    "library": "this library: `transact`",
}
OURS, THEIRS = "library", "by hand"
MOST = 1.3
MORE_STATEMENTS = 2


def main(rounds=20, requests=1_000):
    tools.build("bench-postgres")
    tools.say(f"{rounds} rounds of {requests} orders on PostgreSQL")
    command = [tools.ROOT / "scripts/with", "postgres", "--", tools.program("bench-postgres")]
    contenders = json.loads(tools.output(*command, "measure", rounds, requests))
    # Counting costs the server more for a longer statement: it has its own run.
    counting = tools.ENVIRONMENT | {"POSTGRES_OPTIONS": "-c shared_preload_libraries=pg_stat_statements"}
    statements = json.loads(tools.output(*command, "count", env=counting))
    for name, one in contenders.items():
        one["statements"] = statements[name]
        one["all_us"] = [client + server for client, server in zip(one["cpu_us"], one["server_us"], strict=True)]
    data = {"rounds": rounds, "requests": requests, "contenders": contenders, "gates": gates(contenders)}
    tools.save("postgres", data)
    for gate in data["gates"]:
        print(f"{gate['name']}: {gate['median']:.3f}, {gate['limit']}{'' if gate['holds'] else '  MISSED'}")
    return all(gate["holds"] for gate in data["gates"])


def gates(contenders):
    ours, theirs = contenders[OURS], contenders[THEIRS]
    found = []
    for name, what in (("time", "wall_us"), ("CPU of client and server", "all_us")):
        ratio = tools.ratio(ours[what], theirs[what])
        found.append({"name": f"open transaction: {name}, library ÷ by hand", **ratio, "limit": f"≤ {MOST}", "holds": ratio["median"] <= MOST})
    more = ours["statements"] - theirs["statements"]
    found.append({"name": "open transaction: more statements than by hand", "median": more, "limit": f"≤ {MORE_STATEMENTS}", "holds": more <= MORE_STATEMENTS})
    return found
