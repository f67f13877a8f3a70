"""The days that the alarms are tested with: a good one, and a bad one for each alarm.

What the functions count comes from `emitted.json`, which a test of `crates/emf/` compares with what the library and its exporter
really emit. What SQS, Lambda and DynamoDB report has the names and dimensions of their documentation.
"""

import json
import re

from alarms.cloudwatch import Metrics
from alarms.templates import ROOT, Stack, Unresolvable

EMITTED = json.loads((ROOT / "tests/alarms/emitted.json").read_text())

# In minutes. Until the morning hardly anything happens.
LENGTH, MORNING, TROUBLE = 360, 60, 180


class Service:
    """What reports metrics in the deployed stack, by physical name."""

    def __init__(self, stack):
        functions = stack.resources("AWS::Serverless::Function")
        self.namespaces = sorted(filter(None, map(_namespace, functions.values())))
        self.relays = sorted(name for name, function in functions.items() if _has_event(function, "DynamoDB"))
        # Each function that reads a stream, with the queue of what its mapping discards.
        self.readers = {name: _discarded(function) for name, function in functions.items() if _has_event(function, "Kinesis")}
        self.functions = sorted(functions)
        # Each function with settings for asynchronous invocations, with the queue of what failed.
        invoked = {name: function["Properties"].get("EventInvokeConfig") for name, function in functions.items()}
        self.asynchronous = {name: _on_failure(config) for name, config in invoked.items() if config}
        self.audits = sorted(name for name, function in functions.items() if _audits(function))
        queues = stack.resources("AWS::SQS::Queue")
        # Each queue with its dead letters.
        self.queues = {name: _dead_letters(queue) for name, queue in queues.items() if "RedrivePolicy" in queue["Properties"]}
        (self.records,) = (
            nested.prefix + table for nested in stack.nested().values() for table in nested.resources("AWS::DynamoDB::Table")
        )
        self.tables = sorted(stack.resources("AWS::DynamoDB::Table"))


class Day:
    """A day's metrics."""

    def __init__(self, service, good_day=None):
        """A day on which nothing happens, or one that is like a good one until something is added."""
        self.service, self.metrics = service, Metrics(good_day.metrics if good_day else None)

    @classmethod
    def good(cls, service):
        day = cls(service)
        day._night()
        for minute in range(MORNING, LENGTH):
            day._minute(minute)
        # One minute of throttling is no trouble yet.
        day.throttled(service.records, "ReadThrottleEvents", TROUBLE + 60)
        return day

    def emitted(self, namespace, situation, minute, times=1):
        for document in EMITTED[situation] * times:
            self.metrics.put_embedded(document | {"namespace": namespace}, minute)

    def queue(self, name, minute, visible, age):
        dimensions = {"QueueName": name}
        self.metrics.put("AWS/SQS", "ApproximateNumberOfMessagesVisible", dimensions, minute, visible)
        self.metrics.put("AWS/SQS", "ApproximateAgeOfOldestMessage", dimensions, minute, age)

    def function(self, name, metric, minute, value):
        self.metrics.put("AWS/Lambda", metric, {"FunctionName": name}, minute, value)

    def throttled(self, table, metric, minute):
        self.metrics.put("AWS/DynamoDB", metric, {"TableName": table}, minute, 3)

    def _night(self):
        """Few requests, most of them duplicates; then nothing is reported."""
        for namespace in self.service.namespaces:
            self.emitted(namespace, "execution", 5, times=2)
            self.emitted(namespace, "replay", 6, times=8)

    def _minute(self, minute):
        for namespace in self.service.namespaces:
            self.emitted(namespace, "execution", minute, times=8)
            self.emitted(namespace, "replay", minute)
            for every, situation in ((3, "in flight"), (10, "failure"), (10, "retry"), (15, "completion and replay")):
                if minute % every == 0:
                    self.emitted(namespace, situation, minute)
        for queue, dead_letters in self.service.queues.items():
            self.queue(queue, minute, visible=40, age=600)
            self.queue(dead_letters, minute, visible=0, age=0)
        for function in self.service.functions:
            # Other functions' errors are none of the relay's.
            self.function(function, "Errors", minute, 0 if function in self.service.relays else 2)
        for function in (*self.service.relays, *self.service.readers):
            self.function(function, "IteratorAge", minute, 60_000)
        for queue in (*self.service.readers.values(), *self.service.asynchronous.values()):
            self.queue(queue, minute, visible=0, age=0)
        for table in self.service.tables:
            self.throttled(table, "ReadThrottleEvents", minute)
            self.throttled(table, "WriteThrottleEvents", minute)


def bad_days(alarm):
    """How a day becomes bad for this alarm: functions of the day and the alarm's subject, and which other alarms fire then."""
    return BAD_DAYS[alarm.rsplit("/", 1)[-1]]


def subject(properties):
    """What an alarm watches: the value of the one dimension that all its metrics have."""
    metrics = [query["MetricStat"]["Metric"] for query in properties.get("Metrics", []) if "MetricStat" in query] or [properties]
    (value,) = {dimension["Value"] for metric in metrics for dimension in metric["Dimensions"]}
    return value


def _once(situation):
    return lambda day, namespace: day.emitted(namespace, situation, TROUBLE)


def _repeated(situation):
    def more(day, namespace):
        for minute in range(TROUBLE, TROUBLE + 15):
            day.emitted(namespace, situation, minute, times=3)

    return more


def _dead_letter(day, queue):
    for minute in range(TROUBLE, TROUBLE + 30):
        day.queue(queue, minute, visible=1, age=4_000)


def _old_message(day, queue):
    for minute in range(TROUBLE, TROUBLE + 10):
        day.queue(queue, minute, visible=40, age=1_200)


def _behind(day, function):
    for minute in range(TROUBLE, TROUBLE + 10):
        day.function(function, "IteratorAge", minute, 600_000)


def _failing(day, function):
    day.function(function, "Errors", TROUBLE, 1)


def _parked(day, function):
    # As tests/suite/end_to_end/outbox.rs finds it in what the relay writes.
    day.metrics.put("LambdaIdempotency", "outbox_parked", {"function": function}, TROUBLE, 1)


def _drift(day, function):
    # As tests/suite/end_to_end/drift_audit.rs finds it in what the audit writes.
    day.metrics.put("LambdaIdempotency", "drift_found", {"function": function}, TROUBLE, 1)


def _dropped(day, function):
    day.function(function, "AsyncEventsDropped", TROUBLE, 1)


def _throttled(day, table):
    day.throttled(table, "ReadThrottleEvents", TROUBLE)
    day.throttled(table, "WriteThrottleEvents", TROUBLE + 3)


# For each alarm of the templates: its bad days, and which other alarms on the same subject fire then.
BAD_DAYS = {
    "Mismatches": [(_once("mismatch"), ())],
    # A lease is lost to an attempt that took over.
    "LeasesLost": [(_once("lease lost"), ("Takeovers",))],
    "Takeovers": [(_once("takeover"), ())],
    "Interrupted": [(_once("interrupted"), ())],
    # What could not be recorded was refused, or not answered, by the store.
    "Unrecorded": [(_once("unrecorded"), ("StoreErrors",))],
    "Unreadable": [(_once("unreadable"), ())],
    "Unprotected": [(_once("unprotected"), ())],
    "StoreErrors": [(_once("store error"), ())],
    "DuplicateRatio": [(_repeated("replay"), ()), (_repeated("in flight"), ())],
    "DeadLetters": [(_dead_letter, ())],
    "OldestMessage": [(_old_message, ())],
    "Behind": [(_behind, ())],
    "Discarded": [(_dead_letter, ())],
    "Drift": [(_drift, ())],
    "Dropped": [(_dropped, ())],
    "Failed": [(_dead_letter, ())],
    "Failing": [(_failing, ())],
    "Parked": [(_parked, ())],
    "Throttled": [(_throttled, ())],
}


def _namespace(function):
    """The namespace that a function's source gives its engine; `None` where it has no engine."""
    properties = function["Properties"]
    if "METRIC_NAMESPACE" in properties.get("Environment", {}).get("Variables", {}):
        raise Unresolvable("METRIC_NAMESPACE is set: emitted.json has the default")
    source = (ROOT / properties["CodeUri"] / "src/main.rs").read_text()
    if "Idempotency::builder" not in source:
        return None
    (namespace,) = re.findall(r'\.namespace\("([^"]+)"\)', source)
    return namespace


def _has_event(function, kind):
    return any(event["Type"] == kind for event in function["Properties"].get("Events", {}).values())


def _audits(function):
    return "EFFECTS_TABLE" in function["Properties"].get("Environment", {}).get("Variables", {})


def _discarded(function):
    (event,) = function["Properties"]["Events"].values()
    return _on_failure(event["Properties"])


def _on_failure(properties):
    target = properties["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"]
    return target.removesuffix(".Arn")


def _dead_letters(queue):
    target = queue["Properties"]["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"]
    return target.removesuffix(".Arn")


def deployed():
    return Stack("template.yaml")
