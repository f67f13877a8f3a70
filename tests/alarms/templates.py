"""Resolves the alarms of the templates as CloudFormation does, with the values that `template.yaml` passes on.

Only the intrinsic functions that these templates use are known; any other is an error.
"""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
NO_VALUE = object()


class Unresolvable(Exception):
    """The template has something that this reader doesn't know."""


class Stack:
    """One template with its parameters. A resource's physical name is its logical one, after those of the stacks around it."""

    def __init__(self, path, parameters=None, prefix=""):
        self.path, self.prefix, self._given = path, prefix, parameters or {}
        self._template = yaml.load((ROOT / path).read_text(), _Loader)
        unknown = set(self._given) - set(self._template.get("Parameters", {}))
        if unknown:
            raise Unresolvable(f"{path} has no parameters {unknown}")

    def with_defaults(self):
        """The same template, given only what has no default: as in a stack of the user's own."""
        parameters = self._template.get("Parameters", {}).items()
        needed = [name for name, parameter in parameters if "Default" not in parameter]
        return Stack(self.path, {name: self._given[name] for name in needed}, self.prefix)

    def resources(self, kind):
        """The resources of a type: their logical ids and unresolved definitions."""
        found = self._template["Resources"].items()
        return {name: resource for name, resource in found if resource["Type"] == kind}

    def nested(self):
        """The stacks in this one, by their logical ids."""
        return {name: self._stack(name) for name in self.resources("AWS::CloudFormation::Stack")}

    def alarms(self):
        """The properties of each alarm, those of nested stacks among them, by physical name."""
        own = self.resources("AWS::CloudWatch::Alarm").items()
        alarms = {self.prefix + name: self.resolve(alarm["Properties"]) for name, alarm in own}
        for stack in self.nested().values():
            alarms |= stack.alarms()
        return alarms

    def output(self, name):
        return self.resolve(self._template["Outputs"][name]["Value"])

    def resolve(self, value):
        if isinstance(value, list):
            resolved = [self.resolve(one) for one in value]
            return [one for one in resolved if one is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, argument),) = value.items()
            if name == "Ref":
                return self._ref(argument)
            if name.startswith("Fn::"):
                return self._function(name, argument)
        resolved = {name: self.resolve(one) for name, one in value.items()}
        return {name: one for name, one in resolved.items() if one is not NO_VALUE}

    def _ref(self, name):
        if name == "AWS::NoValue":
            return NO_VALUE
        if name in self._given:
            return self._given[name]
        if name in self._template.get("Parameters", {}):
            parameter = self._template["Parameters"][name]
            if "Default" not in parameter:
                raise Unresolvable(f"{self.path}: nothing is given for {name}")
            return parameter["Default"]
        if name in self._template["Resources"]:
            return self.prefix + name
        raise Unresolvable(f"{self.path}: Ref {name}")

    def _function(self, name, argument):
        if name == "Fn::GetAtt":
            return self._attribute(*argument.split(".", 1))
        if name == "Fn::Sub" and isinstance(argument, str):
            return re.sub(r"\$\{([^}]*)\}", lambda found: str(self._ref(found[1])), argument)
        if name == "Fn::If":
            condition, yes, no = argument
            return self.resolve(yes if self._condition(self._template["Conditions"][condition]) else no)
        raise Unresolvable(f"{self.path}: {name}")

    def _attribute(self, resource, attribute):
        if resource not in self._template["Resources"]:
            raise Unresolvable(f"{self.path}: {resource} is no resource")
        if attribute.startswith("Outputs."):
            return self._stack(resource).output(attribute.removeprefix("Outputs."))
        if attribute in ("QueueName", "Arn"):
            return self.prefix + resource
        raise Unresolvable(f"{self.path}: {resource}.{attribute}")

    def _condition(self, condition):
        ((name, argument),) = condition.items()
        if name == "Fn::Not":
            return not self._condition(*argument)
        if name == "Fn::Equals":
            one, other = self.resolve(argument)
            return one == other
        raise Unresolvable(f"{self.path}: {name}")

    def _stack(self, name):
        properties = self._template["Resources"][name]["Properties"]
        parameters = properties.get("Parameters", {})
        # Resolved when they are asked for: another stack's outputs may be among them.
        return Stack(properties["TemplateURL"], _Lazy(self, parameters), f"{self.prefix}{name}/")


class _Lazy(dict):
    """The parameters of a nested stack, resolved in the stack around it."""

    def __init__(self, stack, parameters):
        super().__init__(parameters)
        self._stack = stack

    def __getitem__(self, name):
        return self._stack.resolve(super().__getitem__(name))


class _Loader(yaml.SafeLoader):
    """Reads the short form of the intrinsic functions."""


def _intrinsic(loader, suffix, node):
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        return {name: loader.construct_scalar(node)}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: loader.construct_mapping(node, deep=True)}


_Loader.add_multi_constructor("!", _intrinsic)
