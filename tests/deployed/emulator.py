"""The emulator: ministack plays AWS, and DynamoDB Local keeps the tables, behind a wire that records requests."""

import os
import subprocess
import tempfile
import time
import urllib.parse
from pathlib import Path

import boto3

from deployed.wire import PATIENCE, Wire

ROOT = Path(__file__).resolve().parents[2]
REGION = "eu-central-1"


class Emulator:
    """Everything that runs, and how to reach it. What ministack and the functions said is kept in target/deployment/NAME.log."""

    def __init__(self, name):
        self.log_file = ROOT / "target/deployment" / f"{name}.log"
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix="run-", dir=self.log_file.parent)
        self._process = None
        local = urllib.parse.urlsplit(os.environ["DYNAMODB_LOCAL_ENDPOINT"])
        self.wire = Wire((local.hostname, local.port))
        # The tables as they are, past the wire.
        self.local = boto3.client("dynamodb", endpoint_url=os.environ["DYNAMODB_LOCAL_ENDPOINT"], **_credentials())
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def client(self, service):
        return boto3.client(service, endpoint_url=self.endpoint, **_credentials())

    def log(self):
        """What ministack and the functions said. It stays, to be read when a test has failed."""
        return self.log_file.read_text(errors="replace")

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

    def settings(self):
        """The variables that lead a tool to the emulator."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
        }

    def run(self, *command, folder=None):
        """Runs a command of a tool that deploys, led to the emulator."""
        environment = os.environ | self.settings() | {"HOME": self._folder.name}  # tools keep settings there
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder or self._folder.name)
        if done.returncode:
            raise RuntimeError(f"{command} failed:\n{done.stdout}\n{done.stderr}\n{self.log()[-8000:]}")
        return done.stdout

    def sam_deploy(self, built, stack, parameters):
        """Deploys what `sam build` made; the stack's outputs."""
        self.run(
            os.environ["SAM"], "deploy",
            "--template-file", str(Path(built) / "template.yaml"),
            "--stack-name", stack, "--region", REGION, "--resolve-s3", "--no-confirm-changeset", "--no-progressbar",
            "--capabilities", "CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND",
            "--parameter-overrides", *(f"{name}={value}" for name, value in parameters.items()),
        )
        return self.outputs(stack)

    def outputs(self, stack):
        description = self.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in description.get("Outputs", [])}

    def resources(self, stack):
        """Every resource of the stack and of those nested in it: (logical id, type, physical id)."""
        pages = self.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack)
        for page in pages:
            for resource in page["StackResourceSummaries"]:
                found = resource["LogicalResourceId"], resource["ResourceType"], resource["PhysicalResourceId"]
                yield found
                if found[1] == "AWS::CloudFormation::Stack":
                    yield from self.resources(found[2])

    def keep(self, *tables, ttl=()):
        """ministack keeps tables of its own: DynamoDB Local gets the same, and the TTL that ministack drops."""
        own = self.client("dynamodb")
        for name in tables:
            table = own.describe_table(TableName=name)["Table"]
            self.local.create_table(
                TableName=name,
                KeySchema=table["KeySchema"],
                AttributeDefinitions=table["AttributeDefinitions"],
                BillingMode="PAY_PER_REQUEST",
                **_indexes(table),
            )
        for name in ttl:
            specification = {"AttributeName": "expiration", "Enabled": True}
            self.local.update_time_to_live(TableName=name, TimeToLiveSpecification=specification)

    def items(self, table):
        pages = self.local.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def _start(self):
        self.port = int(subprocess.check_output([ROOT / "scripts/with", "free-port"]))
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
        log = open(self.log_file, "wb")
        command = [os.environ["MINISTACK_PYTHON"], "-P", str(Path(__file__).with_name("ministack.py"))]
        self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self._folder.name)
        log.close()
        eventually(self._answers)

    def _answers(self):
        if self._process.poll() is not None:
            raise RuntimeError(f"ministack ended at start:\n{self.log()}")
        try:
            return self.client("sts").get_caller_identity()
        except Exception:
            return None


def eventually(what):
    """Calls until it gives something true; answers with that."""
    until = time.monotonic() + PATIENCE
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not within {PATIENCE} s")
        time.sleep(0.2)


def _indexes(table):
    names = ("IndexName", "KeySchema", "Projection")
    found = [{name: index[name] for name in names} for index in table.get("GlobalSecondaryIndexes", [])]
    return {"GlobalSecondaryIndexes": found} if found else {}


def _credentials():
    return {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": REGION}
