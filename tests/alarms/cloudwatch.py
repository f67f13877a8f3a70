"""Judges an alarm by what is reported in each of its periods.

CloudWatch has many rules for missing data. Only alarms that don't need them are known here: one period decides, and missing data doesn't
breach; or an expression fills what is missing. Whatever else an alarm has is an error. The templates' expressions are expressions of Python
too: Python evaluates them, for one period at a time.
"""

import operator
import re

STATISTICS = {"Sum": sum, "Maximum": max}
OPERATORS = {"GreaterThanThreshold": operator.gt, "LessThanThreshold": operator.lt}
# The properties of an alarm that say nothing about where its data comes from.
KNOWN = "AlarmDescription AlarmActions EvaluationPeriods DatapointsToAlarm Threshold ComparisonOperator TreatMissingData".split()


class Number(float):
    """A data point. A division by zero gives none."""

    def __truediv__(self, other):
        return float(self) / other if other else None

    def __rtruediv__(self, other):
        return other / float(self) if self else None


def fill(series, filler):
    return [fill(one, filler) for one in series] if isinstance(series, list) else filler if series is None else series


class Points(dict):
    """The data points of one period, by the ids of the queries. An expression is evaluated when it is asked for."""

    def __init__(self, metrics, expressions):
        functions = {"SUM": sum, "FILL": fill, "IF": lambda condition, yes, no: yes if condition else no}
        series = {name: value if value is None else Number(value) for name, value in metrics.items()}
        super().__init__(series, METRICS=lambda: list(series.values()), **functions)
        self._expressions = dict(expressions)
        for text in expressions.values():
            if unknown := set(re.findall(r"[A-Za-z_]\w*", text)) - self.keys() - expressions.keys():
                raise NameError(f"{text}: {unknown}")

    def __missing__(self, name):
        # Taken out, so that one that needs itself is an error. So is arithmetic on a data point that is missing.
        self[name] = Number(eval(self._expressions.pop(name), {"__builtins__": {}}, self))
        return self[name]


class Alarm:
    """An alarm, by the properties of its resource. Each of its metrics is what it is reported as, and a statistic."""

    def __init__(self, properties):
        judged = {name: value for name, value in properties.items() if name not in KNOWN}
        if "Metrics" not in judged:
            metric = {name: judged.pop(name) for name in ("Namespace", "MetricName", "Dimensions")}
            judged = {"Metrics": [{"Id": "metric", "MetricStat": {"Metric": metric, "Stat": judged.pop("Statistic"), **judged}}]}
        (queries,) = judged.values()
        self.metrics = {query["Id"]: _reported(**query["MetricStat"]) for query in queries if "MetricStat" in query}
        self._expressions = {query["Id"]: query["Expression"] for query in queries if "Expression" in query}
        (self._result,) = (query["Id"] for query in queries if query.get("ReturnData", True))
        (period,) = {int(query["MetricStat"]["Period"]) for query in queries if "MetricStat" in query}
        self._operator, self._threshold = OPERATORS[properties["ComparisonOperator"]], float(properties["Threshold"])
        self._periods = int(properties["EvaluationPeriods"])
        self._breaching = int(properties.get("DatapointsToAlarm", self._periods))
        # CloudWatch ignores missing data of DynamoDB's metrics, whatever the alarm says; it would never end:
        # https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
        may_miss = self._periods == 1 and not any(namespace == "AWS/DynamoDB" for (namespace, *_), _ in self.metrics.values())
        if period % 60 or properties["TreatMissingData"] != "notBreaching" or not (self._expressions or may_miss):
            why = f"a period of {period} s, or missing data that is {properties['TreatMissingData']}, or not filled"
            raise ValueError(f"{why}: {properties['AlarmDescription']}")

    def fires(self, periods):
        """Whether it is in alarm at the end of each period, by the values of each metric in them."""
        verdicts = []
        for reported in periods:
            values = {name: (STATISTICS[stat], reported.get(metric)) for name, (metric, stat) in self.metrics.items()}
            points = {name: many and statistic(many) for name, (statistic, many) in values.items()}
            point = Points(points, self._expressions)[self._result]
            verdicts.append(point is not None and self._operator(point, self._threshold))
        return [sum(verdicts[max(0, end - self._periods) : end]) >= self._breaching for end in range(1, len(verdicts) + 1)]


def _reported(Metric, Period, Stat):
    def named(Namespace, MetricName, Dimensions):
        return Namespace, MetricName, frozenset((one["Name"], one["Value"]) for one in Dimensions)

    return named(**Metric), Stat
