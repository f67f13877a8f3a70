"""Each alarm looks at a metric that exists, fires on its bad days, is OK again when they are over, and fires on no good day."""

import json
import re
import unittest
from collections import defaultdict

from alarms.cloudwatch import Alarm, Points
from alarms.templates import ROOT, Stack

STACK = Stack("template.yaml")
FUNCTION, QUEUE, ALARM = "AWS::Serverless::Function", "AWS::SQS::Queue", "AWS::CloudWatch::Alarm"
SEARCH = r"""SEARCH\('\{"([^"]+)",([\w,]+)\} MetricName="(\w+)" namespace=\("([^)]+)"\)', '(\w+)', (\d+)\)"""
# The CloudWatch namespace of the functions' metrics, which alarms and dashboard are given.
(OURS,) = {STACK.variables(function)["METRIC_NAMESPACE"] for function in STACK.resources(FUNCTION).values()}
# A test of crates/emf compares it with what the library and its exporter emit.
EMITTED = json.loads((ROOT / "tests/alarms/emitted.json").read_text())
# The services' own metrics, with the statistics that their documentation calls useful.
OF_AWS = """
    AWS/SQS QueueName Maximum ApproximateNumberOfMessagesVisible ApproximateNumberOfMessagesNotVisible ApproximateAgeOfOldestMessage
    AWS/ApiGateway ApiId Sum 5xx
    AWS/Lambda FunctionName Sum Errors Throttles AsyncEventsDropped
    AWS/Lambda FunctionName Maximum IteratorAge
    AWS/Lambda FunctionName p50,p99 Duration
    AWS/DynamoDB TableName Sum ReadThrottleEvents WriteThrottleEvents ConditionalCheckFailedRequests
    AWS/DynamoDB TableName Sum ConsumedReadCapacityUnits ConsumedWriteCapacityUnits
"""


def readings():
    """Each metric that there is, as it can be read: its namespace and name, the names of its dimensions, and a statistic."""
    for line in OF_AWS.strip().splitlines():
        namespace, dimension, statistics, *names = line.split()
        yield from ((namespace, name, (dimension,), statistic) for name in names for statistic in statistics.split(","))
    # A test of the suite compares the page with the code.
    page = (ROOT / "docs/reference/metrics.md").read_text()
    for kind, table in re.findall(r"^\| (counter|histogram) \|(.*?)\n\n", page, re.DOTALL | re.MULTILINE):
        for name in re.findall(r"^\| `(\w+)`", table, re.MULTILINE):
            sets = [("namespace",), ("namespace", "operation")] if name.startswith("idempotency_") else [("function",)]
            statistics = ["Sum"] if kind == "counter" else ["p50", "p99"]
            yield from ((OURS, name, dimensions, statistic) for dimensions in sets for statistic in statistics)


READINGS = set(readings())


def watched(stack):
    """Which alarms the stack must have, and on what."""
    queue = lambda arn: arn.removesuffix(".Arn") + ".QueueName"
    failures = lambda properties: queue(properties["DestinationConfig"]["OnFailure"]["Destination"])
    found = {("Throttled", "Idempotency/Table")}
    for name, resource in stack.resources(QUEUE).items():
        if redrive := stack.value(resource["Properties"].get("RedrivePolicy")):
            found |= {("OldestMessage", f"{name}.QueueName"), ("DeadLetters", queue(redrive["deadLetterTargetArn"]))}
    for integration in stack.resources("AWS::ApiGatewayV2::Integration").values():
        properties = stack.value(integration["Properties"])
        found.add(("ServerErrors", properties["ApiId"]))
        # One that goes to a queue has no function.
        if function := properties.get("IntegrationUri"):
            found.add(("Failing", function.removesuffix(".Arn")))
    for name, resource in stack.resources(FUNCTION).items():
        properties = stack.value(resource["Properties"])
        source = (ROOT / properties["CodeUri"] / "src/main.rs").read_text()
        if "Idempotency::builder" in source:
            (namespace,) = re.findall(r'\.namespace\("([^"]+)"\)', source)
            found |= {(alarm, namespace) for alarm in Stack("infra/alarms.yaml").resources(ALARM)}
        events = {event["Type"]: event["Properties"] for event in properties.get("Events", {}).values()}
        if "DynamoDB" in events:
            found |= {("Behind", name), ("Failing", name), ("Parked", name)}
        if "Kinesis" in events:
            found |= {("Behind", name), ("Discarded", failures(events["Kinesis"]))}
        if invoked := properties.get("EventInvokeConfig"):
            found |= {("Dropped", name), ("Failed", failures(invoked))}
        if "EFFECTS_TABLE" in properties["Environment"]["Variables"]:
            found |= {("Drift", name), ("Failing", name)}
    return found


def reported(namespace, dimension, **values):
    return lambda subject: {(namespace, name, frozenset({(dimension, subject)})): [value] * 2 for name, value in values.items()}


def queue(visible, age):
    return reported("AWS/SQS", "QueueName", ApproximateNumberOfMessagesVisible=visible, ApproximateAgeOfOldestMessage=age)


def function(**values):
    return reported("AWS/Lambda", "FunctionName", **values)


def emitted(**times):
    """What an engine with a namespace emits where each situation happens so often."""

    def by_namespace(namespace):
        found = defaultdict(list)
        for document in (one for situation, many in times.items() for one in EMITTED[situation.replace("_", " ")] * many):
            document = document | {"namespace": namespace}
            (directive,) = document["_aws"]["CloudWatchMetrics"]
            for names in directive["Dimensions"]:
                dimensions = frozenset((name, document[name]) for name in names)
                for metric in directive["Metrics"]:
                    found[OURS, metric["Name"], dimensions].append(document[metric["Name"]])
        return found

    return by_namespace


NOTHING = emitted()
THROTTLED = reported("AWS/DynamoDB", "TableName", ReadThrottleEvents=3)
# By alarm: what its subject reports in each period of a good day, and its bad days, period by period.
DAYS = {
    "Mismatches": (NOTHING, [emitted(mismatch=1)]),
    "LeasesLost": (NOTHING, [emitted(lease_lost=1)]),
    "Takeovers": (NOTHING, [emitted(takeover=1)]),
    "SideEffectDuplicates": (NOTHING, [emitted(side_effect_duplicate=1)]),
    "Interrupted": (NOTHING, [emitted(interrupted=1)]),
    "Unrecorded": (NOTHING, [emitted(unrecorded=1)]),
    "Unreadable": (NOTHING, [emitted(unreadable=1)]),
    "Unprotected": (NOTHING, [emitted(unprotected=1)]),
    "StoreErrors": (NOTHING, [emitted(store_error=1)]),
    "DuplicateRatio": (emitted(execution=120, replay=15, in_flight=5, failure=2), [emitted(replay=45)], [emitted(in_flight=45)]),
    "DeadLetters": (queue(0, 0), [queue(1, 4_000)]),
    "OldestMessage": (queue(40, 600), [queue(40, 1_200)]),
    "Behind": (function(IteratorAge=60_000), [function(IteratorAge=600_000)]),
    "Discarded": (queue(0, 0), [queue(1, 4_000)]),
    "Failing": (function(Errors=0), [function(Errors=1)]),
    "ServerErrors": (reported("AWS/ApiGateway", "ApiId", **{"5xx": 0}), [reported("AWS/ApiGateway", "ApiId", **{"5xx": 1})]),
    # As tests/suite/end_to_end/ finds it in what the relay and the audit write.
    "Parked": (NOTHING, [reported(OURS, "function", outbox_parked=1)]),
    "Drift": (NOTHING, [reported(OURS, "function", drift_found=1)]),
    "Dropped": (NOTHING, [function(AsyncEventsDropped=1)]),
    "Failed": (queue(0, 0), [queue(1, 4_000)]),
    "Throttled": (NOTHING, [THROTTLED, NOTHING, NOTHING, THROTTLED]),
}
# A lease is lost to an attempt that took over. What could not be recorded was refused, or not answered, by the store.
ALSO = {"LeasesLost": {"Takeovers"}, "Unrecorded": {"StoreErrors"}}


def together(*reports):
    found = defaultdict(list)
    for metric, values in (one for report in reports for one in report.items()):
        found[metric] += values
    return dict(found)


def named(name, alarm):
    """An alarm's name, and what it watches: the value of the one dimension that its metrics have."""
    (value,) = {value for (_, _, dimensions), _ in alarm.metrics.values() for _, value in dimensions}
    return name.rpartition("/")[2], value


MUST_WATCH = watched(STACK)
NIGHT = together(*(emitted(execution=2, replay=8)(on) for name, on in MUST_WATCH if name == "DuplicateRatio"))
GOOD = together(*(DAYS[name][0](on) for name, on in MUST_WATCH))
# One throttled minute is no trouble yet, and other functions' errors are none of theirs.
ALSO_GOOD = together(GOOD, THROTTLED("Idempotency/Table"), function(Errors=2)("PaymentsWorker"))
A_GOOD_DAY = [{}, NIGHT, {}, GOOD, ALSO_GOOD, *[GOOD] * 5, {}]


def widgets():
    """The dashboard's, which show metrics."""
    (stack,) = (nested for nested in STACK.nested() if nested.path == "infra/dashboard.yaml")
    (dashboard,) = stack.resources("AWS::CloudWatch::Dashboard").values()
    body = json.loads(stack.value(dashboard["Properties"]["DashboardBody"]))
    return [one["properties"] for one in body["widgets"] if one["type"] == "metric"]


class Alarms(unittest.TestCase):
    alarms = {name: Alarm(properties) for name, properties in STACK.alarms().items()}

    def test_the_stack_has_each_alarm_that_it_must_have(self):
        self.assertEqual({named(name, alarm) for name, alarm in self.alarms.items()}, MUST_WATCH)
        self.assertEqual({name for name, _ in MUST_WATCH}, set(DAYS))
        files = {str(path.relative_to(ROOT)) for path in ROOT.glob("infra/*.yaml") if "::Alarm\n" in path.read_text()}
        self.assertEqual(files - {stack.path for stack in STACK.nested()}, set())

    def test_two_stacks_of_an_account_share_no_metric(self):
        # A function's dimension is the engine's namespace, which each stack has.
        self.assertEqual(OURS, "LambdaIdempotency/AWS::StackName")

    def test_the_default_namespace_is_the_exporters(self):
        # The documents were written to the exporter's own default.
        documents = (one for documents in EMITTED.values() for one in documents)
        written = {directive["Namespace"] for one in documents for directive in one["_aws"]["CloudWatchMetrics"]}
        declared = {path.name: Stack(path.relative_to(ROOT)).default("MetricNamespace") for path in ROOT.glob("infra/*.yaml")}
        declared = {name: default for name, default in declared.items() if default}
        self.assertEqual(declared.keys(), {"alarms.yaml", "audit-alarms.yaml", "dashboard.yaml", "relay-alarms.yaml"})
        self.assertEqual(set(declared.values()), written)

    def test_each_alarm_looks_at_metrics_that_there_are(self):
        for name, alarm in self.alarms.items():
            for (namespace, metric, dimensions), statistic in alarm.metrics.values():
                self.assertIn((namespace, metric, tuple(dimension for dimension, _ in dimensions), statistic), READINGS, name)

    def test_each_alarm_fires_on_its_bad_days_alone_and_not_when_they_are_over(self):
        defaults = {name: Alarm(one) for nested in STACK.nested() for name, one in nested.with_defaults().alarms().items()}
        for alarms in self.alarms, defaults:
            self.assertEqual(set(alarms), set(self.alarms))
            for name, on in MUST_WATCH:
                for bad in DAYS[name][1:]:
                    day = [*A_GOOD_DAY, *(together(GOOD, one(on)) for one in bad), *A_GOOD_DAY]
                    fired = {named(one, alarm): alarm.fires(day) for one, alarm in alarms.items()}
                    expected = {(one, on) for one in {name} | ALSO.get(name, set())}
                    self.assertEqual({one for one, fires in fired.items() if any(fires)}, expected)
                    self.assertFalse(any(fires[at] for fires in fired.values() for at in (*range(len(A_GOOD_DAY)), -1)), name)

    def test_the_dashboard_shows_metrics_that_there_are(self):
        subjects = {"Idempotency/Table", *STACK.resources(FUNCTION), *(f"{queue}.QueueName" for queue in STACK.resources(QUEUE))}
        namespaces = sorted(on for name, on in MUST_WATCH if name == "DuplicateRatio")
        shown = set()
        for widget in widgets():
            ids = {line[-1].get("id") for line in widget["metrics"]}
            for *metric, options in widget["metrics"]:
                if metric:
                    self.assertIn(metric.pop(), subjects)
                    shown.add((*metric[:2], (*metric[2:],), options["stat"]))
                    continue
                for namespace, dimensions, name, on, statistic, period in re.findall(SEARCH, options["expression"]):
                    self.assertEqual((on.split('" OR "'), int(period)), (namespaces, widget["period"]))
                    shown.add((namespace, name, (*dimensions.split(","),), statistic))
                words = set(re.findall(r"\w+", re.sub(SEARCH, "", options["expression"])))
                self.assertEqual(words - ids - {"FILL", "SUM", "0", "100"}, set())
        self.assertEqual(shown - READINGS, set())
        self.assertGreater(len(shown), 30)

    def test_each_metric_that_should_be_empty_has_an_alarm(self):
        (row,) = (widget for widget in widgets() if widget["title"] == "Should be empty")
        empty = {name for *_, options in row["metrics"] for _, _, name, *_ in re.findall(SEARCH, options["expression"])}
        self.assertEqual(len(empty), len(row["metrics"]))
        alarmed = {name for alarm in self.alarms.values() for (_, name, _), _ in alarm.metrics.values()}
        self.assertEqual(empty - alarmed, set())


class MetricMath(unittest.TestCase):
    def test_expressions_give_what_cloudwatch_documents_or_are_an_error(self):
        for text, one, two, expected in [
            ("one + 2 * two", 6, 3, 12), ("one / two", 6, 3, 2), ("IF(two >= 1, one / two, 5)", 3, 0, 5), ("IF(one >= 2, two, 5)", 2, 3, 3),
            ("FILL(one, 7)", None, 1, 7), ("FILL(one, 7)", 1, 1, 1), ("SUM(METRICS())", 4, 1, 5), ("SUM(FILL(METRICS(), 1))", 5, None, 6),
        ]:
            self.assertEqual(Points({"one": one, "two": two}, {"result": text})["result"], expected, text)
        for text in "one + two", "SUM(METRICS())", "one / 0", "SUM(one)", "RATE(one)", "one and one", "result + 1", "METRICS()", "one +":
            with self.subTest(text), self.assertRaises((TypeError, NameError, KeyError, SyntaxError)):
                Points({"one": 1, "two": None}, {"result": text})["result"]
