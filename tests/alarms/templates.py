"""Reads the templates, with the values that `template.yaml` passes on. An intrinsic function that is not known here is an error."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


class Stack:
    """A template with its parameters, where each condition holds. `Ref` gives a resource's logical id, and `GetAtt` its attribute after it;
    before them stands the id of the stack around it."""

    def __init__(self, path, given=(), prefix=""):
        self.path, self._prefix = path, prefix
        self._template = yaml.load((ROOT / path).read_text(), _Loader)
        declared = self._template.get("Parameters", {})
        defaults = {name: one["Default"] for name, one in declared.items() if "Default" in one}
        # A template's default is the exporter's, as a test says, and the functions around it have another one.
        self.needed = {name: one for name, one in dict(given).items() if name not in defaults or name == "MetricNamespace"}
        self._values = defaults | dict(given)
        if unknown := self._values.keys() - declared.keys():
            raise KeyError(f"{path} has no parameters {unknown}")

    def with_defaults(self):
        """The same template in a stack of the user's own: given only what has no default, and where the metrics are."""
        return Stack(self.path, self.needed, self._prefix)

    def default(self, parameter):
        """A parameter's default; None where there is no such parameter, or it has none."""
        return self._template.get("Parameters", {}).get(parameter, {}).get("Default")

    def resources(self, kind):
        """The resources of a type: their logical ids and unresolved definitions."""
        return {name: one for name, one in self._template["Resources"].items() if one["Type"] == kind}

    def variables(self, function):
        """The variables of a function's resource, with those that all functions have."""
        everywhere = self._template.get("Globals", {}).get("Function", {})
        return self.value({name: one for part in (everywhere, function["Properties"]) for name, one in part["Environment"]["Variables"].items()})

    def nested(self):
        return [self._stack(name) for name in self.resources("AWS::CloudFormation::Stack")]

    def alarms(self):
        """The properties of each alarm, those of nested stacks among them, by physical name."""
        own = self.resources("AWS::CloudWatch::Alarm").items()
        found = {self._prefix + name: self.value(alarm["Properties"]) for name, alarm in own}
        for stack in self.nested():
            found |= stack.alarms()
        return found

    def value(self, node):
        match node:
            case list():
                return [self.value(one) for one in node]
            case {"Ref": name} | {"Fn::GetAtt": name}:
                return self._named(name)
            case {"Fn::Sub": [text, more]}:
                return self._sub(text, self.value(more))
            case {"Fn::Sub": text}:
                return self._sub(text, {})
            case {"Fn::Join": [between, parts]}:
                return between.join(self.value(parts))
            case {"Fn::If": [_, yes, _]}:
                return self.value(yes)
            case dict():
                if unknown := [name for name in node if name.startswith("Fn::")]:
                    raise KeyError(f"{self.path}: {unknown}")
                return {name: self.value(one) for name, one in node.items()}
        return node

    def _named(self, name):
        if name in self._values:
            value, declared = self._values[name], self._template["Parameters"][name]
            return value.split(",") if declared["Type"] == "CommaDelimitedList" else value
        resource, *attribute = name.split(".", 1)
        if attribute and attribute[0].startswith("Outputs."):
            nested = self._stack(resource)
            return nested.value(nested._template["Outputs"][attribute[0].removeprefix("Outputs.")]["Value"])
        if resource not in self._template["Resources"] and not name.startswith("AWS::"):
            raise KeyError(f"{self.path}: {name}")
        return self._prefix + name

    def _sub(self, text, more):
        return re.sub(r"\$\{([^}]*)\}", lambda found: str(more[found[1]] if found[1] in more else self._named(found[1])), text)

    def _stack(self, name):
        properties = self._template["Resources"][name]["Properties"]
        return Stack(properties["TemplateURL"], self.value(properties.get("Parameters", {})), f"{self._prefix}{name}/")


class _Loader(yaml.SafeLoader):
    """Reads the short form of the intrinsic functions."""


def _intrinsic(loader, suffix, node):
    construct = {yaml.ScalarNode: loader.construct_scalar, yaml.SequenceNode: lambda node: loader.construct_sequence(node, deep=True)}
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": construct[type(node)](node)}


_Loader.add_multi_constructor("!", _intrinsic)
