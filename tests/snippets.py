#!/usr/bin/env python3
"""Checks the snippets of docs/operations/deploy.md that define the table elsewhere: each must describe the table of infra/table.yaml.

The AWS CDK synthesises its snippet; the Terraform one is parsed, since Terraform itself would need the provider's download to say more.
Run by `scripts/deployment snippets`, in SAM's Python
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import hcl2

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/operations/deploy.md").read_text()


def snippet(language):
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"docs/operations/deploy.md has {len(found)} snippets of {language}"
    return found[0]


def facts(name, billing, ttl, recovery, protected):
    return {"partition key": name, "billing": billing, "ttl": ttl, "recovery": recovery, "protected": protected}


EXPECTED = facts([("id", "S")], "PAY_PER_REQUEST", ("expiration", True), True, True)


def of_cloudformation():
    """The template itself, read as text: it is short, and its tags need no parser then."""
    text = (ROOT / "infra/table.yaml").read_text()
    default = lambda name: re.search(rf"^  {name}:\n(?:    .*\n)*?    Default: \"(\w+)\"", text, re.MULTILINE)[1] == "true"
    name, kind = re.search(r"AttributeDefinitions: \[\{ AttributeName: (\w+), AttributeType: (\w) \}\]", text).groups()
    ttl, enabled = re.search(r"TimeToLiveSpecification: \{ AttributeName: (\w+), Enabled: (\w+) \}", text).groups()
    billing = re.search(r"BillingMode: (\w+)", text)[1]
    return facts([(name, kind)], billing, (ttl, enabled == "true"), default("PointInTimeRecovery"), default("DeletionProtection"))


def of_cdk(folder):
    program = folder / "snippet.mjs"
    program.write_text(snippet("ts") + "\nconsole.log(JSON.stringify(App.of(stack).synth().getStackByName('Payments').template));\n")
    done = subprocess.run(["node", program.name], cwd=folder, check=True, capture_output=True, text=True)
    template = json.loads(done.stdout)
    (folder / "template.json").write_text(done.stdout)
    subprocess.run([Path(sys.executable).with_name("cfn-lint"), folder / "template.json"], check=True)
    (table,) = (r["Properties"] for r in template["Resources"].values() if r["Type"] == "AWS::DynamoDB::GlobalTable")
    types = {d["AttributeName"]: d["AttributeType"] for d in table["AttributeDefinitions"]}
    keys = [(key["AttributeName"], types[key["AttributeName"]]) for key in table["KeySchema"]]
    ttl = table["TimeToLiveSpecification"]
    (replica,) = table["Replicas"]
    recovery = replica["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]
    return facts(keys, table["BillingMode"], (ttl["AttributeName"], ttl["Enabled"]), recovery, replica["DeletionProtectionEnabled"])


def plain(value):
    """A value as Terraform means it: the parser keeps the quotes of strings."""
    return value.strip('"') if isinstance(value, str) else value


def of_terraform():
    (resource,) = hcl2.loads(snippet("hcl"))["resource"]
    ((kind, tables),) = ((plain(kind), tables) for kind, tables in resource.items() if not kind.startswith("__"))
    assert kind == "aws_dynamodb_table", kind
    (table,) = (table for name, table in tables.items() if not name.startswith("__"))
    (attribute,), (ttl,), (recovery,) = table["attribute"], table["ttl"], table["point_in_time_recovery"]
    assert plain(attribute["name"]) == plain(table["hash_key"])
    return facts(
        [(plain(table["hash_key"]), plain(attribute["type"]))],
        plain(table["billing_mode"]),
        (plain(ttl["attribute_name"]), ttl["enabled"]),
        recovery["enabled"],
        table["deletion_protection_enabled"],
    )


def main():
    for name, found in (("infra/table.yaml", of_cloudformation()), ("CDK", of_cdk(Path(sys.argv[1]))), ("Terraform", of_terraform())):
        if found != EXPECTED:
            sys.exit(f"{name} describes another table:\n{found}\ninstead of\n{EXPECTED}")
    print("table.yaml, CDK and Terraform describe one table; Terraform's provider was not asked")


main()
