"""The stack: SAM deploys the template as it is, ministack plays AWS, and DynamoDB Local keeps the tables."""

import http.client
import os
import socket
import subprocess
import tempfile
import time
import urllib.parse
import uuid
from pathlib import Path

import boto3

from deployed.wire import Wire

ROOT = Path(__file__).resolve().parents[2]
LOG = ROOT / "target/deployment/ministack.log"
REGION = "eu-central-1"
STACK = "once"

# Short, so that a redelivery takes seconds, and long enough for a cold start on a machine that does much else. The rest is as the
# template has it.
TIMEOUT = 6
VISIBILITY = 10
MAX_RECEIVES = 3


class Stack:
    """Everything that runs, and how to reach it."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="run-", dir=LOG.parent)
        self._process = None
        local = urllib.parse.urlsplit(os.environ["DYNAMODB_LOCAL_ENDPOINT"])
        self.wire = Wire((local.hostname, local.port))
        self._local = boto3.client("dynamodb", endpoint_url=os.environ["DYNAMODB_LOCAL_ENDPOINT"], **_credentials())
        try:
            self._start_ministack()
            began = time.monotonic()
            self._deploy()
            self.deployed_in = time.monotonic() - began
            self.outputs = {output["OutputKey"]: output["OutputValue"] for output in self._description()["Outputs"]}
            self._make_up_for_ministack()
        except BaseException:
            self.close()
            raise

    def client(self, service):
        return boto3.client(service, endpoint_url=self.endpoint, **_credentials())

    def items(self, output):
        """The items of a table, named by the stack's output."""
        pages = self._local.get_paginator("scan").paginate(TableName=self.outputs[output], ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def post(self, path, body, headers):
        """A request to the HTTP API: (status, headers, body)."""
        # The API answers under a host name of its own on AWS; here one address serves everybody.
        host = urllib.parse.urlsplit(self.outputs["OrdersUrl"]).netloc.split(".")[0]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", f"/_aws/execute-api/{host}/$default{path}", body, headers)
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read().decode()
        finally:
            connection.close()

    def resources(self, stack=STACK):
        """Every resource of the stack and of those nested in it: (logical id, type, physical id)."""
        pages = self.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack)
        for page in pages:
            for resource in page["StackResourceSummaries"]:
                found = resource["LogicalResourceId"], resource["ResourceType"], resource["PhysicalResourceId"]
                yield found
                if found[1] == "AWS::CloudFormation::Stack":
                    yield from self.resources(found[2])

    def log(self):
        """What ministack and the functions said. It stays, to be read when a test has failed."""
        return LOG.read_text(errors="replace")

    def close(self):
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.wire.close()
        self._folder.cleanup()

    def _start_ministack(self):
        self.port = _free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        environment = os.environ | {
            "AUTH": "true",  # each function signs with a key of its own role
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "MINISTACK_HOST": "127.0.0.1",
            "MINISTACK_REGION": REGION,
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            "STATE_DIR": self._folder.name,
            "S3_DATA_DIR": f"{self._folder.name}/s3",
            "TMPDIR": self._folder.name,
            # What the functions are given: ministack for everything, but DynamoDB Local for tables, through the wire.
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_DYNAMODB": self.wire.endpoint,
        }
        log = open(LOG, "wb")
        command = [os.environ["MINISTACK_PYTHON"], "-P", str(Path(__file__).with_name("ministack.py"))]
        self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self._folder.name)
        log.close()
        for _ in range(300):
            if self._process.poll() is not None:
                raise RuntimeError(f"ministack ended at start:\n{self.log()}")
            try:
                self.client("sts").get_caller_identity()
                return
            except Exception:
                time.sleep(0.1)
        raise RuntimeError(f"ministack did not answer within 30 s:\n{self.log()}")

    def _deploy(self):
        parameters = {
            "Architecture": os.environ["ARCHITECTURE"],
            "FunctionTimeout": TIMEOUT,
            "VisibilityTimeout": VISIBILITY,
            "MaxReceiveCount": MAX_RECEIVES,
            "SweepAfterSeconds": 0,
            "DeletionProtection": "false",
            "AlarmEmail": "somebody@example.com",
        }
        command = [
            os.environ["SAM"], "deploy",
            "--template-file", str(Path(os.environ["BUILT"]) / "template.yaml"),
            "--stack-name", STACK, "--region", REGION, "--resolve-s3", "--no-confirm-changeset", "--no-progressbar",
            "--capabilities", "CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND",
            "--parameter-overrides", *(f"{name}={value}" for name, value in parameters.items()),
        ]
        environment = os.environ | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "HOME": self._folder.name,  # SAM keeps settings there
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=self._folder.name)
        if done.returncode:
            raise RuntimeError(f"sam deploy failed:\n{done.stdout}\n{done.stderr}\n{self.log()[-8000:]}")

    def _description(self):
        return self.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0]

    def _make_up_for_ministack(self):
        """ministack keeps tables of its own: DynamoDB Local gets the same, and the TTL that ministack drops."""
        own = self.client("dynamodb")
        for output in ("IdempotencyTable", "OrdersTable", "LedgerTable", "OutboxTable", "MovementsTable", "PayoutsTable"):
            name = self.outputs[output]
            table = own.describe_table(TableName=name)["Table"]
            self._local.create_table(
                TableName=name,
                KeySchema=table["KeySchema"],
                AttributeDefinitions=table["AttributeDefinitions"],
                BillingMode="PAY_PER_REQUEST",
                **indexes(table),
            )
        self._local.update_time_to_live(
            TableName=self.outputs["IdempotencyTable"],
            TimeToLiveSpecification={"AttributeName": "expiration", "Enabled": True},
        )


def indexes(table):
    names = ("IndexName", "KeySchema", "Projection")
    found = [{name: index[name] for name in names} for index in table.get("GlobalSecondaryIndexes", [])]
    return {"GlobalSecondaryIndexes": found} if found else {}


def payment(payment_id, amount=1250):
    return {"payment_id": payment_id, "order_id": f"order-of-{payment_id}", "amount": amount, "currency": "EUR"}


def unique(prefix):
    """A token that no other test has; all of them are kept in `unique.given`."""
    token = f"{prefix}-{uuid.uuid4().hex[:12]}"
    unique.given.add(token)
    return token


unique.given = set()


def eventually(what, seconds=180):
    """Calls until it gives something true; answers with that."""
    until = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.2)


def _credentials():
    return {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": REGION}


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
