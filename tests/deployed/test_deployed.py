"""The deployed stack, driven through its endpoint, its queues and its stream: each request that comes twice takes effect once.

The classes run in the order of their names; the last one looks at all that the others made the functions send.
"""

import base64
import json
import os
import re
import subprocess
import unittest
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deployed import permissions
from deployed.pages import dynamodb_commands
from deployed.stack import MAX_RECEIVES, PATIENCE, ROOT, STACK, Stack, eventually, payment, unique

stack = None


def setUpModule():
    global stack
    stack = Stack()
    print(f"\ndeployed in {stack.deployed_in:.0f} s", flush=True)


def tearDownModule():
    effects = tuple(len(stack.items(table)) for table in ("OrdersTable", "LedgerTable", "MovementsTable", "PayoutsTable"))
    print("\neffects counted: %d orders, %d payments, %d movements, %d settlements" % effects, flush=True)
    sent = Counter(request.operation for request in stack.wire.requests())
    print(f"requests to DynamoDB: {dict(sent)}", flush=True)
    stack.close()


class Queues:
    """Payments, sent and looked for."""

    def setUp(self):
        self.sqs = stack.client("sqs")

    def send(self, queue, bodies, group=None):
        """Sends bodies, up to ten in one request; the ids of the messages."""
        ids = []
        for start in range(0, len(bodies), 10):
            entries = []
            for position, body in enumerate(bodies[start:start + 10]):
                entry = {"Id": str(position), "MessageBody": body if isinstance(body, str) else json.dumps(body)}
                if group:
                    # The broker's own de-duplication must not help: it forgets after five minutes.
                    entry |= {"MessageGroupId": group, "MessageDeduplicationId": unique("message")}
                entries.append(entry)
            reply = self.sqs.send_message_batch(QueueUrl=stack.outputs[queue], Entries=entries)
            self.assertEqual(len(reply["Successful"]), len(entries))
            ids += [sent["MessageId"] for sent in reply["Successful"]]
        return ids

    def entries(self, payments):
        """How many entries each payment has in the ledger."""
        found = Counter(item["payment_id"]["S"] for item in stack.items("LedgerTable"))
        return {one: found[one] for one in payments}

    def is_drained(self, queue):
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        left = self.sqs.get_queue_attributes(QueueUrl=stack.outputs[queue], AttributeNames=names)["Attributes"]
        return all(int(left[name]) == 0 for name in names)


class Costs(Queues, unittest.TestCase):
    """What docs/operations/deploy.md computes with: how many writes and reads of records a message takes, and how large a record is."""

    MESSAGES = 100

    def units(self, work):
        """Writes and reads of records while `work` is done: whatever their requests, each is billed by itself."""
        before = len(stack.wire.requests())
        work()
        table = stack.outputs["IdempotencyTable"]
        requests = [request for request in stack.wire.requests()[before:] if table in request.tables()]
        needed = [need for request in requests for need in permissions.needs(request)]
        reads = sum(len(need.keys) for need in needed if "Get" in need.action)
        writes = sum(1 for need in needed if "Get" not in need.action)
        return writes, reads, len(requests)

    def test_a_payment_costs_what_the_page_says(self):
        payments = [payment(unique("priced")) for _ in range(self.MESSAGES)]

        def deliver():
            self.send("PaymentsQueueUrl", payments)
            eventually(lambda: self.is_drained("PaymentsQueueUrl"))

        new = self.units(deliver)
        again = self.units(deliver)
        print(f"\n{self.MESSAGES} new payments: {new}, as duplicates: {again} (writes, reads, requests)", flush=True)
        self.assertEqual(new[:2], (2 * self.MESSAGES, 0))
        # A duplicate's claim fails, and is billed; where it went in a group, the record is read after.
        self.assertEqual(again[0], self.MESSAGES)
        self.assertLessEqual(again[1], self.MESSAGES)
        self.assertLess(new[2], 2 * self.MESSAGES)

    def test_a_record_is_billed_as_one_unit(self):
        # Up to 1 KB is one write unit, up to 4 KB one read unit: names and values, as DynamoDB counts them.
        for output in ("IdempotencyTable",):
            for item in stack.items(output):
                size = sum(len(name) + len(next(iter(value.values()))) for name, value in item.items())
                self.assertLess(size, 1_024, item)


class Doctor(unittest.TestCase):
    """`idempotency doctor` on what is deployed: nothing where it is sound, and each thing that is planted, by its word."""

    # DynamoDB Local's tables have ARNs that no policy names, and the stack for tests is to be deleted.
    IGNORED = ("missing-action", "deletion-protection")

    def setUp(self):
        self.sqs, self.aws = stack.client("sqs"), stack.client("lambda")
        self.queues = {name: stack.outputs[name] for name in ("PaymentsQueueUrl", "OrderedPaymentsQueueUrl")}
        functions = {name: physical for name, kind, physical in stack.resources() if kind == "AWS::Lambda::Function"}
        self.worker, self.reader = functions["PaymentsWorker"], functions["StockMovements"]
        # ministack keeps a template's number as text, which no client reads.
        for mapping in self.aws.list_event_source_mappings(FunctionName=self.worker)["EventSourceMappings"]:
            self.aws.update_event_source_mapping(UUID=mapping["UUID"], ScalingConfig={"MaximumConcurrency": 5})
        # The stack for tests has short times, so that its redeliveries take seconds.
        self.addCleanup(self.set_all, self.attributes("VisibilityTimeout", "RedrivePolicy"))
        for url in self.queues.values():
            policy = json.loads(self.attributes("RedrivePolicy")[url]["RedrivePolicy"]) | {"maxReceiveCount": 5}
            self.set_all({url: {"VisibilityTimeout": "240", "RedrivePolicy": json.dumps(policy)}})

    def attributes(self, *names):
        get = self.sqs.get_queue_attributes
        return {url: get(QueueUrl=url, AttributeNames=list(names)).get("Attributes", {}) for url in self.queues.values()}

    def set_all(self, attributes):
        for url, values in attributes.items():
            self.sqs.set_queue_attributes(QueueUrl=url, Attributes=values)

    def doctor(self, *words, function=None):
        program = Path(os.environ["FUNCTIONS"]) / "idempotency"
        ignored = [word for one in self.IGNORED for word in ("--ignore", one)]
        environment = {
            "PATH": os.environ["PATH"], "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "eu-central-1",
            "AWS_ENDPOINT_URL": stack.endpoint, "AWS_ENDPOINT_URL_DYNAMODB": os.environ["DYNAMODB_LOCAL_ENDPOINT"],
        }
        namespace = "payments-worker" if function in (None, self.worker) else "stock-movements"
        command = [program, "doctor", "--json", "--namespace", namespace, "--table", stack.outputs["IdempotencyTable"], "--function", function or self.worker,
                   # The date of a reply is read when the machine has time for it.
                   "--skew-margin", "10min", "--timeout", "2min", *(words or ("--retention", "56days")), *ignored]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        report = json.loads(done.stdout)
        return {finding["id"] for finding in report["findings"]}, report

    def test_a_sound_stack_has_no_finding(self):
        for function in (self.worker, self.reader):
            found, report = self.doctor(function=function)
            self.assertEqual(found, set(), report)
            print(f"doctor: fine {report['fine']}, not checked {report['not_checked']}", flush=True)

    def test_what_is_planted_is_found(self):
        mapping = self.aws.list_event_source_mappings(FunctionName=self.worker)["EventSourceMappings"][0]["UUID"]
        shard = self.aws.list_event_source_mappings(FunctionName=self.reader)["EventSourceMappings"][0]["UUID"]
        url, sound = self.queues["PaymentsQueueUrl"], self.attributes("VisibilityTimeout", "RedrivePolicy")
        policy = json.loads(sound[url]["RedrivePolicy"])
        dead = self.sqs.get_queue_url(QueueName=policy["deadLetterTargetArn"].rsplit(":", 1)[1])["QueueUrl"]
        variables = self.aws.get_function_configuration(FunctionName=self.worker)["Environment"]["Variables"]

        def of_mapping(which, function, sound, **changed):
            return (lambda: self.aws.update_event_source_mapping(UUID=which, **changed),
                    lambda: self.aws.update_event_source_mapping(UUID=which, **sound), function)

        def of_queue(**changed):
            return lambda: self.sqs.set_queue_attributes(QueueUrl=url, Attributes=changed), lambda: self.set_all(sound), self.worker

        def of_variables(changed):
            update = self.aws.update_function_configuration
            return (lambda: update(FunctionName=self.worker, Environment={"Variables": changed}),
                    lambda: update(FunctionName=self.worker, Environment={"Variables": variables}), self.worker)

        reports = {"FunctionResponseTypes": ["ReportBatchItemFailures"]}
        plants = {
            "visibility-timeout": of_queue(VisibilityTimeout="10"),
            "receive-count": of_queue(RedrivePolicy=json.dumps(policy | {"maxReceiveCount": 3})),
            "failure-retention": of_queue(VisibilityTimeout="3600"),
            "dead-letter-retention": (
                lambda: self.sqs.set_queue_attributes(QueueUrl=dead, Attributes={"MessageRetentionPeriod": "345600"}),
                lambda: self.sqs.set_queue_attributes(QueueUrl=dead, Attributes={"MessageRetentionPeriod": "1209600"}), self.worker),
            "item-failures": of_mapping(mapping, self.worker, reports, FunctionResponseTypes=[]),
            "kill-switch": of_variables(variables | {"IDEMPOTENCY_DISABLED": "true"}),
            "table-variable": of_variables(variables | {"IDEMPOTENCY_TABLE": "another"}),
            "bisect": of_mapping(shard, self.reader, {"BisectBatchOnFunctionError": True}, BisectBatchOnFunctionError=False),
        }
        for word, (plant, undo, function) in plants.items():
            with self.subTest(word):
                plant()
                try:
                    self.assertEqual(self.doctor(function=function)[0], {word})
                finally:
                    undo()
        self.assertEqual(self.doctor("--retention", "20days")[0], {"retention"})
        self.assertEqual(self.doctor()[0], set())


class Movements(unittest.TestCase):
    """Stock movements, through the stream. ministack's mapping goes on behind a batch whatever the function's reply names, so that a
    checkpoint is gone back to by hand here; tests/suite/shards.rs has a mapping that reads replies."""

    def put(self, movements):
        """Puts movements, in their order within an article."""
        records = [{"Data": json.dumps(one).encode(), "PartitionKey": one["sku"]} for one in movements]
        reply = stack.client("kinesis").put_records(StreamName=stack.outputs["MovementsStream"], Records=records)
        self.assertEqual(reply["FailedRecordCount"], 0)

    def movement(self, sku):
        return {"movement_id": unique("movement"), "sku": sku, "delta": 5}

    def entries(self, movements):
        """How many entries each movement has."""
        found = Counter(item["movement_id"]["S"] for item in stack.items("MovementsTable"))
        return [found[one["movement_id"]] for one in movements]

    def deliver(self, movements, first):
        """Delivers a batch of movements, one article each, as a mapping does; the places in it that the reply names."""
        numbers = [f"{first + place:056}" for place in range(len(movements))]
        records = [
            {
                "kinesis": {
                    "partitionKey": one["sku"],
                    "sequenceNumber": number,
                    "data": base64.b64encode(json.dumps(one).encode()).decode(),
                },
                "eventSource": "aws:kinesis",
                "eventID": f"shardId-000000000000:{number}",
                "eventSourceARN": "arn:aws:kinesis:eu-central-1:123456789012:stream/by-hand",
            }
            for one, number in zip(movements, numbers)
        ]
        event = json.dumps({"Records": records}).encode()
        reply = stack.client("lambda").invoke(FunctionName=stack.outputs["StockMovements"], Payload=event)
        answer = json.loads(reply["Payload"].read())
        self.assertNotIn("FunctionError", reply, answer)
        return [numbers.index(item["itemIdentifier"]) for item in answer["batchItemFailures"]]

    def refuse(self, movement, times):
        def is_entry(request):
            return request.body.get("Item", {}).get("movement_id", {}).get("S") == movement["movement_id"]

        stack.wire.fail(is_entry, times)

    def test_each_movement_is_booked_once_however_often_it_is_put(self):
        articles = [unique("article") for _ in range(8)]
        movements = [self.movement(articles[place % 8]) for place in range(64)]
        # The producer's own retry, in the same request and in a later one: each copy has its own sequence number.
        self.put([copy for one in movements for copy in (one, one)])
        self.put(movements)
        # Behind all of them in its shard: when it is booked, they were delivered.
        last = [self.movement(article) for article in articles]
        self.put(last)
        eventually(lambda: set(self.entries(last)) == {1})
        self.assertEqual(set(self.entries(movements)), {1})

    def test_from_the_checkpoint_of_a_reply_on_nothing_is_booked_again(self):
        one, two, three = movements = [self.movement(unique("article")) for _ in range(3)]
        self.refuse(two, times=1)
        self.refuse(three, times=2)
        self.assertEqual(self.deliver(movements, first=100), [1])
        self.assertEqual(self.entries(movements), [1, 0, 0])
        self.assertEqual(self.deliver([two, three], first=101), [1])
        self.assertEqual(self.entries(movements), [1, 1, 0])
        self.assertEqual(self.deliver([three], first=102), [])
        # A mapping that lost its checkpoint.
        self.assertEqual(self.deliver(movements, first=100), [])
        self.assertEqual(self.entries(movements), [1, 1, 1])
        # A claim that has no company leaves by itself, whatever the mapping's batches were.
        self.assertEqual(self.deliver([self.movement(unique("article"))], first=103), [])


class Orders(unittest.TestCase):
    """POST /orders, through the HTTP API."""

    def post(self, key, body):
        headers = {"content-type": "application/json"} | ({"idempotency-key": key} if key else {})
        return stack.post("/orders", json.dumps(body), headers)

    def order(self, amount=1250):
        return {"sku": unique("tea"), "quantity": 2, "amount": amount, "currency": "EUR"}

    def placed(self, order):
        return [item for item in stack.items("OrdersTable") if item["sku"]["S"] == order["sku"]]

    def test_an_order_sent_again_is_placed_once_and_answered_alike(self):
        key, order = unique("key"), self.order()
        first, again = self.post(key, order), self.post(key, order)
        self.assertEqual((first[0], again[0]), (201, 201))
        self.assertNotIn("idempotent-replayed", first[1])
        self.assertEqual(again[1]["idempotent-replayed"], "true")
        self.assertEqual(again[2], first[2])
        self.assertEqual(len(self.placed(order)), 1)

    def test_an_order_sent_eight_times_at_once_is_placed_once(self):
        key, order = unique("key"), self.order()
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(lambda _: self.post(key, order), range(8)))
        statuses = Counter(answer[0] for answer in answers)
        self.assertGreaterEqual(statuses[201], 1, answers)
        self.assertEqual(statuses[201] + statuses[409], 8, answers)
        self.assertEqual(len(self.placed(order)), 1)
        self.assertEqual(self.post(key, order)[0], 201)
        self.assertEqual(len(self.placed(order)), 1)

    def test_a_key_reused_for_another_order_is_refused(self):
        key, order = unique("key"), self.order()
        self.assertEqual(self.post(key, order)[0], 201)
        other = order | {"amount": 1}
        self.assertEqual(self.post(key, other)[0], 422)
        self.assertEqual(len(self.placed(order)), 1)

    def test_an_order_that_failed_may_be_sent_again(self):
        key, order = unique("key"), self.order()
        stack.wire.fail(lambda request: any(item.get("sku", {}).get("S") == order["sku"] for item in request.items()), times=1)
        self.assertGreaterEqual(self.post(key, order)[0], 500)
        self.assertEqual(self.placed(order), [])
        self.assertEqual(self.post(key, order)[0], 201)
        self.assertEqual(len(self.placed(order)), 1)

    def test_a_key_is_required(self):
        order = self.order()
        self.assertEqual(self.post(None, order)[0], 400)
        self.assertEqual(self.placed(order), [])

    def test_a_route_that_is_not_declared_reaches_no_function(self):
        sent = len(stack.wire.requests())
        self.assertEqual(stack.post("/customers", "{}", {"idempotency-key": unique("key")})[0], 404)
        self.assertEqual(len(stack.wire.requests()), sent)


class Outbox(unittest.TestCase):
    """order.created, from the outbox to the ledger. ministack's stream is of its own table, so that here the sweep finds the events."""

    def sweep(self):
        reply = stack.client("lambda").invoke(FunctionName=stack.outputs["OutboxRelay"], Payload=b"{}")
        self.assertNotIn("FunctionError", reply, reply["Payload"].read() if "FunctionError" in reply else "")

    def test_an_order_is_paid_once_however_often_it_is_sent_and_swept(self):
        body = json.dumps({"sku": unique("tea"), "quantity": 1, "amount": 700, "currency": "EUR"})
        headers = {"content-type": "application/json", "idempotency-key": unique("key")}
        order = json.loads(stack.post("/orders", body, headers)[2])["order_id"]
        self.assertEqual(json.loads(stack.post("/orders", body, headers)[2])["order_id"], order)
        for _ in range(2):
            self.sweep()
        event = lambda: next(item for item in stack.items("OutboxTable") if item["aggregate"]["S"] == order)
        eventually(lambda: "published_at" in event())
        self.assertNotIn("pending", event())
        paid = lambda: [item for item in stack.items("LedgerTable") if item["order_id"]["S"] == order]
        eventually(paid)
        self.assertEqual(len(paid()), 1)
        # As if another event of its transaction stood before it: the relay looks for that one. The payment is the same.
        again = {name: value for name, value in event().items() if name not in ("published_at", "expiration")}
        again |= {"id": {"S": "b2" + uuid.uuid4().hex}, "position": {"N": "1"}, "pending": {"S": "b"}}
        stack.local.put_item(TableName=stack.outputs["OutboxTable"], Item=again)
        self.sweep()
        key = {name: again[name] for name in ("aggregate", "id")}
        self.assertIn("published_at", stack.local.get_item(TableName=stack.outputs["OutboxTable"], Key=key)["Item"])
        self.assertEqual(len(paid()), 1)

    def test_an_event_that_was_parked_is_found_mended_and_put_back_as_the_pages_say(self):
        event = {"aggregate": {"S": str(uuid.uuid4())}, "id": {"S": "b1" + uuid.uuid4().hex}}
        # It has no data: it is no event.
        stack.local.put_item(TableName=stack.outputs["OutboxTable"], Item=event | {"pending": {"S": "b"}, "recorded_at": {"N": "1"}})
        reply = stack.client("lambda").invoke(FunctionName=stack.outputs["OutboxRelay"], Payload=b"{}")
        self.assertIn("FunctionError", reply)
        scan = dict(dynamodb_commands("docs/operations/alarms.md", "outbox"))["scan"] | {"TableName": stack.outputs["OutboxTable"]}
        self.assertIn(event, stack.local.scan(**scan)["Items"])
        put_back = dict(dynamodb_commands("docs/operations/records.md", "outbox"))["update_item"]
        stack.local.update_item(**put_back | {"TableName": stack.outputs["OutboxTable"], "Key": event})
        [found] = [item for item in stack.items("OutboxTable") if item["id"] == event["id"]]
        self.assertEqual((found["pending"], "parked_at" in found), ({"S": "b"}, False))
        stack.local.delete_item(TableName=stack.outputs["OutboxTable"], Key=event)
        reply = stack.client("lambda").invoke(FunctionName=stack.outputs["OutboxRelay"], Payload=b'{"parked": "put_back"}')
        self.assertEqual(json.loads(reply["Payload"].read()), {"parked": 0, "put_back": 0, "is_complete": True})


class Payments(Queues, unittest.TestCase):
    """Payments, through the queues."""

    def dead(self, queue, count, sent=None):
        """Takes so many messages off a dead-letter queue, as for a redrive by hand; of those that were `sent`, where other tests have
        dead letters, too."""
        taken = []

        def take():
            url = stack.outputs[queue]
            for message in self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", []):
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                if sent is None or message["MessageId"] in sent:
                    taken.append(message)
            return len(taken) >= count

        eventually(take)
        return taken

    def writes(self, payments):
        """The order in which payments were written to the ledger, refused writes among them."""
        items = (request.body.get("Item", {}) for request in stack.wire.requests() if request.operation == "PutItem")
        ids = [item["payment_id"]["S"] for item in items if "payment_id" in item]
        return [one for one in ids if one in payments]

    def refuse(self, payment_id, times):
        def is_entry(request):
            return request.body.get("Item", {}).get("payment_id", {}).get("S") == payment_id

        stack.wire.fail(is_entry, times)

    def test_each_payment_is_entered_once_however_often_it_is_sent(self):
        payments = [unique("often") for _ in range(20)]
        copies = [payment(one) for _ in range(5) for one in payments]
        self.send("PaymentsQueueUrl", copies)
        eventually(lambda: self.is_drained("PaymentsQueueUrl"))
        self.assertEqual(set(self.entries(payments).values()), {1})

    def test_a_payment_that_comes_by_both_queues_at_once_is_entered_once(self):
        payments = [unique("both") for _ in range(10)]
        with ThreadPoolExecutor(2) as senders:
            senders.submit(self.send, "PaymentsQueueUrl", [payment(one) for one in payments])
            senders.submit(self.send, "OrderedPaymentsQueueUrl", [payment(one) for one in payments], unique("group"))
        eventually(lambda: self.is_drained("PaymentsQueueUrl") and self.is_drained("OrderedPaymentsQueueUrl"))
        self.assertEqual(set(self.entries(payments).values()), {1})

    def test_poison_goes_to_the_dead_letter_queue_and_holds_nobody_up(self):
        payments = [unique("beside") for _ in range(5)]
        poison = unique("not a payment")
        self.send("PaymentsQueueUrl", [poison, *map(payment, payments)])
        eventually(lambda: set(self.entries(payments).values()) == {1})
        self.assertEqual([message["Body"] for message in self.dead("PaymentsDeadLettersUrl", 1)], [poison])
        self.assertEqual(set(self.entries(payments).values()), {1})

    def test_a_group_keeps_its_order_while_one_of_its_payments_fails(self):
        failing, other = [unique("failing") for _ in range(4)], [unique("other") for _ in range(2)]
        self.refuse(failing[1], times=1)
        self.send("OrderedPaymentsQueueUrl", [payment(one) for one in failing], group=unique("group"))
        self.send("OrderedPaymentsQueueUrl", [payment(one) for one in other], group=unique("group"))
        eventually(lambda: self.is_drained("OrderedPaymentsQueueUrl"))
        self.assertEqual(self.writes(failing), [failing[0], failing[1], failing[1], failing[2], failing[3]])
        self.assertEqual(self.writes(other), other)
        self.assertEqual(set(self.entries(failing + other).values()), {1})

    def test_a_redrive_with_new_message_ids_repeats_nothing(self):
        done, broken = unique("done"), unique("broken")
        self.send("PaymentsQueueUrl", [payment(done)])
        eventually(lambda: self.entries([done])[done] == 1)
        # One that fails until it is given up, and one that was done, but whose second copy carries another amount.
        self.refuse(broken, times=MAX_RECEIVES)
        sent = self.send("PaymentsQueueUrl", [payment(broken), payment(done, amount=1)])
        dead = self.dead("PaymentsDeadLettersUrl", 2, sent)
        self.assertEqual(sorted(message["MessageId"] for message in dead), sorted(sent))
        self.assertEqual(self.entries([done, broken]), {done: 1, broken: 0})
        # Mended. Somebody redrives them, and somebody else does so, too.
        bodies = [json.dumps(payment(broken)), json.dumps(payment(done))] * 2
        again = self.send("PaymentsQueueUrl", bodies)
        self.assertFalse(set(again) & set(sent), "a redrive makes new messages")
        eventually(lambda: self.is_drained("PaymentsQueueUrl"))
        self.assertEqual(self.entries([done, broken]), {done: 1, broken: 1})

    def test_a_payment_whose_function_was_killed_is_entered_by_its_successor(self):
        killed = unique("killed")
        functions = {name: physical for name, kind, physical in stack.resources() if kind == "AWS::Lambda::Function"}

        def is_entry(request):
            return request.body.get("Item", {}).get("payment_id", {}).get("S") == killed

        # Nothing is released.
        stack.wire.hang(is_entry, then=lambda: stack.kill(functions["PaymentsWorker"]))
        self.send("PaymentsQueueUrl", [payment(killed)])
        eventually(lambda: self.entries([killed])[killed] == 1)
        eventually(lambda: self.is_drained("PaymentsQueueUrl"))
        self.assertEqual(self.writes([killed]), [killed, killed])
        self.assertEqual(self.entries([killed]), {killed: 1})


class Checkouts(Queues, unittest.TestCase):
    """Checkouts, as the gateway puts them into their queue: ministack has no integration of an HTTP API with SQS."""

    def check_out(self, orders):
        """Sends orders in one batch."""
        entries = [{"Id": str(place), "MessageBody": json.dumps(order)} for place, order in enumerate(orders)]
        reply = self.sqs.send_message_batch(QueueUrl=stack.outputs["CheckoutsQueueUrl"], Entries=entries)
        self.assertEqual(len(reply["Successful"]), len(entries))

    def effects(self, order):
        """What was done for an order, and what undid that: how often each."""
        items = stack.items("EffectsTable")
        ids = {item["effect_id"]["S"] for item in items if item["of"]["S"] == order["order_id"]}
        return {item["what"]["S"]: int(item["times"]["N"]) for item in items if item["of"]["S"] in ids | {order["order_id"]}}

    def order(self, quantity):
        return {"order_id": unique("order"), "quantity": quantity, "amount": 1250}

    def ended(self, orders, *expected):
        eventually(lambda: [set(self.effects(order)) for order in orders] == list(expected) and self.is_drained("CheckoutsQueueUrl"))
        self.assertEqual([self.effects(order) for order in orders], [dict.fromkeys(each, 1) for each in expected])

    def test_a_request_that_is_sent_twice_is_one_checkout_and_one_that_is_refused_is_undone(self):
        orders = [self.order(quantity) for quantity in (2, 101)]
        self.check_out(orders * 3)
        self.ended(orders, {"reserve", "charge", "ship"}, {"reserve", "charge", "refund", "release"})

    def test_a_checkout_whose_function_was_killed_asks_the_bank_and_goes_on(self):
        orders = [self.order(2) for _ in range(2)]
        functions = {name: physical for name, kind, physical in stack.resources() if kind == "AWS::Lambda::Function"}

        def is_charge(request):
            values = request.body.get("ExpressionAttributeValues", {})
            of = values.get(":of", {}).get("S")
            return request.body.get("TableName") == stack.outputs["EffectsTable"] and of == orders[0]["order_id"]

        stack.wire.hang(is_charge, then=lambda: stack.kill(functions["Checkout"]))
        self.check_out(orders)
        self.ended(orders, *[{"reserve", "charge", "ship"}] * 2)


class Settlements(unittest.TestCase):
    """Settlements, by direct invocation."""

    def invoke(self, settlement, kind="RequestResponse"):
        payload = json.dumps(settlement).encode()
        return stack.client("lambda").invoke(FunctionName=stack.outputs["Settlements"], InvocationType=kind, Payload=payload)

    def answer(self, settlement):
        reply = self.invoke(settlement)
        answer = json.loads(reply["Payload"].read())
        self.assertNotIn("FunctionError", reply, answer)
        return answer

    def settlement(self):
        return {"settlement_id": unique("settlement"), "merchant": unique("merchant"), "amount": 1250}

    def payouts(self, settlement):
        return [item["payout_id"]["S"] for item in stack.items("PayoutsTable") if item["settlement_id"]["S"] == settlement["settlement_id"]]

    def test_a_settlement_invoked_twice_is_paid_out_once_and_answered_alike(self):
        settlement = self.settlement()
        first, again = self.answer(settlement), self.answer(settlement)
        self.assertEqual(again, first)
        self.assertEqual(first["settlement_id"], settlement["settlement_id"])
        self.assertEqual(self.payouts(settlement), [first["payout_id"]])

    def test_a_settlement_invoked_asynchronously_is_paid_out_once_and_answered_to_who_asks_later(self):
        settlement = self.settlement()
        for _ in range(3):
            self.assertEqual(self.invoke(settlement, "Event")["StatusCode"], 202)
        eventually(lambda: self.payouts(settlement))
        answer = eventually(lambda: self.settled(settlement))
        self.assertEqual(self.payouts(settlement), [answer["payout_id"]])

    def test_a_settlement_whose_function_was_killed_is_paid_out_by_the_next_try_of_its_state(self):
        settlement = self.settlement()

        def is_payout(request):
            return any(item.get("settlement_id", {}).get("S") == settlement["settlement_id"] for item in request.items())

        stack.wire.hang(is_payout, then=lambda: stack.kill(stack.outputs["Settlements"]))
        states = stack.client("stepfunctions")
        function = stack.client("lambda").get_function_configuration(FunctionName=stack.outputs["Settlements"])
        definition = json.dumps(self.machine(function["FunctionArn"]))
        machine = states.create_state_machine(name="settle", roleArn=function["Role"], definition=definition)
        execution = states.start_execution(stateMachineArn=machine["stateMachineArn"], input=json.dumps(settlement))["executionArn"]
        eventually(lambda: states.describe_execution(executionArn=execution)["status"] != "RUNNING")
        history = states.get_execution_history(executionArn=execution)["events"]
        failed = [event["taskFailedEventDetails"]["error"] for event in history if event["type"] == "TaskFailed"]
        self.assertEqual(set(failed[1:]), {"Idempotency.InFlight"}, failed)
        self.assertEqual(failed[0], "Runtime.ExitError")
        self.assertEqual(states.describe_execution(executionArn=execution)["status"], "SUCCEEDED")
        (payout,) = self.payouts(settlement)
        # The same request, as the state sent it.
        sent = settlement | {"idempotency": {"execution": execution, "state": "Settle"}}
        self.assertEqual(self.answer(sent)["payout_id"], payout)

    def machine(self, function):
        """The state of docs/sources/step-functions.md, with shorter pauses."""
        page = (ROOT / "docs/sources/step-functions.md").read_text()
        state = json.loads(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1].replace("${SettlementsArn}", function))
        state["Parameters"]["Payload"]["merchant.$"] = "$.merchant"
        for retry in state["Retry"]:
            retry["IntervalSeconds"] = 2
        ends = {"Done": {"Type": "Succeed"}, "ReadPayout": {"Type": "Fail"}, "AskAPerson": {"Type": "Fail"}}
        return {"StartAt": "Settle", "States": {"Settle": state} | ends}

    def test_the_audit_finds_a_payout_that_is_missing_and_one_that_is_double(self):
        fine, missing, double = (self.settlement() for _ in range(3))
        payouts = {one["settlement_id"]: self.answer(one)["payout_id"] for one in (fine, missing, double)}
        before = self.audit()
        self.assertGreaterEqual(before["checked"], 3)
        local, table = stack.local, stack.outputs["PayoutsTable"]
        lost = {"payout_id": {"S": payouts[missing["settlement_id"]]}}
        old = local.delete_item(TableName=table, Key=lost, ReturnValues="ALL_OLD")["Attributes"]
        again = unique("payout")
        local.put_item(TableName=table, Item={"payout_id": {"S": again}, "settlement_id": {"S": double["settlement_id"]}})
        after = self.audit()
        local.delete_item(TableName=table, Key={"payout_id": {"S": again}})
        local.put_item(TableName=table, Item=old)
        self.assertEqual(after["missing"] - before["missing"], 1)
        self.assertEqual(after["double"] - before["double"], 1)

    def audit(self):
        reply = stack.client("lambda").invoke(FunctionName=stack.outputs["SettlementsAudit"], Payload=b"{}")
        answer = json.loads(reply["Payload"].read())
        self.assertNotIn("FunctionError", reply, answer)
        return answer

    def settled(self, settlement):
        """The answer; `None` while an asynchronous invocation is at work on it."""
        reply = self.invoke(settlement)
        answer = json.loads(reply["Payload"].read())
        if "FunctionError" in reply:
            self.assertEqual(answer["errorType"], "Idempotency.InFlight", answer)
            return None
        return answer


class Template(unittest.TestCase):
    """What was deployed is what the template says."""

    def test_every_resource_was_made(self):
        made = Counter(kind for _, kind, _ in stack.resources())
        for kind, count in {
            "AWS::Lambda::Function": 7,
            "AWS::Lambda::EventSourceMapping": 5,
            "AWS::SQS::Queue": 8,
            "AWS::Kinesis::Stream": 1,
            "AWS::DynamoDB::Table": 7,
            "AWS::IAM::ManagedPolicy": 5,
            "AWS::CloudWatch::Alarm": 5 * 10 + 3 * 2 + 2 + 2 + 2 + 3 + 2 + 1,
            "AWS::CloudWatch::Dashboard": 1,
            "AWS::ApiGatewayV2::Route": 2,
            "AWS::SNS::Subscription": 1,
        }.items():
            self.assertEqual(made[kind], count, kind)

    def test_batches_report_their_failures_and_queues_give_up(self):
        mappings = stack.client("lambda").list_event_source_mappings()["EventSourceMappings"]
        self.assertEqual(len(mappings), 5)
        for mapping in mappings:
            self.assertEqual(mapping["FunctionResponseTypes"], ["ReportBatchItemFailures"])
            if ":sqs:" in mapping["EventSourceArn"]:
                self.assertEqual(mapping["ScalingConfig"]["MaximumConcurrency"], 5)
        for queue, dead in (("PaymentsQueueUrl", "PaymentsDeadLettersUrl"), ("OrderedPaymentsQueueUrl", "OrderedPaymentsDeadLettersUrl")):
            attributes = self.attributes(queue)
            redrive = json.loads(attributes["RedrivePolicy"])
            self.assertEqual(redrive["deadLetterTargetArn"], self.attributes(dead)["QueueArn"])
            self.assertEqual(int(redrive["maxReceiveCount"]), MAX_RECEIVES)
            self.assertEqual(self.attributes(dead)["MessageRetentionPeriod"], str(14 * 86_400))

    def test_the_stream_gives_up_records_by_retries_and_by_age_and_says_where(self):
        mappings = stack.client("lambda").list_event_source_mappings()["EventSourceMappings"]
        (mapping,) = (mapping for mapping in mappings if ":kinesis:" in mapping["EventSourceArn"])
        self.assertEqual(mapping["MaximumRetryAttempts"], 100)
        self.assertEqual(mapping["MaximumRecordAgeInSeconds"], 6 * 3_600)
        self.assertTrue(mapping["BisectBatchOnFunctionError"])
        self.assertEqual(mapping["ParallelizationFactor"], 2)
        discarded = self.attributes("MovementsDiscardedUrl")["QueueArn"]
        self.assertEqual(mapping["DestinationConfig"]["OnFailure"]["Destination"], discarded)

    def test_asynchronous_invocations_are_bounded_and_what_fails_is_kept(self):
        # SAM names the qualifier, and ministack looks for it.
        client, name = stack.client("lambda"), stack.outputs["Settlements"]
        config = client.get_function_event_invoke_config(FunctionName=name, Qualifier="$LATEST")
        self.assertEqual((config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]), (2, 3_600))
        failed = self.attributes("SettlementsFailedUrl")["QueueArn"]
        self.assertEqual(config["DestinationConfig"]["OnFailure"]["Destination"], failed)

    def attributes(self, queue):
        return stack.client("sqs").get_queue_attributes(QueueUrl=stack.outputs[queue], AttributeNames=["All"])["Attributes"]

    def test_the_default_visibility_is_six_times_the_default_timeout(self):
        # CloudFormation can't multiply, so that the template says both.
        text = (ROOT / "template.yaml").read_text()
        default = lambda name: int(re.search(rf"^  {name}:\n(?:    .*\n)*?    Default: (\d+)", text, re.MULTILINE)[1])
        self.assertGreaterEqual(default("VisibilityTimeout"), 6 * default("FunctionTimeout"))

    def test_alarms_say_what_missing_data_means_and_whom_to_tell(self):
        pages = stack.client("cloudwatch").get_paginator("describe_alarms").paginate()
        alarms = [alarm for page in pages for alarm in page["MetricAlarms"]]
        made = Counter(kind for _, kind, _ in stack.resources())
        self.assertEqual(len(alarms), made["AWS::CloudWatch::Alarm"])
        for alarm in alarms:
            self.assertEqual(alarm["TreatMissingData"], "notBreaching", alarm["AlarmName"])
            self.assertEqual(len(alarm["AlarmActions"]), 1, alarm["AlarmName"])
            self.assertTrue(alarm["AlarmDescription"].strip(), alarm["AlarmName"])

    def test_the_dashboard_is_json_without_holes(self):
        cloudwatch = stack.client("cloudwatch")
        names = [entry["DashboardName"] for entry in cloudwatch.list_dashboards()["DashboardEntries"]]
        self.assertEqual(len(names), 1)
        body = cloudwatch.get_dashboard(DashboardName=names[0])["DashboardBody"]
        self.assertNotIn("${", body)
        self.assertGreaterEqual(len(json.loads(body)["widgets"]), 12)


class Told(unittest.TestCase):
    """What the functions told of what they did."""

    def documents(self):
        """The metrics, in CloudWatch's embedded metric format."""
        return [json.loads(line) for line in self.lines() if line.startswith("{") and '"_aws"' in line]

    def lines(self):
        """All that stands in the functions' log groups."""
        logs = stack.client("logs")
        for name, kind, group in stack.resources():
            if kind == "AWS::Logs::LogGroup" and name != "AccessLog":
                for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group):
                    for event in page["events"]:
                        yield from event["message"].splitlines()

    def total(self, namespace, metric):
        return sum(document.get(metric, 0) for document in self.documents() if document.get("namespace") == namespace)

    def test_the_metrics_tell_what_the_tables_tell(self):
        # A killed invocation tells nothing, and had no effect; a failed run is counted, and had none either.
        for namespace, table in (("orders-api", "OrdersTable"), ("payments-worker", "LedgerTable"), ("settlements", "PayoutsTable"), ("stock-movements", "MovementsTable")):
            runs = self.total(namespace, "idempotency_executions") - self.total(namespace, "idempotency_failures")
            self.assertEqual(runs, len(stack.items(table)), namespace)
        self.assertGreater(self.total("payments-worker", "idempotency_replays"), 0)
        self.assertEqual(self.total("payments-worker", "idempotency_mismatches"), MAX_RECEIVES)
        self.assertEqual(self.total("payments-worker", "idempotency_takeovers"), 1)
        self.assertEqual(self.total("orders-api", "idempotency_mismatches"), 1)

    def test_metrics_have_the_namespace_and_the_dimensions_that_alarms_look_at(self):
        documents, ours = self.documents(), f"LambdaIdempotency/{STACK}"
        self.assertTrue(documents)
        pages = stack.client("cloudwatch").get_paginator("describe_alarms").paginate()
        looked_at = {alarm["Namespace"] for page in pages for alarm in page["MetricAlarms"]}
        self.assertEqual({namespace for namespace in looked_at if not namespace.startswith("AWS/")}, {ours})
        for document in documents:
            (directive,) = document["_aws"]["CloudWatchMetrics"]
            self.assertEqual(directive["Namespace"], ours)
            # The library's metrics, and the relay's own.
            dimensions = [["function"]] if "function" in document else [["namespace", "operation"], ["namespace"]]
            self.assertEqual(directive["Dimensions"], dimensions)
            for metric in directive["Metrics"]:
                self.assertIn(metric["Name"], document)

    def test_no_token_and_no_payload_is_logged(self):
        # Every token of these tests begins with one of the words that `unique` is given, and ends in a random number.
        told = "\n".join(self.lines())
        self.assertIn("payment entered", told)
        self.assertIn('"namespace":"orders-api"', told)
        for secret in sorted(unique.given):
            self.assertNotIn(secret, told)


class UsedPermissions(unittest.TestCase):
    """What the functions sent, against what their roles allow: neither more nor less."""

    def roles(self):
        functions = {name: physical for name, kind, physical in stack.resources() if kind == "AWS::Lambda::Function"}
        client = stack.client("lambda")
        return {
            name: client.get_function_configuration(FunctionName=physical)["Role"].rpartition("/")[2]
            for name, physical in functions.items()
        }

    def used(self):
        """What each function needed, told apart by the key that it signed with."""
        used = {}
        for request in stack.wire.requests():
            used.setdefault(request.access_key, []).extend(permissions.needs(request))
        # Each function does something that no other does, which tells who it is.
        own = {
            stack.outputs["OrdersTable"]: "OrdersApi",
            stack.outputs["LedgerTable"]: "PaymentsWorker",
            stack.outputs["MovementsTable"]: "StockMovements",
            stack.outputs["PayoutsTable"]: "Settlements",
            stack.outputs["EffectsTable"]: "Checkout",
            "pending": "OutboxRelay",
        }
        by_function = {}
        for needed in used.values():
            reads_whole = any(need[:2] == ("dynamodb:Scan", stack.outputs["IdempotencyTable"]) for need in needed)
            (name,) = {"SettlementsAudit"} if reads_whole else {own[need.table] for need in needed if need.table in own}
            self.assertNotIn(name, by_function, "one function, one key")
            by_function[name] = needed
        return by_function

    def test_the_roles_allow_what_was_used_and_nothing_else(self):
        iam, used = stack.client("iam"), self.used()
        roles = self.roles()
        self.assertEqual(set(used), set(roles))
        for name, role in roles.items():
            allowed = list(permissions.allowed(iam, role))
            uses, may = {need[:2] for need in used[name]}, {entry[:2] for entry in allowed}
            if name == "SettlementsAudit":
                # For a key that the payouts don't have.
                may = {one for one in may if one[0] != "dynamodb:Query"}
            if name == "Checkout":
                # Its records have the worker's policy. Which requests go alone and which in a group depends on when its runs end.
                uses, may = ({one for one in either if one[1] != stack.outputs["IdempotencyTable"]} for either in (uses, may))
            self.assertEqual(uses, may, name)
            for need in used[name]:
                passes = any(entry[:2] == need[:2] and permissions.lets(entry[2], need.keys) for entry in allowed)
                self.assertTrue(passes, f"{name}: {need}")

    def test_a_role_is_confined_to_the_records_of_its_namespace(self):
        iam, used, roles = stack.client("iam"), self.used(), self.roles()
        other = {"OrdersApi": "PaymentsWorker", "PaymentsWorker": "StockMovements", "StockMovements": "Settlements", "Settlements": "Checkout", "Checkout": "OrdersApi"}
        records = stack.outputs["IdempotencyTable"]
        # The relay keeps no records.
        for name in other:
            role = roles[name]
            allowed = [entry for entry in permissions.allowed(iam, role) if entry[1] == records]
            foreign = [need for need in used[other[name]] if need.table == records]
            self.assertTrue(allowed and foreign)
            for entry in allowed:
                self.assertFalse(any(permissions.lets(entry[2], need.keys) for need in foreign), entry)


if __name__ == "__main__":
    unittest.main()
