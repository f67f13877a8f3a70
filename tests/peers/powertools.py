"""One process of a function with Powertools for AWS Lambda (Python), for the tests: `powertools.py ENDPOINT`, then one JSON a line.

It says `{"ready": …}` first. A line asks for a call; its answer is `{"returned": …}` or `{"raised": …, "message": …}`. Where the function itself runs, `{"running": …}`
comes first, and the next line says how it ends: `{"return": …}` or `{"raise": …}`.
"""

import json
import os
import sys
import warnings

os.environ["AWS_LAMBDA_FUNCTION_NAME"] = "payments-prod"
os.environ["POWERTOOLS_DEV"] = "true"

import boto3  # noqa: E402
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response  # noqa: E402
from aws_lambda_powertools.utilities.idempotency import (  # noqa: E402
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent,
    idempotent_function,
)

# They would only repeat what a test asks for: no key, no deadline.
warnings.simplefilter("ignore")

client = boto3.client(
    "dynamodb",
    endpoint_url=sys.argv[1],
    region_name="eu-central-1",
    aws_access_key_id="test",
    aws_secret_access_key="test",
)
stores = {}


def say(answer):
    print(json.dumps(answer), flush=True)


def listen():
    return json.loads(sys.stdin.readline())


def perform(payload):
    """The body of each function: the test says how it ends."""
    say({"running": payload})
    order = listen()
    if "mutate" in order:
        payload.update(order["mutate"])
    if "raise" in order:
        raise RuntimeError(order["raise"])
    return order["return"]


class Context:
    function_name = "payments-prod"
    memory_limit_in_mb = 128
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:payments-prod"
    aws_request_id = "request"

    def __init__(self, remaining):
        self.remaining = remaining

    def get_remaining_time_in_millis(self):
        return self.remaining


def store_of(job):
    """One for each set of settings, as long as the process: what it remembers is part of what is tested."""
    settings = job.get("store", {})
    name = json.dumps([job["table"], settings], sort_keys=True)
    if name not in stores:
        stores[name] = DynamoDBPersistenceLayer(table_name=job["table"], boto3_client=client, **settings)
    return stores[name]


def config_of(job):
    config = IdempotencyConfig(**{"event_key_jmespath": "order_id", **job.get("config", {})})
    if job.get("remaining") is not None:
        config.register_lambda_context(Context(job["remaining"]))
    return config


def guarded(job):
    @idempotent_function(
        data_keyword_argument="payment",
        persistence_store=store_of(job),
        config=config_of(job),
        key_prefix=job.get("prefix"),
    )
    def charge(payment):
        return perform(payment)

    return charge


def call(job):
    return guarded(job)(payment=job["payload"])


def handler(job):
    """The whole handler, as behind an API."""

    @idempotent(persistence_store=store_of(job), config=config_of(job), key_prefix=job.get("prefix"))
    def lambda_handler(event, context):
        return perform(event)

    return lambda_handler(job["payload"], Context(job.get("remaining", 60_000)))


def batch(job):
    """A batch of SQS, each message's body a payment."""
    charge = guarded(job)
    return process_partial_response(
        event=job["payload"],
        record_handler=lambda record: charge(payment=json.loads(record.body)),
        processor=BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False),
        context=Context(60_000),
    )


def nested(job):
    """Two guarded functions that share a store, one called by the other."""
    store = store_of(job)

    @idempotent_function(data_keyword_argument="payment", persistence_store=store, config=config_of(job), key_prefix="inner")
    def inner(payment):
        return "inner result"

    @idempotent_function(data_keyword_argument="payment", persistence_store=store, config=config_of(job), key_prefix="outer")
    def outer(payment):
        return ["outer result", inner(payment=payment)]

    return outer(payment=job["payload"])


def ids(job):
    """The ids that it gives to values."""
    store = store_of(job)
    store.configure(config=IdempotencyConfig(), key_prefix=job["prefix"])
    return [store._get_hashed_idempotency_key(data=value) for value in job["payload"]]


say({"ready": True})
for line in sys.stdin:
    job = json.loads(line)
    try:
        say({"returned": globals()[job["do"]](job)})
    except Exception as error:
        say({"raised": type(error).__name__, "message": str(error)})
