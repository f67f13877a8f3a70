"""The stack: SAM deploys the template as it is, into the emulator."""

import http.client
import os
import signal
import time
import urllib.parse
import uuid
from pathlib import Path

from deployed.emulator import PATIENCE, ROOT, Emulator, eventually

__all__ = ["MAX_RECEIVES", "PATIENCE", "ROOT", "STACK", "Stack", "eventually", "payment", "unique"]

STACK = "once"

# Long enough for a cold start on a machine that does much else, and short, since the claim of a function that is killed lasts for the
# function's timeout and a second: its message comes again after that. What is received every five seconds meanwhile, as
# `ministack.py` has it, isn't received too often. The rest is as the template has it.
TIMEOUT = 30
VISIBILITY = 40
MAX_RECEIVES = 8
TABLES = ("IdempotencyTable", "OrdersTable", "LedgerTable", "OutboxTable", "MovementsTable", "PayoutsTable", "EffectsTable")


class Stack:
    """The deployed template, and how to reach what it made."""

    def __init__(self):
        self._emulator = Emulator("ministack")
        self.wire, self.client, self.log = self._emulator.wire, self._emulator.client, self._emulator.log
        self.local, self.endpoint = self._emulator.local, self._emulator.endpoint
        try:
            began = time.monotonic()
            self.outputs = self._emulator.sam_deploy(os.environ["BUILT"], STACK, {
                "Architecture": os.environ["ARCHITECTURE"],
                "FunctionTimeout": TIMEOUT,
                "VisibilityTimeout": VISIBILITY,
                "MaxReceiveCount": MAX_RECEIVES,
                "SweepAfterSeconds": 0,
                "AuditAfterSeconds": 0,
                "DeletionProtection": "false",
                "AlarmEmail": "somebody@example.com",
            })
            self.deployed_in = time.monotonic() - began
            self._emulator.keep(*(self.outputs[output] for output in TABLES), ttl=[self.outputs["IdempotencyTable"]])
        except BaseException:
            self.close()
            raise

    def items(self, output):
        """The items of a table, named by the stack's output."""
        return self._emulator.items(self.outputs[output])

    def post(self, path, body, headers):
        """A request to the HTTP API: (status, headers, body)."""
        # The API answers under its own host name on AWS; here one address serves everybody.
        host = urllib.parse.urlsplit(self.outputs["OrdersUrl"]).netloc.split(".")[0]
        connection = http.client.HTTPConnection("127.0.0.1", self._emulator.port, timeout=PATIENCE)
        try:
            connection.request("POST", f"/_aws/execute-api/{host}/$default{path}", body, headers)
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read().decode()
        finally:
            connection.close()

    def kill(self, function):
        """Ends the function's processes at once, idle ones too, as Lambda ends one that is out of memory."""
        killed = 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                variables = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            ours = f"AWS_ENDPOINT_URL_DYNAMODB={self.wire.endpoint}".encode() in variables
            if ours and f"AWS_LAMBDA_FUNCTION_NAME={function}".encode() in variables:
                os.kill(int(process.name), signal.SIGKILL)
                killed += 1
        assert killed, f"{function} doesn't run"

    def resources(self):
        return self._emulator.resources(STACK)

    def close(self):
        self._emulator.close()


def payment(payment_id, amount=1250):
    return {"payment_id": payment_id, "order_id": f"order-of-{payment_id}", "amount": amount, "currency": "EUR"}


def unique(prefix):
    """A token that no other test has; all of them are kept in `unique.given`."""
    token = f"{prefix}-{uuid.uuid4().hex[:12]}"
    unique.given.add(token)
    return token


unique.given = set()
