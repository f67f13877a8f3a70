"""Starts ministack, and makes up for what it lacks. Run by ministack's own Python.

- It refuses a template's alarm on metric math, which AWS takes. Here such an alarm becomes one on its first plain metric, so that the
  template can stay as it is: that the alarm exists, tells somebody and says what missing data means can be seen; its arithmetic
  is evaluated by `tests/alarms`.
- A number that reaches an event source mapping by a template's parameter stays text, and then stops the mapping.
"""

import sys

from ministack.app import main
from ministack.services import lambda_svc
from ministack.services.cloudformation import provisioners

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


lambda_svc._sqs_esm_concurrency = with_a_number
provisioners._cw_metric_alarm_record = without_metric_math
sys.exit(main())
