"""The queue's function, deployed into the emulator as its README says: BUILT is what `sam build` made of it."""

import os
import unittest

from deployed.emulator import Emulator
from deployed.queue_stack import QueueStack

STACK = "first-queue"


class Queue(QueueStack, unittest.TestCase):
    namespace = "first-queue"

    @classmethod
    def setUpClass(cls):
        cls.emulator = Emulator("first-queue")
        cls.addClassCleanup(cls.emulator.close)
        parameters = {"Architecture": os.environ["ARCHITECTURE"], "DeletionProtection": "false"}
        cls.outputs = cls.emulator.sam_deploy(os.environ["BUILT"], STACK, parameters)
        cls.emulator.keep(cls.outputs["LedgerTable"], cls.outputs["IdempotencyTable"], ttl=[cls.outputs["IdempotencyTable"]])
        resources = cls.emulator.client("cloudformation").list_stack_resources(StackName=STACK)["StackResourceSummaries"]
        (cls.function,) = (one["PhysicalResourceId"] for one in resources if one["ResourceType"] == "AWS::Lambda::Function")

    def test_a_payment_that_is_sent_twice_is_entered_once(self):
        self.drive({"payment_id": "p-1", "amount": 1250})
        self.drive_batch([{"payment_id": f"p-{number}", "amount": 1250} for number in range(2, 7)])
        self.assert_permitted()

    def test_its_alarms_are_there(self):
        alarms = self.emulator.client("cloudwatch").describe_alarms()["MetricAlarms"]
        namespaces = {dimension["Value"] for alarm in alarms for dimension in alarm["Dimensions"] if dimension["Name"] == "namespace"}
        self.assertEqual(namespaces, {self.namespace})
        # Nine on the library's metrics, two on the queues, one on the table.
        self.assertEqual(len(alarms), 12)


if __name__ == "__main__":
    unittest.main()
