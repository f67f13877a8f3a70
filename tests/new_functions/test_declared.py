"""What the SAM templates of new functions declare. NEW_FUNCTIONS is the folder that has a function of each kind, named `first-KIND`."""

import os
import re
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

from alarms.templates import ROOT, Stack

FOLDER = Path(os.environ["NEW_FUNCTIONS"])
# The adapter that a kind's policy is for, and the alarms that it has besides those of the library's metrics.
KINDS = {
    "api": ("http", {"infra/api-alarms.yaml"}),
    "direct": ("invoke", {"infra/async-alarms.yaml"}),
    "queue": ("sqs", {"infra/queue-alarms.yaml"}),
    "stream": ("streams", {"infra/stream-alarms.yaml"}),
}
NESTED = "AWS::CloudFormation::Stack"
# What `aws configure export-credentials` sets.
CREDENTIALS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
DAY = 86_400


class Function:
    def __init__(self, kind):
        self.name = f"first-{kind}"
        self.home = FOLDER / self.name
        self.source = (self.home / "src/main.rs").read_text()
        self.stack = Stack(self.home / "template.yaml")
        (resource,) = self.stack.resources("AWS::Serverless::Function").values()
        self.metadata, self.properties = resource["Metadata"], resource["Properties"]

    def nested(self):
        """The parameters of each nested stack, unresolved, by its file."""
        stacks = self.stack.resources(NESTED).values()
        return {stack["Properties"]["TemplateURL"]: stack["Properties"]["Parameters"] for stack in stacks}

    def event(self):
        (event,) = self.properties["Events"].values()
        return event["Type"], event["Properties"]

    def resource(self, kind, reference):
        """The properties of the resource that `!GetAtt NAME.Arn` names."""
        return self.stack.resources(kind)[reference["Fn::GetAtt"].removesuffix(".Arn")]["Properties"]


FUNCTIONS = {kind: Function(kind) for kind in KINDS}


class Every(unittest.TestCase):
    def test_there_is_a_function_of_every_template(self):
        self.assertEqual({path.name for path in (ROOT / "templates").iterdir() if path.is_dir()}, set(KINDS))

    def test_its_pieces_are_those_of_infra(self):
        for kind, function in FUNCTIONS.items():
            with self.subTest(kind):
                pieces = {f"infra/{piece.name}": piece for piece in (function.home / "infra").iterdir()}
                self.assertEqual(set(pieces), {"infra/table.yaml", "infra/policy.yaml", "infra/alarms.yaml", *KINDS[kind][1]})
                self.assertEqual(set(pieces), set(function.nested()))
                for path, piece in pieces.items():
                    self.assertFalse(piece.is_symlink())
                    self.assertEqual(piece.read_text(), (ROOT / path).read_text())

    def test_the_policy_is_of_its_adapter_and_confined_to_its_namespace(self):
        for kind, function in FUNCTIONS.items():
            with self.subTest(kind):
                self.assertEqual(re.findall(r'const NAMESPACE: &str = "([^"]+)"', function.source), [function.name])
                self.assertEqual(re.findall(r"\.namespace\(([^)]*)\)", function.source), ["NAMESPACE"])
                policy = function.nested()["infra/policy.yaml"]
                self.assertEqual((policy["Adapter"], policy["Namespace"]), (KINDS[kind][0], function.name))
                self.assertEqual(policy["TableArn"], {"Fn::GetAtt": "Idempotency.Outputs.TableArn"})
                self.assertEqual(function.nested()["infra/alarms.yaml"]["Namespace"], function.name)
                # An answer of any size is replayed.
                self.assertNotIn("LargeOutcomes", policy)

    def test_its_alarms_look_at_the_metrics_of_its_own_stack(self):
        for kind, function in FUNCTIONS.items():
            with self.subTest(kind):
                written = function.properties["Environment"]["Variables"]["METRIC_NAMESPACE"]
                self.assertEqual(written, {"Fn::Sub": "LambdaIdempotency/${AWS::StackName}"})
                self.assertEqual(function.nested()["infra/alarms.yaml"]["MetricNamespace"], written)

    def test_its_own_statement_allows_one_write_to_its_table(self):
        for kind, function in FUNCTIONS.items():
            with self.subTest(kind):
                records, own = function.properties["Policies"]
                self.assertEqual(records, {"Fn::GetAtt": "Records.Outputs.PolicyArn"})
                (statement,) = own["Statement"]
                self.assertEqual((statement["Effect"], statement["Action"]), ("Allow", ["dynamodb:PutItem"]))
                self.assertTrue(function.resource("AWS::DynamoDB::Table", statement["Resource"]))

    def test_it_is_given_the_variables_that_it_reads(self):
        for kind, function in FUNCTIONS.items():
            with self.subTest(kind):
                given = function.properties["Environment"]["Variables"]
                read = set(re.findall(r'env::var\("(\w+)"\)', function.source))
                self.assertEqual(len(read), 1)
                self.assertEqual(set(given), {"IDEMPOTENCY_TABLE", "METRIC_NAMESPACE"} | read)
                self.assertEqual(given["IDEMPOTENCY_TABLE"], {"Fn::GetAtt": "Idempotency.Outputs.TableName"})

    def test_every_alarm_notifies_the_topic(self):
        for kind, function in FUNCTIONS.items():
            with self.subTest(kind):
                for file, parameters in function.nested().items():
                    if file != "infra/policy.yaml":
                        self.assertEqual(parameters["AlarmTopicArn"], {"Ref": "AlarmTopicArn"}, file)

    def test_cargo_lambda_builds_its_binary(self):
        for kind, function in FUNCTIONS.items():
            with self.subTest(kind):
                wanted = {"BuildMethod": "rust-cargolambda", "BuildProperties": {"Binary": function.name}}
                # `plan` alone reads the entry `Idempotency`.
                built = {name: value for name, value in function.metadata.items() if name != "Idempotency"}
                self.assertEqual(built, wanted)

    def test_each_variable_of_its_readme_is_set_or_named_there(self):
        for kind, function in FUNCTIONS.items():
            with self.subTest(kind):
                readme = (function.home / "README.md").read_text()
                commands = "".join(re.findall(r"^```sh\n(.*?)^```", readme, re.MULTILINE | re.DOTALL))
                used = set(re.findall(r"\$(\w+)", commands))
                known = {*re.findall(r"^(?:export )?(\w+)=", commands, re.MULTILINE), *re.findall(r"`(\w+)`", readme)}
                self.assertLessEqual(used - CREDENTIALS, known)

    def test_nothing_of_the_template_is_left(self):
        for kind, function in FUNCTIONS.items():
            with self.subTest(kind):
                self.assertFalse((function.home / "CargoLambda.toml").exists())
                for path in function.home.rglob("*.*"):
                    if path.is_file():
                        self.assertNotRegex(path.read_text(), r"\{\{|\{%", path)


class Library(unittest.TestCase):
    """The variable `library` is a version, a folder or the URL of a repository."""

    def dependencies(self, kind, *variables):
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            command = [os.environ["CARGO_LAMBDA"], "lambda", "new", "--template", ROOT / "templates" / kind, "--no-interactive"]
            subprocess.run([*command, *variables, "some"], cwd=folder, check=True, capture_output=True)
            manifest = tomllib.loads(Path(folder, "some/Cargo.toml").read_text())
        return manifest["dependencies"] | {"for tests": manifest["dev-dependencies"]["lambda-idempotency"]}

    def test_it_is_named_in_each_of_these_ways(self):
        url, folder = "https://git.example.com/lambda-idempotency", "/src/lambda-idempotency"
        for kind in KINDS:
            for variables, home, exporter in [
                ((), {"version": "0.1"}, {"version": "0.1"}),
                (("--render-var", f"library={folder}"), {"path": folder}, {"path": f"{folder}/crates/emf"}),
                (("--render-var", f"library={url}"), {"git": url}, {"git": url}),
            ]:
                with self.subTest(kind, variables=variables):
                    found = self.dependencies(kind, *variables)
                    self.assertEqual(found["lambda-idempotency-emf"], exporter)
                    self.assertEqual(found["for tests"], home | {"features": ["test-util"]})
                    self.assertEqual(set(found["lambda-idempotency"]), {*home, "features"})
                    self.assertEqual({name: found["lambda-idempotency"][name] for name in home}, home)


class Queue(unittest.TestCase):
    def setUp(self):
        self.function = FUNCTIONS["queue"]
        kind, self.mapping = self.function.event()
        self.assertEqual(kind, "SQS")
        self.queue = self.function.resource("AWS::SQS::Queue", self.mapping["Queue"])

    def test_lambda_reads_which_messages_must_come_again(self):
        self.assertEqual(self.mapping["FunctionResponseTypes"], ["ReportBatchItemFailures"])

    def test_a_message_stays_hidden_while_its_attempt_runs(self):
        self.assertGreaterEqual(self.queue["VisibilityTimeout"], 6 * self.function.properties["Timeout"])

    def test_what_fails_again_and_again_is_kept_as_long_as_in_the_queue(self):
        redrive = self.queue["RedrivePolicy"]
        self.assertGreaterEqual(redrive["maxReceiveCount"], 3)
        dead = self.function.resource("AWS::SQS::Queue", redrive["deadLetterTargetArn"])
        self.assertGreaterEqual(dead["MessageRetentionPeriod"], self.queue["MessageRetentionPeriod"])

    def test_outcomes_are_kept_for_longer_than_a_message_can_come_again(self):
        (hours, days) = re.findall(r"const RETENTION: Duration = Duration::from_hours\((\d+) \* (\d+)\)", self.function.source)[0]
        redrive = self.queue["RedrivePolicy"]
        dead = self.function.resource("AWS::SQS::Queue", redrive["deadLetterTargetArn"])
        longest = self.queue["MessageRetentionPeriod"] + dead["MessageRetentionPeriod"]
        self.assertGreater(int(hours) * int(days) * 3_600, longest)
        self.assertIn(".retention(RETENTION)", self.function.source)
        days = self.function.metadata["Idempotency"]["RetentionDays"]
        self.assertIn(f"const RETENTION: Duration = Duration::from_hours(24 * {days});", self.function.source)


class Stream(unittest.TestCase):
    def setUp(self):
        self.function = FUNCTIONS["stream"]
        kind, self.mapping = self.function.event()
        self.assertEqual(kind, "Kinesis")
        self.stream = self.function.resource("AWS::Kinesis::Stream", self.mapping["Stream"])

    def test_lambda_reads_the_first_record_that_must_come_again(self):
        self.assertEqual(self.mapping["FunctionResponseTypes"], ["ReportBatchItemFailures"])

    def test_a_record_is_given_up_while_the_stream_has_its_data(self):
        self.assertTrue(self.mapping["BisectBatchOnFunctionError"])
        self.assertGreater(self.mapping["MaximumRetryAttempts"], self.function.properties["Timeout"])
        self.assertLess(self.mapping["MaximumRecordAgeInSeconds"], self.stream["RetentionPeriodHours"] * 3_600)

    def test_what_is_given_up_is_named_in_a_queue(self):
        failed = self.mapping["DestinationConfig"]["OnFailure"]
        self.assertEqual(failed["Type"], "SQS")
        self.assertEqual(self.function.resource("AWS::SQS::Queue", failed["Destination"])["MessageRetentionPeriod"], 14 * DAY)

    def test_outcomes_outlive_the_stream(self):
        # The layer's own retention is 7 days.
        self.assertNotIn(".retention(", self.function.source)
        self.assertLess(self.stream["RetentionPeriodHours"] * 3_600, 7 * DAY)


class Direct(unittest.TestCase):
    def test_an_asynchronous_event_is_bounded_and_kept_when_it_fails(self):
        function = FUNCTIONS["direct"]
        invocations = function.properties["EventInvokeConfig"]
        self.assertLessEqual(invocations["MaximumEventAgeInSeconds"], 6 * 3_600)
        self.assertEqual(invocations["MaximumRetryAttempts"], 2)
        failed = invocations["DestinationConfig"]["OnFailure"]
        self.assertEqual(failed["Type"], "SQS")
        self.assertEqual(function.resource("AWS::SQS::Queue", failed["Destination"])["MessageRetentionPeriod"], 14 * DAY)


class Api(unittest.TestCase):
    def test_a_client_is_authenticated_before_it_has_a_scope(self):
        function = FUNCTIONS["api"]
        kind, route = function.event()
        self.assertEqual((kind, route["Method"], route["Path"]), ("HttpApi", "POST", "/orders"))
        self.assertNotIn("Auth", route)
        (api,) = function.stack.resources("AWS::Serverless::HttpApi").values()
        self.assertEqual(api["Properties"]["Auth"], {"EnableIamAuthorizer": True, "DefaultAuthorizer": "AWS_IAM"})
        orders = "".join((function.home / "src/orders.rs").read_text().split())
        self.assertIn("IdempotencyLayer::scoped(once,scope::iam_identity())", orders)


if __name__ == "__main__":
    unittest.main()
