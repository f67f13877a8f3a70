"""Each alarm fires on its bad day, is OK again when that is over, and fires on no good day."""

import copy
import functools
import unittest

from alarms import days
from alarms.cloudwatch import Alarm, NotUnderstood
from alarms.templates import ROOT, Stack

STACK = days.deployed()
SERVICE = days.Service(STACK)
ALARMS = STACK.alarms()
GOOD = days.Day.good(SERVICE)


def play(alarm, day):
    """Whether the alarm fired on this day, and its last state."""
    states = alarm.states(day.metrics, days.LENGTH)
    return "ALARM" in states, states[-1]


@functools.cache
def bad_days(name):
    """The bad days of an alarm, each with the names of the other alarms that fire on it."""
    bad = []
    for make_bad, others in days.bad_days(name):
        day = days.Day(SERVICE, GOOD)
        make_bad(day, days.subject(ALARMS[name]))
        bad.append((day, {name.rpartition("/")[0] + "/" + other for other in others}))
    return bad


def defect_found(name, properties):
    """What the days show to be wrong with this alarm, had it these properties; `None` where nothing is."""
    try:
        alarm = Alarm(properties)
        if play(alarm, GOOD)[0]:
            return "fires on a good day"
        for day, _ in bad_days(name):
            fired, at_last = play(alarm, day)
            if not fired:
                return "does not fire on its bad day"
            if at_last != "OK":
                return f"is {at_last} when its bad day is over"
    except NotUnderstood as error:
        return f"is not understood: {error}"
    return None


def metrics_of(properties):
    """Where an alarm names its metrics."""
    return [query["MetricStat"]["Metric"] for query in properties.get("Metrics", []) if "MetricStat" in query] or [properties]


def defects(properties):
    """The alarm with one defect at a time: what the defect is, and the properties."""

    def changed(what, change):
        spoiled = copy.deepcopy(properties)
        change(spoiled)
        return what, spoiled

    flipped = properties["ComparisonOperator"].replace("Greater", "Less")
    yield changed("the operator flipped", lambda alarm: alarm.update(ComparisonOperator=flipped))
    absurd = float(properties["Threshold"]) * 1_000 or 1_000_000
    yield changed("the threshold a thousandfold", lambda alarm: alarm.update(Threshold=absurd))
    yield changed("a thousand periods", lambda alarm: alarm.update(EvaluationPeriods=1_000))
    for place, metric in enumerate(metrics_of(properties)):
        for member in ("Namespace", "MetricName"):
            wrong = metric[member] + "x"
            yield changed(f"{member} {wrong}", lambda alarm: metrics_of(alarm)[place].update({member: wrong}))
        for member in ("Name", "Value"):
            wrong = metric["Dimensions"][0][member] + "x"
            yield changed(
                f"the dimension's {member} {wrong}",
                lambda alarm: metrics_of(alarm)[place]["Dimensions"][0].update({member: wrong}),
            )
        more = {"Name": "operation", "Value": "refund"}
        yield changed("one dimension more", lambda alarm: metrics_of(alarm)[place]["Dimensions"].append(more))


class Alarms(unittest.TestCase):
    def test_each_alarm_fires_on_its_bad_day_and_is_ok_when_that_is_over(self):
        alarms = {name: Alarm(properties) for name, properties in ALARMS.items()}
        for name in ALARMS:
            for day, others in bad_days(name):
                with self.subTest(name):
                    states = {other: play(alarm, day) for other, alarm in alarms.items()}
                    self.assertEqual({other for other, (fired, _) in states.items() if fired}, {name} | others)
                    self.assertEqual({at_last for fired, at_last in states.values() if fired}, {"OK"})

    def test_no_alarm_fires_on_a_good_day(self):
        fired = [name for name, properties in ALARMS.items() if play(Alarm(properties), GOOD)[0]]
        self.assertEqual(fired, [])

    def test_each_alarm_has_a_bad_day_and_each_bad_day_an_alarm(self):
        self.assertEqual({name.rsplit("/", 1)[-1] for name in ALARMS}, set(days.BAD_DAYS))

    def test_the_stack_has_the_alarms_of_every_template(self):
        templates = {str(path.relative_to(ROOT)): Stack(str(path.relative_to(ROOT))) for path in (ROOT / "infra").glob("*.yaml")}
        with_alarms = {path for path, stack in templates.items() if stack.resources("AWS::CloudWatch::Alarm")}
        nested = {stack.path for stack in STACK.nested().values()}
        self.assertEqual(with_alarms - nested, set())

    def test_every_engine_queue_stream_relay_table_and_asynchronous_function_has_its_alarms(self):
        watched = {days.subject(properties) for properties in ALARMS.values()}
        queues = {name for pair in SERVICE.queues.items() for name in pair}
        streams = {name for pair in SERVICE.readers.items() for name in pair}
        invoked = {name for pair in SERVICE.asynchronous.items() for name in pair}
        self.assertEqual(watched, {*SERVICE.namespaces, *queues, *streams, *invoked, *SERVICE.relays, *SERVICE.audits, SERVICE.records})

    def test_each_alarm_notifies_the_topic(self):
        for name, properties in ALARMS.items():
            self.assertEqual(properties["AlarmActions"], ["AlarmTopic"], name)


class Defects(unittest.TestCase):
    """The days show the defects of an alarm that is wrong."""

    def test_the_alarms_have_no_defect(self):
        for name, properties in ALARMS.items():
            self.assertIsNone(defect_found(name, properties), name)

    def test_the_alarms_have_no_defect_with_the_defaults_of_their_templates(self):
        alarms = {}
        for stack in STACK.nested().values():
            alarms |= stack.with_defaults().alarms() if stack.alarms() else {}
        self.assertEqual(set(alarms), set(ALARMS))
        for name, properties in alarms.items():
            self.assertIsNone(defect_found(name, properties), name)

    def test_each_defect_of_each_alarm_is_noticed(self):
        tried = 0
        for name, properties in ALARMS.items():
            for what, spoiled in defects(properties):
                tried += 1
                with self.subTest(name, defect=what):
                    self.assertIsNotNone(defect_found(name, spoiled))
        self.assertGreaterEqual(tried, 8 * len(ALARMS))

    def test_missing_data_that_breaches_is_noticed(self):
        for name, properties in ALARMS.items():
            if "MetricName" in properties:
                self.assertIsNotNone(defect_found(name, properties | {"TreatMissingData": "breaching"}), name)

    def test_another_number_of_throttled_minutes_is_noticed(self):
        (name,) = (name for name in ALARMS if name.endswith("/Throttled"))
        for points in (1, 3):
            self.assertIsNotNone(defect_found(name, ALARMS[name] | {"DatapointsToAlarm": points}), points)

    def test_what_is_not_known_is_an_error(self):
        name, properties = next(iter(ALARMS.items()))
        for unknown in ({"Unit": "Count"}, {"Statistic": "p99"}, {"TreatMissingData": "missing"}, {"Period": 10}):
            self.assertIn("is not understood", defect_found(name, properties | unknown), unknown)


if __name__ == "__main__":
    unittest.main()
