"""What docs/operations says about the templates is what the templates say."""

import os
import re
import subprocess
import tempfile
import textwrap
import unittest
from pathlib import Path

import hcl2
import yaml

from alarms.templates import ROOT, Stack, _Loader

STACK = Stack("template.yaml")
NESTED = {stack.path: stack for stack in STACK.nested()}
DEPLOY = (ROOT / "docs/operations/deploy.md").read_text()
FUNCTION, QUEUE, TABLE, STREAM = "AWS::Serverless::Function", "AWS::SQS::Queue", "AWS::DynamoDB::Table", "AWS::Kinesis::Stream"
DAY = 86_400
NUMBERS = "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen".split()

# What the page's function has in common with any other.
MANAGED = """
AWSTemplateFormatVersion: "2010-09-09"
Transform: AWS::Serverless-2016-10-31
Parameters:
  CapacityProviderArn: { Type: String }
Globals: { Function: { CodeUri: ., Runtime: provided.al2023, Handler: bootstrap, Architectures: [arm64] } }
Resources:
"""


def properties(kind):
    return {name: STACK.value(one["Properties"]) for name, one in STACK.resources(kind).items()}


def statements(function):
    for policy in function["Policies"]:
        yield from policy["Statement"] if isinstance(policy, dict) else ()


def rows(page, heading):
    """The cells of the table that has this heading."""
    found = re.search(rf"^\| {re.escape(heading)} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", page, re.MULTILINE)[1]
    return [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in found.splitlines()]


class Deploy(unittest.TestCase):
    def test_each_parameter_has_the_default_that_the_page_says(self):
        functions, streams = properties(FUNCTION), properties(STREAM)
        kinesis = next(one["Properties"] for one in functions["StockMovements"]["Events"].values() if one["Type"] == "Kinesis")
        invoked = functions["Settlements"]["EventInvokeConfig"]
        (stream,) = streams.values()
        (retention,) = {one["MessageRetentionPeriod"] for one in properties(QUEUE).values()}
        value = STACK.value
        expected = {
            "`FunctionTimeout`": f"{value({'Ref': 'FunctionTimeout'})} s",
            "`VisibilityTimeout`": f"{value({'Ref': 'VisibilityTimeout'})} s",
            "`MaxReceiveCount`": f"{value({'Ref': 'MaxReceiveCount'})}",
            "`RetentionDays`": f"{value({'Ref': 'RetentionDays'})}",
            "queue and dead-letter retention": f"{retention // DAY} days",
            "stream: retention": f"{stream['RetentionPeriodHours']} h",
            "stream: `MaximumRecordAgeInSeconds`": f"{kinesis['MaximumRecordAgeInSeconds'] // 3_600} h",
            "stream: `MaximumRetryAttempts`": f"{kinesis['MaximumRetryAttempts']}",
            "settlements: `MaximumRetryAttempts`": f"{invoked['MaximumRetryAttempts']}",
            "`QueueConcurrency`": f"{value({'Ref': 'QueueConcurrency'})} for each queue",
        }
        self.assertEqual({name: default for name, default, *_ in rows(DEPLOY, "parameter")}, expected)
        # The reasons that the table gives.
        self.assertEqual(value({"Ref": "VisibilityTimeout"}), 6 * value({"Ref": "FunctionTimeout"}))
        self.assertEqual(value({"Ref": "RetentionDays"}) * DAY, 4 * retention)
        self.assertLess(kinesis["MaximumRecordAgeInSeconds"], stream["RetentionPeriodHours"] * 3_600)

    def test_each_piece_is_listed_with_its_alarms(self):
        listed = set(re.findall(r"^\| \[`(infra/[\w-]+\.yaml)`\]", DEPLOY, re.MULTILINE))
        self.assertEqual(listed, {f"infra/{path.name}" for path in ROOT.glob("infra/*.yaml")})
        (count,) = re.findall(r"\| (\w+) alarms on what the library counts", DEPLOY)
        self.assertEqual(NUMBERS.index(count), len(NESTED["infra/alarms.yaml"].resources("AWS::CloudWatch::Alarm")))

    def test_terraform_has_the_table_of_the_template(self):
        stack = Stack("infra/table.yaml")
        (expected,) = (stack.value(one["Properties"]) for one in stack.resources(TABLE).values())
        ((_, tables),) = hcl2.loads((ROOT / "infra/table.tf").read_text())["resource"][0].items()
        table = tables['"idempotency"']
        (attribute,), (ttl,), (recovery,) = table["attribute"], table["ttl"], table["point_in_time_recovery"]
        # The parser keeps the quotes of strings.
        text = lambda value: str(value).strip('"').replace("True", "true")
        found = {
            "AttributeDefinitions": [{"AttributeName": text(attribute["name"]), "AttributeType": text(attribute["type"])}],
            "KeySchema": [{"AttributeName": text(table["hash_key"]), "KeyType": "HASH"}],
            "BillingMode": text(table["billing_mode"]),
            "TimeToLiveSpecification": {"AttributeName": text(ttl["attribute_name"]), "Enabled": ttl["enabled"]},
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": text(recovery["enabled"])},
            "DeletionProtectionEnabled": text(table["deletion_protection_enabled"]),
        }
        self.assertEqual(found, {name: expected[name] for name in found})

    def test_the_alarms_cost_what_the_page_says(self):
        metrics = [[query for query in alarm.get("Metrics", ()) if "MetricStat" in query] for alarm in STACK.alarms().values()]
        computed = [many for many in metrics if many]
        of_one, read = len(metrics) - len(computed), sum(map(len, computed))
        said = re.search(r"(\d+) alarms on one metric at \$0.10, and (\w+) that compute from (\w+) metrics together, \$([\d.]+) in all", DEPLOY)
        cents = 10 * (of_one + read)
        self.assertEqual(said.groups(), (str(of_one), NUMBERS[len(computed)], NUMBERS[read], f"{cents / 100:.2f}"))

    def test_what_a_removed_stack_keeps_is_what_the_page_says(self):
        kept = {name for name, one in STACK.resources(QUEUE).items() if one["DeletionPolicy"] == "Retain"}
        targets = {STACK.value(one["Properties"])["RedrivePolicy"]["deadLetterTargetArn"] for one in STACK.resources(QUEUE).values() if "RedrivePolicy" in one["Properties"]}
        configurations = [event["Properties"] for one in properties(FUNCTION).values() for event in one.get("Events", {}).values()]
        configurations += [one["EventInvokeConfig"] for one in properties(FUNCTION).values() if "EventInvokeConfig" in one]
        targets |= {one["DestinationConfig"]["OnFailure"]["Destination"] for one in configurations if "DestinationConfig" in one}
        self.assertEqual(kept, {target.removesuffix(".Arn") for target in targets})
        resources = [one for stack in (STACK, *STACK.nested()) for one in stack._template["Resources"].values()]
        self.assertEqual({one["Type"] for one in resources if one.get("DeletionPolicy", "Delete") != "Delete"}, {QUEUE, TABLE})
        self.assertEqual({one["DeletionPolicy"] for one in resources if one["Type"] == TABLE}, {"RetainExceptOnCreate"})
        self.assertIn("`sam delete` keeps the tables, the dead-letter queues and the on-failure queues, and removes the rest", DEPLOY)
        protected = {one["DeletionProtectionEnabled"] for one in properties(TABLE).values()}
        self.assertEqual(protected, {"true"})


class Permissions(unittest.TestCase):
    def test_who_reads_the_records_may_use_their_key(self):
        """Each role has a policy of infra/policy.yaml, which has the key; or its own statement on the table, and on the key."""
        for name, function in properties(FUNCTION).items():
            own = list(statements(function))
            reads = any("Idempotency/Table" in str(one["Resource"]) for one in own)
            decrypts = [one for one in own if "kms:Decrypt" in one["Action"]]
            self.assertEqual(bool(decrypts), reads, name)
            for one in decrypts:
                raw = str(STACK.resources(FUNCTION)[name]["Properties"]["Policies"])
                self.assertIn("{'Fn::If': ['HasKey', ", raw)
                self.assertIn("{'Ref': 'KmsKeyArn'}", raw)
                self.assertIn("kms:ViaService", str(one["Condition"]))
        for name, stack in STACK.resources("AWS::CloudFormation::Stack").items():
            if stack["Properties"]["TemplateURL"] in ("infra/policy.yaml", "infra/table.yaml"):
                self.assertEqual(stack["Properties"]["Parameters"]["KmsKeyArn"], {"Ref": "KmsKeyArn"}, name)

    def test_each_function_that_names_the_records_may_use_them_and_no_other(self):
        for name, function in properties(FUNCTION).items():
            uses = "Idempotency/Table" in str(list(statements(function))) or any("Policy" in str(one) for one in function["Policies"] if isinstance(one, str))
            self.assertEqual("IDEMPOTENCY_TABLE" in function["Environment"]["Variables"], uses, name)

    def test_the_relay_and_the_audit_have_what_their_pages_say(self):
        functions = properties(FUNCTION)
        allowed = list(statements(functions["SettlementsAudit"]))
        audit = {action for one in allowed for action in one["Action"]}
        (page,) = re.findall(r"^It needs `dynamodb:Scan`.*?\n\n", (ROOT / "docs/operations/audit.md").read_text(), re.MULTILINE | re.DOTALL)
        said = set(re.findall(r"`((?:dynamodb|kms):\w+)`", page))
        self.assertEqual(said, audit)
        # It queries whatever index has the effects' attribute as its key.
        (queried,) = [one["Resource"] for one in allowed if "dynamodb:Query" in one["Action"]]
        self.assertEqual(queried, ["Payouts.Arn", "Payouts.Arn/index/*"])
        self.assertIn("`…/index/*`", page)
        relay = {action for one in statements(functions["OutboxRelay"]) for action in one["Action"] if action.startswith("dynamodb:")}
        (page,) = re.findall(r"The relay's role needs (.*?)the stream", (ROOT / "docs/recipes/outbox.md").read_text(), re.DOTALL)
        self.assertEqual({action.removeprefix("dynamodb:") for action in re.findall(r"`([\w:]+)`", page)}, {action.removeprefix("dynamodb:") for action in relay})


def documents():
    """Each template of a stack, and each part of one that a page shows: where it is, and what it says."""
    for path in (ROOT / "template.yaml", *ROOT.glob("templates/*/template.yaml")):
        yield path, yaml.load(path.read_text().replace("{{project_name}}", "name"), _Loader)
    for path in ROOT.glob("docs/**/*.md"):
        for block in re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
            yield path, yaml.load(block, _Loader)


def schedules(node):
    if isinstance(node, dict):
        yield from [node["Properties"]] if node.get("Type") == "ScheduleV2" else []
    for one in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from schedules(one)


class Schedules(unittest.TestCase):
    def test_each_is_named_by_cloudformation(self):
        """SAM's name is the logical id, and a second stack of the account can't have it, too."""
        found = [(path, one) for path, document in documents() for one in schedules(document)]
        self.assertGreaterEqual(len(found), 4)
        for path, one in found:
            self.assertIs(one.get("OmitName"), True, f"{path}: {one}")


class Integrations(unittest.TestCase):
    def test_what_a_client_sends_is_no_part_of_a_text(self):
        """The gateway puts it in as it is: in JSON, a quote would end the text, and what follows be another attribute."""
        integrations = STACK.resources("AWS::ApiGatewayV2::Integration")
        self.assertIn("CheckoutsIntegration", integrations)
        for name, one in integrations.items():
            self.assertNotIn("${request.", str(one["Properties"].get("RequestParameters")), name)


class OtherPages(unittest.TestCase):
    def test_alarms_md_names_the_limits_that_the_templates_have(self):
        page = (ROOT / "docs/operations/alarms.md").read_text()
        parameters = {name for stack in STACK.nested() for name in stack._template["Parameters"]}
        for name in re.findall(r"than `(\w+)`", page):
            self.assertIn(name, parameters)
        headings = re.findall(r"^## Of .*: (.*)$", page, re.MULTILINE)
        files = {file for heading in headings for file in re.findall(r"infra/[\w-]+\.yaml", heading)}
        defining = {f"infra/{path.name}" for path in ROOT.glob("infra/*.yaml") if "::Alarm\n" in path.read_text()}
        self.assertEqual(files, defining)

    def test_each_command_quotes_the_operation(self):
        """An HTTP operation has a blank: `POST /orders`."""
        pages = [path.read_text() for path in ROOT.glob("docs/**/*.md")]
        lines = [line for page in pages for line in re.findall(r"^idempotency .*\$OPERATION.*$", page, re.MULTILINE)]
        self.assertGreaterEqual(len(lines), 6)
        for line in lines:
            self.assertNotRegex(line, r'(?<!")\$OPERATION|\$OPERATION(?!")')

    def test_the_audit_of_audit_md_is_that_of_the_template(self):
        page = (ROOT / "docs/operations/audit.md").read_text()
        function = properties(FUNCTION)["SettlementsAudit"]
        snippet = yaml.load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1], _Loader)
        ours, part = STACK.resources(FUNCTION)["SettlementsAudit"]["Properties"], snippet.pop("SettlementsAudit")["Properties"]
        for name in ("CodeUri", "MemorySize", "Timeout"):
            self.assertEqual(part[name], ours[name])
        # A failed audit scans the tables once, not three times.
        ((name, retries),) = STACK.resources("AWS::Lambda::EventInvokeConfig").items()
        self.assertEqual(snippet, {name: retries})
        expected = {"FunctionName": {"Ref": "SettlementsAudit"}, "Qualifier": "$LATEST", "MaximumRetryAttempts": 0}
        self.assertEqual(retries["Properties"], expected)
        variables = part["Environment"]["Variables"]
        everywhere = STACK._template["Globals"]["Function"]["Environment"]["Variables"]
        expected = everywhere | ours["Environment"]["Variables"]
        self.assertEqual({name: expected[name] for name in variables}, variables)
        # Those that the function doesn't start without, and the one that its alarm is given.
        needed = {"IDEMPOTENCY_TABLE", "EFFECTS_TABLE", "EFFECTS_ATTRIBUTE", "EFFECT_KEY", "METRIC_NAMESPACE"}
        self.assertLessEqual(needed, variables.keys())
        self.assertEqual(part["Events"]["Daily"]["Properties"]["ScheduleExpression"], function["Events"]["Daily"]["Properties"]["ScheduleExpression"])

    def test_deliveries_of_each_kind_of_source_can_be_held(self):
        page = (ROOT / "docs/operations/alarms.md").read_text()
        kinds = re.findall(r"^- \*\*Of (.+?)\*\*(.*(?:\n  .*)*)", re.search(r"^## Hold deliveries\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)[1], re.MULTILINE)
        self.assertEqual([kind for kind, _ in kinds], ["a mapping", "an API", "asynchronous invocations"])
        # Of these, Lambda drops the events meanwhile.
        for _, words in kinds[1:]:
            self.assertRegex(words, r"events are dropped|drops events")

    def test_what_is_sent_again_is_looked_for_first_and_kept_until_it_is_done(self):
        page = (ROOT / "docs/operations/alarms.md").read_text()
        sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", page + "\n##", re.MULTILINE | re.DOTALL))
        self.assertRegex(sections["DeadLetters"], r"(?m)^  2\. After .*look for the effect(?s:.*)^  3\.")
        for name in ("ServerErrors", "Discarded", "Failed"):
            self.assertIn("look for effects ([DeadLetters](#deadletters), step 2)", " ".join(sections[name].split()), name)
        for name, alarm in STACK.alarms().items():
            words = alarm["AlarmDescription"]
            if re.search("redrive|replayed, not repeated|with its payload again|client's retry|client sends", words):
                self.assertIn("look for effects", words, name)
            if "replayed, not repeated" in words:
                self.assertIn("if its key comes from the payload", " ".join(words.split()), name)
        paragraph = next(one for one in sections["Discarded"].split("\n\n") if "event.json" in one)
        self.assertIn("repeat until `batchItemFailures` is empty; only then delete", " ".join(paragraph.split()))

    def test_what_ends_an_invocation_is_searched_as_lambda_writes_it(self):
        """Its own lines and a panic are no JSON, and a pattern of fields passes them over."""
        page = (ROOT / "docs/operations/alarms.md").read_text()
        sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", page + "\n##", re.MULTILINE | re.DOTALL))
        for name in ("Takeovers", "ServerErrors", "Failing", "Dropped", "Failed"):
            searched = re.search(r"^events '(.*)'$", sections[name], re.MULTILINE)[1]
            for words in ('?"Task timed out"', '?"Runtime exited"', "?panicked"):
                self.assertIn(words, searched, name)

    def test_each_doctor_of_any_function_names_the_adapters(self):
        for name in ("alarms", "checklist"):
            page = (ROOT / f"docs/operations/{name}.md").read_text()
            line = re.search(r"^idempotency doctor .*--retention 56days.*$", page, re.MULTILINE)[0]
            for adapter in ("for an API: --adapter http", "for an invocation: --adapter invoke"):
                self.assertIn(adapter, line, name)

    def test_the_latency_of_each_request_that_completes_a_record_is_asked_for(self):
        page = (ROOT / "docs/operations/alarms.md").read_text()
        (requests,) = re.findall(r"^for request in (.*); do\nmetric AWS/DynamoDB SuccessfulRequestLatency .*Value=\$request\ndone$", page, re.MULTILINE)
        self.assertEqual(requests.split(), ["UpdateItem", "BatchExecuteStatement", "TransactWriteItems"])

    def test_each_event_that_a_page_searches_is_logged_at_level_info(self):
        """A healthy function may log nothing else, so that no page searches any message."""
        events = (ROOT / "docs/reference/log-events.md").read_text()
        debug = {event for row in re.findall(r"^\| (.*) \| debug \|", events, re.MULTILINE) for event in re.findall(r"`(\w+)`", row)}
        self.assertIn("completed", debug)
        for path in ROOT.glob("docs/**/*.md"):
            page = path.read_text()
            self.assertEqual(debug.intersection(re.findall(r'\$\.fields\.event\s=\s"(\w+)"', page)), set(), path)
            self.assertNotIn("$.fields.message =", page, path)

    def test_the_outbox_page_has_the_relays_numbers(self):
        page = (ROOT / "docs/recipes/outbox.md").read_text()
        events = properties(FUNCTION)["OutboxRelay"]["Events"]
        self.assertIn(f"after {events['Events']['Properties']['MaximumRetryAttempts']} retries", " ".join(page.split()))

    def test_the_relays_mapping_keeps_the_order_of_an_aggregate(self):
        """DynamoDB orders by item, and two events of an aggregate are two items."""
        self.assertNotIn("ParallelizationFactor", properties(FUNCTION)["OutboxRelay"]["Events"]["Events"]["Properties"])
        page = (ROOT / "docs/operations/alarms.md").read_text()
        behind = re.search(r"^### Behind\n(.*?)^##", page, re.MULTILINE | re.DOTALL)[1]
        self.assertIn("`ParallelizationFactor` (not the relay's", behind)

    def test_no_log_level_drops_the_metrics(self):
        """Their documents have no level: Lambda takes them for INFO."""
        for path in (ROOT / "template.yaml", *ROOT.glob("templates/*/template.yaml")):
            for level in re.findall(r"ApplicationLogLevel: *([^\s,}]+)", path.read_text()):
                self.assertIn(level, ("TRACE", "DEBUG", "INFO"), path)
        self.assertIn("keep `ApplicationLogLevel` at INFO", (ROOT / "docs/reference/metrics.md").read_text())

    def test_sam_takes_the_managed_instance_of_its_page(self):
        page = (ROOT / "docs/recipes/managed-instances.md").read_text()
        (resources,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        template = MANAGED + textwrap.indent(resources, "  ")
        for text, says in (
            (template, "is a valid SAM Template"),
            (template.replace("Arn: !Ref", "Name: !Ref"), "'Arn' is a required property"),
            (template.replace("Timeout: 5400", "Timeout: 5401"), "5401"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "template.yaml"
                path.write_text(text)
                command = [os.environ["SAM"], "validate", "--lint", "--region", "eu-central-1", "--template", path]
                validated = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertIn(says, validated.stdout + validated.stderr)


if __name__ == "__main__":
    unittest.main()
