"""The stack of infra/cdk, deployed into the emulator by the AWS CDK. SYNTHESISED is the cloud assembly, AWS_CDK the folder of its packages."""

import json
import os
import re
import unittest
from pathlib import Path

from deployed.emulator import REGION, ROOT, Emulator
from deployed.queue_stack import QueueStack

STACK = "Payments"


class Payments(QueueStack, unittest.TestCase):
    namespace = "payments-worker"

    @classmethod
    def setUpClass(cls):
        cls.emulator = Emulator("cdk")
        cls.addClassCleanup(cls.emulator.close)
        cdk = str(Path(os.environ["AWS_CDK"]) / "node_modules/.bin/cdk")
        account = cls.emulator.client("sts").get_caller_identity()["Account"]
        cls.emulator.run(cdk, "bootstrap", f"aws://{account}/{REGION}", "--app", os.environ["SYNTHESISED"])
        # The policy of the bucket of assets refuses requests without TLS, and the emulator has none.
        cls.emulator.client("s3").delete_bucket_policy(Bucket=f"cdk-hnb659fds-assets-{account}-{REGION}")
        cls.emulator.run(cdk, "deploy", "--app", os.environ["SYNTHESISED"], "--require-approval", "never")
        cls.outputs = cls.emulator.outputs(STACK)
        cls.function = cls.outputs["FunctionName"]
        cls.emulator.keep(cls.outputs["LedgerTable"], cls.outputs["IdempotencyTable"], ttl=[cls.outputs["IdempotencyTable"]])

    def test_a_payment_that_is_sent_twice_is_entered_once(self):
        (body,) = re.findall("--message-body '(.*)'", (ROOT / "infra/cdk/README.md").read_text())
        payment = json.loads(body)
        self.drive(payment)
        self.drive_batch([payment | {"payment_id": f"p-{number}"} for number in range(2, 7)])
        self.assert_permitted()

    def test_lambda_reads_which_messages_must_come_again(self):
        (mapping,) = self.emulator.client("lambda").list_event_source_mappings(FunctionName=self.function)["EventSourceMappings"]
        self.assertEqual(mapping["FunctionResponseTypes"], ["ReportBatchItemFailures"])

    def test_a_replaced_queue_keeps_its_messages(self):
        template = json.loads((Path(os.environ["SYNTHESISED"]) / f"{STACK}.template.json").read_text())
        policies = [one["UpdateReplacePolicy"] for one in template["Resources"].values() if one["Type"] == "AWS::SQS::Queue"]
        self.assertEqual(policies, ["Retain", "Retain"])

    def test_a_message_that_fails_again_and_again_is_kept(self):
        sqs = self.emulator.client("sqs")
        names = ["VisibilityTimeout", "MessageRetentionPeriod", "RedrivePolicy", "QueueArn"]
        queue, dead = (
            sqs.get_queue_attributes(QueueUrl=self.outputs[output], AttributeNames=names)["Attributes"]
            for output in ("QueueUrl", "DeadLettersUrl")
        )
        self.assertEqual(json.loads(queue["RedrivePolicy"])["deadLetterTargetArn"], dead["QueueArn"])
        self.assertGreaterEqual(int(dead["MessageRetentionPeriod"]), int(queue["MessageRetentionPeriod"]))
        timeout = self.emulator.client("lambda").get_function_configuration(FunctionName=self.function)["Timeout"]
        self.assertGreaterEqual(int(queue["VisibilityTimeout"]), 6 * timeout)


if __name__ == "__main__":
    unittest.main()
