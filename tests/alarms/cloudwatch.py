"""Metrics by the minute, and the state of an alarm on them, by CloudWatch's documented rules.

An alarm is evaluated each minute, on windows that end then. The rules for missing data are those of
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html. A property of an alarm that is not known here
is an error, and so is a value that the rules don't cover.
"""

import operator

from alarms.metric_math import Expression, NotUnderstood

MISSING = ("notBreaching", "breaching", "ignore")
STATISTICS = {"Sum": sum, "Maximum": max, "Minimum": min, "Average": lambda values: sum(values) / len(values), "SampleCount": len}
OPERATORS = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
# In words for a person, and whom to tell: without effect on the state.
SPOKEN = {"AlarmDescription", "AlarmActions"}
JUDGEMENT = {"EvaluationPeriods", "DatapointsToAlarm", "Threshold", "ComparisonOperator", "TreatMissingData"}
PLAIN = {"Namespace", "MetricName", "Dimensions", "Statistic", "Period"}

# CloudWatch retrieves more data points than an alarm needs: 5 for 3 in the examples of its documentation, which gives no rule.
MORE = 2


class Metrics:
    """What was reported, minute by minute; on top of what `base` has."""

    def __init__(self, base=None):
        self._base, self._values, self._points = base, {}, {}

    def put(self, namespace, name, dimensions, minute, *values):
        metric = (namespace, name, frozenset(dimensions.items()))
        if metric not in self._values:
            before = self._base.of(metric) if self._base else {}
            self._values[metric] = {at: list(found) for at, found in before.items()}
        self._values[metric].setdefault(minute, []).extend(values)

    def put_embedded(self, document, minute):
        """A document in CloudWatch's embedded metric format: a metric for each set of dimensions."""
        for directive in document["_aws"]["CloudWatchMetrics"]:
            for names in directive["Dimensions"]:
                dimensions = {name: document[name] for name in names}
                for metric in directive["Metrics"]:
                    values = document[metric["Name"]]
                    values = values if isinstance(values, list) else [values]
                    self.put(directive["Namespace"], metric["Name"], dimensions, minute, *values)

    def of(self, metric):
        """The values of a metric, by the minute."""
        if metric in self._values:
            return self._values[metric]
        return self._base.of(metric) if self._base else {}

    def points(self, metric, statistic, period):
        """The data points of so many minutes each, by the minute that they end before. None where nothing was reported."""
        if self._base and metric not in self._values:
            return self._base.points(metric, statistic, period)
        wanted = (metric, statistic, period)
        if wanted not in self._points:
            windows = {}
            for minute, values in self.of(metric).items():
                for end in range(minute + 1, minute + period + 1):
                    windows.setdefault(end, []).extend(values)
            self._points[wanted] = {end: STATISTICS[statistic](values) for end, values in windows.items()}
        return self._points[wanted]


class Alarm:
    """An alarm, by the properties of its resource."""

    def __init__(self, properties):
        _only(properties, SPOKEN | JUDGEMENT | (PLAIN if "MetricName" in properties else {"Metrics"}))
        self._needed = int(properties["EvaluationPeriods"])
        self._breaching = int(properties.get("DatapointsToAlarm", self._needed))
        self._threshold = float(properties["Threshold"])
        self._operator = _known(OPERATORS, properties["ComparisonOperator"])
        self._missing = properties["TreatMissingData"]
        if self._missing not in MISSING:
            raise NotUnderstood(f"missing data that is {self._missing}")
        self._series, self._periods, self._results = {}, set(), []
        if "MetricName" in properties:
            self._add("metric", properties, properties)
            self._results.append("metric")
        else:
            for query in properties["Metrics"]:
                self._read(query)
        seconds = _one(self._periods, "period")
        self._period, self._result = seconds // 60, _one(self._results, "result")
        if seconds % 60:
            raise NotUnderstood(f"a period of {seconds} s")
        # Whatever such an alarm says, its missing data is ignored:
        # https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
        if any(isinstance(one, tuple) and one[0][0] == "AWS/DynamoDB" for one in self._series.values()):
            self._missing = "ignore"

    def _read(self, query):
        _only(query, {"Id", "Label", "ReturnData", "Expression", "MetricStat"})
        name = query["Id"]
        if name in self._series or ("Expression" in query) == ("MetricStat" in query):
            raise NotUnderstood(f"query {name}")
        if "Expression" in query:
            self._series[name] = Expression(query["Expression"])
        else:
            stat = query["MetricStat"]
            _only(stat, {"Metric", "Period", "Stat"})
            _only(stat["Metric"], {"Namespace", "MetricName", "Dimensions"})
            self._add(name, stat["Metric"], {"Period": stat["Period"], "Statistic": stat["Stat"]})
        if query.get("ReturnData", True):
            self._results.append(name)

    def _add(self, name, metric, how):
        dimensions = {}
        for dimension in metric["Dimensions"]:
            _only(dimension, {"Name", "Value"})
            dimensions[dimension["Name"]] = dimension["Value"]
        _known(STATISTICS, how["Statistic"])
        self._periods.add(int(how["Period"]))
        self._series[name] = (metric["Namespace"], metric["MetricName"], frozenset(dimensions.items())), how["Statistic"]

    def states(self, metrics, minutes):
        """Its state at the end of each minute."""
        retrieved = self._needed + MORE
        ends = range(1 - self._period * retrieved, minutes + 1)
        points = self._points(metrics, ends)
        state, states = "INSUFFICIENT_DATA", []
        for minute in range(1, minutes + 1):
            # The oldest first.
            state = self.next(state, [points.get(minute - self._period * ago) for ago in reversed(range(retrieved))])
            states.append(state)
        return states

    def _points(self, metrics, ends):
        """The data points that end with each of these minutes. What an expression makes of one is no other's concern."""

        def series(name, asking=()):
            if name in asking or name not in self._series:
                raise NotUnderstood(f"{name} is no query, or needs itself")
            one = self._series[name]
            if isinstance(one, Expression):
                return one.value(lambda other: series(other, (*asking, name)), plain, ends)
            return metrics.points(*one, self._period)

        plain = [series(name) for name, one in self._series.items() if not isinstance(one, Expression)]
        return series(self._result)

    def next(self, state, points):
        """The state after `state`, where these data points were retrieved, the oldest first; `None` for one that is missing."""
        verdicts = [self._operator(point, self._threshold) for point in points if point is not None]
        if len(verdicts) >= self._needed:
            return "ALARM" if sum(verdicts[-self._needed :]) >= self._breaching else "OK"
        filled = self._needed - len(verdicts) if self._missing == "breaching" else 0
        if sum(verdicts) + filled >= self._breaching:
            return "ALARM"
        return state if self._missing == "ignore" and all(verdicts) else "OK"


def _one(found, what):
    if len(found) != 1:
        raise NotUnderstood(f"{len(found)} different {what}s")
    return next(iter(found))


def _only(properties, known):
    unknown = set(properties) - known
    if unknown:
        raise NotUnderstood(f"properties {sorted(unknown)}")


def _known(table, name):
    if name not in table:
        raise NotUnderstood(name)
    return table[name]
