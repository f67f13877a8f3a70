"""Powertools for AWS Lambda (Python) as a contender: `powertools.py ENDPOINT TABLE TEMPLATE [RECORD]`, then one job a line.

TEMPLATE is a message of SQS. With RECORD, the message's body is the data of a record of Kinesis. As its documentation shows it: BatchProcessor, and idempotent_function around the work. The payload is not validated, which spares it
a second hash.
"""

import base64
import json
import resource
import sys
import time
from pathlib import Path

import boto3
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

endpoint, table, *templates = sys.argv[1:]
template, *record_template = (Path(path).read_text(encoding="utf-8") for path in templates)

client = boto3.client(
    "dynamodb",
    endpoint_url=endpoint,
    region_name="eu-central-1",
    aws_access_key_id="bench",
    aws_secret_access_key="bench",
)
requests = 0
runs = 0


def count(**_):
    global requests
    requests += 1


client.meta.events.register("before-send.dynamodb", count)

store = DynamoDBPersistenceLayer(table_name=table, boto3_client=client)
config = IdempotencyConfig(event_key_jmespath="payment_id", expires_after_seconds=7 * 86_400)
processor = BatchProcessor(event_type=EventType.KinesisDataStreams if record_template else EventType.SQS)


@idempotent_function(data_keyword_argument="payment", config=config, persistence_store=store)
def charge(payment):
    global runs
    runs += 1
    return "done"


def handle(record):
    return charge(payment=record.kinesis.data_as_json() if record_template else json.loads(record.body))


class Context:
    function_name = "bench"
    memory_limit_in_mb = 1_769
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:bench"
    aws_request_id = "bench"

    def get_remaining_time_in_millis(self):
        return 60_000


def event(job, batch):
    """The text of a batch."""
    records = []
    for position in range(job["size"]):
        name = f"{job['prefix']}-{batch:04}-{position:05}"
        text = template.replace("{id}", name).replace("{receives}", str(job["receives"]))
        for outer in record_template:
            data = base64.b64encode(json.loads(text)["body"].encode()).decode()
            text = outer.replace("{id}", name).replace("{sequence}", f"4967{position:052}").replace("{data}", data)
        records.append(text)
    return f'{{"Records": [{",".join(records)}]}}'


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run(job):
    global requests, runs
    context = Context()
    config.register_lambda_context(context)
    requests = runs = 0
    walls = []
    used = 0
    for batch in range(job["batches"]):
        text = event(job, batch)
        # Just before the clock starts, as the runtime has just parsed the event that it hands over.
        one = None if record_template else json.loads(text)
        before = cpu()
        start = time.perf_counter()
        if record_template:
            # While the clock runs: where the peer parses an event, it decodes Base64, too.
            one = json.loads(text)
        reply = process_partial_response(event=one, record_handler=handle, processor=processor, context=context)
        walls.append(round((time.perf_counter() - start) * 1e6))
        used += cpu() - before
        assert reply == {"batchItemFailures": []}, reply
    return {"cpu_us": round(used * 1e6), "wall_us": walls, "ran": runs, "requests": requests}


for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
