"""Powertools for AWS Lambda (Python) on Redis: `powertools-redis.py PORT ROUNDS REQUESTS` prints, for each round, the time and the processor
time of this process and of the server together, for one request in microseconds: of new requests, and of duplicates."""

import json
import resource
import sys
import time

import redis
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.redis import RedisCachePersistenceLayer

port, rounds, requests = map(int, sys.argv[1:])
client = redis.Redis(host="127.0.0.1", port=port, decode_responses=True)
store = RedisCachePersistenceLayer(client=client)
config = IdempotencyConfig(expires_after_seconds=86_400)


@idempotent_function(data_keyword_argument="order", config=config, persistence_store=store)
def place(order):
    return order["number"]


def cpu():
    info = client.info("cpu")
    own = resource.getrusage(resource.RUSAGE_SELF)
    return info["used_cpu_sys"] + info["used_cpu_user"] + own.ru_utime + own.ru_stime


found = {name: {"wall_us": [], "all_us": []} for name in ("powertools", "powertools, duplicate")}
for number in range(rounds + 1):
    for figures in found.values():
        before, began = cpu(), time.perf_counter()
        for request in range(requests):
            place(order={"number": number * requests + request})
        wall, used = time.perf_counter() - began, cpu() - before
        # The first round warms up.
        if number:
            figures["wall_us"].append(wall * 1e6 / requests)
            figures["all_us"].append(used * 1e6 / requests)
print(json.dumps(found))
