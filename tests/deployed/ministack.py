"""Starts ministack, and makes up for what it lacks. Run by ministack's own Python.

- It refuses a template's alarm on metric math, which AWS takes. Here such an alarm becomes one on its first plain metric, so that the
  template can stay as it is: that the alarm exists, tells somebody and says what missing data means can be seen; its arithmetic
  is evaluated by `tests/alarms`.
- A number that reaches an event source mapping by a template's parameter stays text, and then stops the mapping.

And it is quicker than AWS: a message that a function reports as failed comes again after some seconds, and not after the queue's visibility
timeout. That one can be long then, as on AWS: it is for functions that are killed, whose claims last until then.
"""

import sys
import time

from ministack.app import main
from ministack.services import lambda_svc
from ministack.services.cloudformation import provisioners

# Seconds. An attempt that is under way ends before its duplicates were received too often: `stack.py` has its timeout.
REDELIVERY = 5

record = provisioners._cw_metric_alarm_record


def without_metric_math(name, properties):
    queries = [query["MetricStat"] for query in properties.get("Metrics") or [] if "MetricStat" in query]
    if queries:
        plain = {key: value for key, value in properties.items() if key != "Metrics"}
        first = queries[0]
        properties = plain | first["Metric"] | {"Period": first["Period"], "Statistic": first["Stat"]}
    return record(name, properties)


concurrency = lambda_svc._sqs_esm_concurrency


def with_a_number(mapping, *others):
    scaling = {name: int(value) for name, value in (mapping.get("ScalingConfig") or {}).items()}
    return concurrency(mapping | {"ScalingConfig": scaling}, *others)


run = lambda_svc._run_sqs_batch


def with_quick_redelivery(mapping, function, event, batch, *queue):
    run(mapping, function, event, batch, *queue)
    if mapping["LastProcessingResult"] != "FAILED":
        soon = time.time() + REDELIVERY
        for record, message in zip(event["Records"], batch, strict=True):
            if message["receipt_handle"] == record["receiptHandle"]:
                message["visible_at"] = min(message["visible_at"], soon)


lambda_svc._sqs_esm_concurrency = with_a_number
lambda_svc._run_sqs_batch = with_quick_redelivery
provisioners._cw_metric_alarm_record = without_metric_math
sys.exit(main())
