"""The queue's function, deployed into the emulator. NEW_FUNCTIONS is the folder that has it, FUNCTIONS the one that has its program."""

import os
import re
import signal
import subprocess
import unittest
from pathlib import Path

import boto3

from deployed.emulator import PATIENCE, ROOT, Emulator, eventually
from deployed.folder import build, deploy
from deployed.queue_stack import QueueStack

FOLDER = Path(os.environ["NEW_FUNCTIONS"]) / "first-queue"
STACK = "first-queue"


class Queue(QueueStack, unittest.TestCase):
    namespace = "first-queue"

    @classmethod
    def setUpClass(cls):
        built = build(FOLDER)
        cls.emulator = Emulator("first-queue")
        cls.addClassCleanup(cls.emulator.close)
        cls.outputs = deploy(cls.emulator, built, STACK)
        (cls.function,) = (name for _, kind, name in cls.emulator.resources(STACK) if kind == "AWS::Lambda::Function")

    def test_a_payment_that_is_sent_twice_is_entered_once(self):
        self.drive({"payment_id": "p-1", "amount": 1250})
        self.drive_batch([{"payment_id": f"p-{number}", "amount": 1250} for number in range(2, 7)])
        self.assert_permitted()


class Command(unittest.TestCase):
    """`scripts/deployment deploy FOLDER`, used by what it prints alone."""

    def setUp(self):
        self.process = subprocess.Popen([ROOT / "scripts/deployment", "deploy", FOLDER], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        self.said = {}
        for line in self.process.stdout:
            if found := re.fullmatch(r"(?:export )?(\w+)=(.*)\n", line):
                self.said[found[1]] = found[2]
            elif line.startswith("Ctrl-C"):
                return
        self.fail(f"it ended with {self.process.wait()}")

    def end(self):
        self.process.terminate()
        self.process.stdout.close()
        return self.process.wait(PATIENCE)

    def client(self, service, endpoint):
        keys = {f"aws_{name}": self.said[f"AWS_{name.upper()}"] for name in ("access_key_id", "secret_access_key")}
        return boto3.client(service, endpoint_url=self.said[endpoint], region_name=self.said["AWS_REGION"], **keys)

    def processes(self):
        """The programs that the emulator was started with, and those of its functions."""
        wanted = f"AWS_ENDPOINT_URL={self.said['AWS_ENDPOINT_URL']}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    yield process.name
            except OSError:
                continue

    def test_the_function_serves_until_a_signal_ends_everything(self):
        sqs, tables = self.client("sqs", "AWS_ENDPOINT_URL"), self.client("dynamodb", "AWS_ENDPOINT_URL_DYNAMODB")
        sqs.send_message(QueueUrl=self.said["QueueUrl"], MessageBody='{"payment_id": "p-1", "amount": 1250}')
        (entry,) = eventually(lambda: tables.scan(TableName=self.said["LedgerTable"])["Items"])
        self.assertEqual(entry["payment_id"], {"S": "p-1"})
        # ministack and the function.
        self.assertGreaterEqual(len(list(self.processes())), 2)
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(PATIENCE), 0)
        self.assertEqual(list(self.processes()), [])


if __name__ == "__main__":
    unittest.main()
