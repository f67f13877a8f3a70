"""One request with its key in Redis: by hand, by the library, and by Powertools (Python), on one server."""

import json
import os
import subprocess
import tempfile
import time

from driver import tools

NAMES = {
    "by hand": "by hand: SET NX EX, SET EX (no fence, no fingerprint)",
    "library": "this library",
    "powertools": "Powertools Python (`idempotent_function`)",
}
OURS = "library"
MOST_BY_HAND = 1.5


def main(rounds=20, requests=2_000):
    tools.build("bench-redis")
    tools.run(tools.ROOT / "scripts/with", "redis", "powertools")
    port = tools.output(tools.ROOT / "scripts/with", "free-port")
    tools.say(f"{rounds} rounds of {requests} requests on Redis")
    with tempfile.TemporaryDirectory() as home:
        options = ("--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", home)
        server = subprocess.Popen([os.environ.get("REDIS_SERVER", "redis-server"), *options], stdout=subprocess.DEVNULL)
        try:
            time.sleep(1)
            found = json.loads(tools.output(tools.program("bench-redis"), f"redis://127.0.0.1:{port}", rounds, requests))
            peer = [tools.PYTHON_HOME / "bin/python", tools.BENCHES / "peers/powertools-redis.py", port, rounds, requests // 10]
            found |= json.loads(tools.output(*peer))
        finally:
            server.terminate()
            server.wait()
    data = {"rounds": rounds, "requests": requests, "contenders": found, "gates": gates(found)}
    tools.save("redis", data)
    for gate in data["gates"]:
        print(f"{gate['name']}: {gate['median']:.3f}, {gate['limit']}{'' if gate['holds'] else '  MISSED'}")
    return all(gate["holds"] for gate in data["gates"])


def gates(found):
    gates = []
    for again in ("", ", duplicate"):
        for theirs, most in (("by hand", MOST_BY_HAND), ("powertools", 1)):
            for name, what in (("time", "wall_us"), ("CPU of client and server", "all_us")):
                if theirs == "by hand" and what == "wall_us":
                    continue
                ratio = tools.ratio(found[OURS + again][what], found[theirs + again][what])
                gates.append({"name": f"Redis{again}: {name}, library ÷ {theirs}", **ratio, "limit": f"≤ {most}", "holds": ratio["median"] <= most})
    return gates
