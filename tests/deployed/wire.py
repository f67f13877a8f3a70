"""A wire between the functions and DynamoDB, on which requests are recorded and can be made to fail."""

import http.client
import http.server
import json
import re
import threading
from dataclasses import dataclass

# How long a test waits for anything, in seconds, on a machine that does much else.
PATIENCE = 180

STATEMENT = re.compile(r'\s*(INSERT INTO|UPDATE)\s+"([^"]+)"', re.IGNORECASE)


@dataclass(frozen=True)
class Request:
    """One request: who signed it, what it asks for, and of which tables."""

    access_key: str
    operation: str
    body: dict

    def tables(self):
        if "TableName" in self.body:
            return [self.body["TableName"]]
        if "RequestItems" in self.body:
            return list(self.body["RequestItems"])
        if "TransactItems" in self.body:
            return [action["TableName"] for _, action in self.actions()]
        return [table for _, table, _ in self.statements()]

    def actions(self):
        """Of a transaction: (Put, Update, Delete or ConditionCheck; what it says)."""
        for item in self.body.get("TransactItems", []):
            yield from item.items()

    def items(self):
        """What it puts, whole."""
        single = [self.body["Item"]] if "Item" in self.body else []
        return single + [action["Item"] for _, action in self.actions() if "Item" in action]

    def statements(self):
        """Of a batch: (verb, table, parameters)."""
        for statement in self.body.get("Statements", []):
            match = STATEMENT.match(statement["Statement"])
            if not match:
                raise ValueError(f"a statement that this wire doesn't know: {statement['Statement']}")
            yield match[1].upper().split()[0], match[2], statement.get("Parameters", [])


class Wire:
    """Relays to `upstream`, a host and a port."""

    def __init__(self, upstream):
        self._upstream = upstream
        self._lock = threading.Lock()
        self._requests = []
        self._faults = []
        wire = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                wire._relay(self)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = "http://127.0.0.1:%d" % self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def requests(self):
        with self._lock:
            return list(self._requests)

    def fail(self, matches, times):
        """The next requests that match are refused, never forwarded: an error that no SDK retries."""
        with self._lock:
            self._faults.append([matches, times, None])

    def hang(self, matches, then):
        """The next request that matches gets no answer at all, and is never forwarded; `then` is called when it has come."""
        with self._lock:
            self._faults.append([matches, 1, then])

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _fault(self, request):
        with self._lock:
            self._requests.append(request)
            for fault in self._faults:
                if fault[1] > 0 and fault[0](request):
                    fault[1] -= 1
                    return fault
        return None

    def _relay(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        signed = re.search(r"Credential=([^/]+)/", handler.headers.get("Authorization", ""))
        target = handler.headers.get("X-Amz-Target", "").rpartition(".")[2]
        request = Request(signed[1] if signed else "", target, json.loads(body or b"{}"))
        fault = self._fault(request)
        if fault and fault[2]:
            fault[2]()
            # Longer than any function of these tests lives.
            threading.Event().wait(PATIENCE)
            handler.close_connection = True
            return
        if fault:
            error = {"__type": "com.amazonaws.dynamodb.v20120810#ValidationException", "message": "refused on purpose"}
            status, headers, answer = 400, [("Content-Type", "application/x-amz-json-1.0")], json.dumps(error).encode()
        else:
            status, headers, answer = self._forward(handler, body)
        handler.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer)))
        try:
            handler.end_headers()
            handler.wfile.write(answer)
        except OSError:
            # The function was killed meanwhile.
            handler.close_connection = True

    def _forward(self, handler, body):
        connection = http.client.HTTPConnection(*self._upstream, timeout=PATIENCE)
        try:
            connection.request("POST", handler.path, body, dict(handler.headers))
            reply = connection.getresponse()
            return reply.status, reply.getheaders(), reply.read()
        finally:
            connection.close()
