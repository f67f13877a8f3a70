"""The evaluator, against the examples of CloudWatch's documentation."""

import unittest

from alarms.cloudwatch import Alarm, Metrics
from alarms.metric_math import Expression, NotUnderstood

STAMPS = [1, 2, 3, 4, 5]


def series(*values):
    """`None` where there is no data point."""
    return {at: value for at, value in zip(STAMPS, values) if value is not None}


class MetricMath(unittest.TestCase):
    def value(self, text, **named):
        found = Expression(text).value(named.__getitem__, list(named.values()), STAMPS)
        return [found.get(at) for at in STAMPS]

    def test_a_condition_chooses_for_each_timestamp(self):
        one, two, three = series(1, 1, 0, 0, None), series(30, None, 0, 0, 30), series(0, 0, 20, None, 20)
        value = lambda text: self.value(text, one=one, two=two, three=three)
        self.assertEqual(value("IF(one, two, three)"), [30, 0, 20, None, None])
        self.assertEqual(value("IF(one, 5, three)"), [5, 5, 20, None, None])
        self.assertEqual(value("IF(one, two, 5)"), [30, 0, 5, 5, None])

    def test_a_comparison_takes_a_missing_value_for_zero(self):
        one, two = series(30, 20, 0, 0), series(20, None, 20, None)
        value = lambda text: self.value(text, one=one, two=two)[:4]
        self.assertEqual(value("one < two"), [0, 0, 1, 0])
        self.assertEqual(value("one >= 30"), [1, 0, 0, 0])

    def test_arithmetic_takes_a_missing_value_for_zero_and_drops_divisions_by_zero(self):
        one, two = series(6, 4, None, None, 0), series(3, None, 2, None, 0)
        value = lambda text: self.value(text, one=one, two=two)
        self.assertEqual(value("one + two"), [9, 4, 2, None, 0])
        self.assertEqual(value("one - 2 * two"), [0, 4, -4, None, 0])
        self.assertEqual(value("100 * one / two"), [200, None, 0, None, None])
        self.assertEqual(value("SUM(METRICS())"), [9, 4, 2, None, 0])

    def test_a_filled_series_has_no_holes(self):
        self.assertEqual(self.value("FILL(one, 7)", one=series(None, 1)), [7, 1, 7, 7, 7])
        self.assertEqual(self.value("SUM(FILL(METRICS(), 1))", one=series(5), two=series()), [6, 2, 2, 2, 2])

    def test_what_is_not_known_is_an_error(self):
        for text in (
            "RATE(one)", "SUM(one)", "AVG(METRICS())", "FILL(one, REPEAT)", "IF(1, one, 2)", "IF(one, 2)", "one AND one", "5", "METRICS()",
            "METRICS() / 2", "1 / 2", "-one", "one +", "one one", "(one", 'METRICS("o")', "one ^ 2", "fill(one, 0)",
        ):
            with self.subTest(text), self.assertRaises((NotUnderstood, KeyError)):
                self.value(text, one=series(1))


class MissingData(unittest.TestCase):
    """X breaches, 0 doesn't, - is missing; the oldest of the five is the first."""

    def state(self, points, datapoints, missing, namespace="App"):
        alarm = Alarm({
            "Namespace": namespace, "MetricName": "m", "Dimensions": [], "Statistic": "Sum", "Period": 60, "EvaluationPeriods": 3,
            "DatapointsToAlarm": datapoints, "Threshold": 3, "ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": missing,
        })
        values = [{"X": 9, "0": 0, "-": None}[point] for point in points.split()]
        return alarm.next("kept", values)

    def test_the_states_are_those_of_the_documentation(self):
        for datapoints, points, ignore, breaching, not_breaching in [
            (3, "0 - X - X", "OK", "OK", "OK"),
            (3, "0 - - - -", "OK", "OK", "OK"),
            (3, "- - - - -", "kept", "ALARM", "OK"),
            (3, "0 X X - X", "ALARM", "ALARM", "ALARM"),
            (3, "- - X - -", "kept", "ALARM", "OK"),
            (2, "0 - X - X", "ALARM", "ALARM", "ALARM"),
            (2, "0 0 X 0 X", "ALARM", "ALARM", "ALARM"),
            (2, "0 - X - -", "OK", "ALARM", "OK"),
            (2, "- - - - 0", "OK", "ALARM", "OK"),
            (2, "- - - X -", "kept", "ALARM", "OK"),
        ]:
            for missing, expected in [("ignore", ignore), ("breaching", breaching), ("notBreaching", not_breaching)]:
                with self.subTest(points, datapoints=datapoints, missing=missing):
                    self.assertEqual(self.state(points, datapoints, missing), expected)

    def test_dynamodb_s_missing_data_is_ignored_whatever_the_alarm_says(self):
        self.assertEqual(self.state("- - - - -", 3, "notBreaching", namespace="AWS/DynamoDB"), "kept")

    def test_windows_end_with_each_minute(self):
        metrics = Metrics()
        metrics.put("App", "m", {"name": "one"}, 3, 4, 5)
        metrics.put("App", "m", {"name": "one"}, 7, 1)
        alarm = Alarm({
            "Namespace": "App", "MetricName": "m", "Dimensions": [{"Name": "name", "Value": "one"}], "Statistic": "Sum", "Period": 120,
            "EvaluationPeriods": 1, "Threshold": 8, "ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": "notBreaching",
        })
        metric = ("App", "m", frozenset({("name", "one")}))
        self.assertEqual(metrics.points(metric, "Sum", 2), {4: 9, 5: 9, 8: 1, 9: 1})
        self.assertEqual(metrics.points(metric, "Maximum", 1), {4: 5, 8: 1})
        # Three windows of two minutes are retrieved; the newest that has data decides.
        self.assertEqual(alarm.states(metrics, 12), ["OK"] * 3 + ["ALARM"] * 4 + ["OK"] * 5)
        self.assertEqual(alarm.states(Metrics(), 2), ["OK"] * 2)

    def test_added_values_stand_beside_those_of_the_base(self):
        base = Metrics()
        base.put("App", "m", {}, 1, 2)
        more = Metrics(base)
        more.put("App", "m", {}, 1, 3)
        metric = ("App", "m", frozenset())
        self.assertEqual((base.points(metric, "Sum", 1), more.points(metric, "Sum", 1)), ({2: 2}, {2: 5}))


if __name__ == "__main__":
    unittest.main()
