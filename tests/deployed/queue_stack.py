"""A stack of one queue worker, driven: what each such stack must show, however it was deployed."""

import json

from deployed import permissions
from deployed.emulator import ROOT, eventually


class QueueStack:
    """For a test case. It has `emulator`, the stack's `outputs` (QueueUrl, DeadLettersUrl, LedgerTable, IdempotencyTable), the physical
    name of the `function` and the `namespace` of its records."""

    def send(self, queue, payment):
        self.emulator.client("sqs").send_message(QueueUrl=self.outputs[queue], MessageBody=json.dumps(payment))

    def is_drained(self):
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        sqs = self.emulator.client("sqs")
        left = sqs.get_queue_attributes(QueueUrl=self.outputs["QueueUrl"], AttributeNames=names)["Attributes"]
        return all(int(left[name]) == 0 for name in names)

    def requests(self, table):
        return [request for request in self.emulator.wire.requests() if self.outputs[table] in request.tables()]

    def drive(self, payment):
        """Sends a payment in two messages, one after the other, and looks for its one effect."""
        before = len(self.requests("LedgerTable"))
        for _ in range(2):
            claims = len(self.requests("IdempotencyTable"))
            self.send("QueueUrl", payment)
            eventually(self.is_drained)
            self.assertGreater(len(self.requests("IdempotencyTable")), claims)

        # The effect is counted where the function sends it, so that a second one would show although it writes the same item.
        self.assertEqual([request.operation for request in self.requests("LedgerTable")[before:]], ["PutItem"])
        (entry,) = self.emulator.items(self.outputs["LedgerTable"])
        self.assertEqual(entry["payment_id"], {"S": payment["payment_id"]})
        (record,) = self.emulator.items(self.outputs["IdempotencyTable"])
        self.assertEqual(record["status"], {"S": "COMPLETED"})
        self.assertTrue(record["id"]["S"].startswith(f"{self.namespace}#"), record)
        sqs = self.emulator.client("sqs")
        self.assertNotIn("Messages", sqs.receive_message(QueueUrl=self.outputs["DeadLettersUrl"]))

    def drive_batch(self, payments):
        """Has payments delivered in batches, and once more when they are done; each has one effect."""
        before = len(self.requests("LedgerTable"))
        for _ in range(2):
            self.deliver(payments)
        written = [item["payment_id"]["S"] for request in self.requests("LedgerTable")[before:] for item in request.items()]
        self.assertEqual(sorted(written), sorted(one["payment_id"] for one in payments))
        # The claims of a batch leave in one request, which takes permissions of its own.
        self.assertIn("BatchExecuteStatement", {request.operation for request in self.requests("IdempotencyTable")})

    def deliver(self, payments):
        """Sends them while the mapping is off, so that it finds them together."""
        client = self.emulator.client("lambda")
        (mapping,) = client.list_event_source_mappings(FunctionName=self.function)["EventSourceMappings"]
        client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        eventually(lambda: client.get_event_source_mapping(UUID=mapping["UUID"])["State"] == "Disabled")
        entries = [{"Id": str(place), "MessageBody": json.dumps(one)} for place, one in enumerate(payments)]
        reply = self.emulator.client("sqs").send_message_batch(QueueUrl=self.outputs["QueueUrl"], Entries=entries)
        self.assertEqual(len(reply["Successful"]), len(entries))
        client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
        eventually(self.is_drained)

    def assert_permitted(self):
        """The function's role allows all that it sent to tables, and to the records of its namespace alone."""
        role = self.emulator.client("lambda").get_function_configuration(FunctionName=self.function)["Role"].rpartition("/")[2]
        allowed = list(permissions.allowed(self.emulator.client("iam"), role))
        needed = [need for request in self.emulator.wire.requests() for need in permissions.needs(request)]
        tables = {self.outputs["LedgerTable"], self.outputs["IdempotencyTable"]}
        needed = [need for need in needed if need.table in tables]
        self.assertEqual({need.table for need in needed}, tables)
        for need in needed:
            passes = any(entry[:2] == need[:2] and permissions.lets(entry[2], need.keys) for entry in allowed)
            self.assertTrue(passes, need)
        records = [entry for entry in allowed if entry[1] == self.outputs["IdempotencyTable"]]
        self.assertTrue(records)
        for _, _, patterns in records:
            self.assertFalse(permissions.lets(patterns, [f"another-{self.namespace}#pay#1"]))
        self.assertEqual({entry[0] for entry in allowed if entry[1] == self.outputs["LedgerTable"]}, {"dynamodb:PutItem"})

    def test_its_alarms_are_there(self):
        alarms = self.emulator.client("cloudwatch").describe_alarms()["MetricAlarms"]
        namespaces = {dimension["Value"] for alarm in alarms for dimension in alarm["Dimensions"] if dimension["Name"] == "namespace"}
        self.assertEqual(namespaces, {self.namespace})
        variables = self.emulator.client("lambda").get_function_configuration(FunctionName=self.function)["Environment"]["Variables"]
        looked_at = {alarm["Namespace"] for alarm in alarms if not alarm["Namespace"].startswith("AWS/")}
        self.assertEqual(looked_at, {variables["METRIC_NAMESPACE"]})
        pieces = (ROOT / "infra" / f"{piece}.yaml" for piece in ("alarms", "queue-alarms", "table"))
        declared = sum(piece.read_text().count("Type: AWS::CloudWatch::Alarm") for piece in pieces)
        self.assertEqual(len(alarms), declared)
