"""Evaluates CloudWatch's metric math, as far as the templates use it; whatever else stands in an expression is an error.

A time series is a dictionary from its timestamps to its values: a timestamp that is not in it has no data point. What becomes of missing
ones is documented on https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html.
"""

import operator
import re

TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[<>=!]=|[-+*/<>(),]))")
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
COMPARISONS = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}


class NotUnderstood(Exception):
    """An alarm, or its expression, has something that this evaluator doesn't know."""


class Expression:
    """A parsed expression."""

    def __init__(self, text):
        self._text, self._tokens = text, list(_tokens(text))
        self._tree = self._comparison()
        if self._tokens:
            raise NotUnderstood(f"{text}: {self._tokens[0]}")

    def value(self, named, metrics, timestamps):
        """The series that it gives. `named` finds a series by its id, `metrics` are those of METRICS()."""
        value = _Evaluation(named, metrics, timestamps).of(self._tree)
        if not isinstance(value, dict):
            raise NotUnderstood(f"{self._text} gives no time series")
        return value

    def _comparison(self):
        return self._binary(COMPARISONS, lambda: self._binary(("+", "-"), lambda: self._binary(("*", "/"), self._operand)))

    def _binary(self, signs, operand):
        tree = operand()
        while self._tokens and self._tokens[0] in signs:
            tree = (self._tokens.pop(0), tree, operand())
        return tree

    def _operand(self):
        token = self._take()
        if isinstance(token, float):
            return token
        if token == "(":
            tree = self._comparison()
            self._expect(")")
            return tree
        if not token.isidentifier():
            raise NotUnderstood(f"{self._text}: {token}")
        if not self._tokens or self._tokens[0] != "(":
            return ("id", token)
        self._take()
        arguments = []
        while self._tokens and self._tokens[0] != ")":
            if arguments:
                self._expect(",")
            arguments.append(self._comparison())
        self._expect(")")
        return ("call", token, arguments)

    def _take(self):
        if not self._tokens:
            raise NotUnderstood(f"{self._text} ends too early")
        return self._tokens.pop(0)

    def _expect(self, sign):
        token = self._take()
        if token != sign:
            raise NotUnderstood(f"{self._text}: {token} instead of {sign}")


class _Evaluation:
    def __init__(self, named, metrics, timestamps):
        self._named, self._metrics, self._timestamps = named, metrics, timestamps

    def of(self, tree):
        if isinstance(tree, float):
            return tree
        if tree[0] == "id":
            return self._named(tree[1])
        if tree[0] == "call":
            return self._call(tree[1], [self.of(argument) for argument in tree[2]])
        return _calculated(tree[0], self.of(tree[1]), self.of(tree[2]))

    def _call(self, name, arguments):
        match name, arguments:
            case "METRICS", []:
                return self._metrics
            case "SUM", [list() as many]:
                stamps = set().union(*many)
                return {at: sum(one.get(at, 0) for one in many) for at in stamps}
            case "FILL", [dict() as series, float() as filler]:
                return self._filled(series, filler)
            case "FILL", [list() as many, float() as filler]:
                return [self._filled(series, filler) for series in many]
            case "IF", [dict() as condition, (dict() | float()) as yes, (dict() | float()) as no]:
                return _chosen(condition, yes, no)
        raise NotUnderstood(f"{name} of {[type(argument).__name__ for argument in arguments]}")

    def _filled(self, series, filler):
        return {at: series.get(at, filler) for at in self._timestamps}


def _tokens(text):
    at = 0
    while text[at:].strip():
        found = TOKEN.match(text, at)
        if not found:
            raise NotUnderstood(f"{text}: {text[at:]}")
        at = found.end()
        yield float(found["number"]) if found["number"] else found["name"] or found["sign"]


def _calculated(sign, left, right):
    """A missing value counts as zero beside one that is there; a division by zero gives no data point."""
    if isinstance(left, list) or isinstance(right, list) or not (isinstance(left, dict) or isinstance(right, dict)):
        raise NotUnderstood(f"{sign} needs a time series, and takes no array of them")
    at = lambda value, stamp: value.get(stamp, 0) if isinstance(value, dict) else value
    stamps = set().union(*(value for value in (left, right) if isinstance(value, dict)))
    pairs = {stamp: (at(left, stamp), at(right, stamp)) for stamp in stamps}
    if sign in COMPARISONS:
        return {stamp: float(COMPARISONS[sign](*pair)) for stamp, pair in pairs.items()}
    return {stamp: ARITHMETIC[sign](*pair) for stamp, pair in pairs.items() if sign != "/" or pair[1] != 0}


def _chosen(condition, yes, no):
    """Where the condition holds, a missing value counts as zero; where it doesn't, there is no data point then."""
    chosen = {}
    for stamp, holds in condition.items():
        if holds:
            chosen[stamp] = yes.get(stamp, 0) if isinstance(yes, dict) else yes
        elif not isinstance(no, dict):
            chosen[stamp] = no
        elif stamp in no:
            chosen[stamp] = no[stamp]
    return chosen
