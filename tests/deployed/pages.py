"""The commands that a page has for the AWS CLI, as calls of boto3."""

import json
import re
import shlex

from deployed.stack import ROOT


def dynamodb_commands(page, table):
    """The commands on one table of the page: (operation, arguments), with the page's `…` in them."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    for line in re.findall(r"^aws dynamodb (.*)$", text, re.MULTILINE):
        operation, *words = shlex.split(line, comments=True)
        arguments = dict(zip(words[::2], words[1::2], strict=True))
        if arguments.get("--table-name") == table:
            yield operation.replace("-", "_"), {camel(name): value(text) for name, text in arguments.items()}


def camel(option):
    return "".join(word.capitalize() for word in option.removeprefix("--").split("-"))


def value(text):
    return json.loads(text) if text.startswith("{") else text
