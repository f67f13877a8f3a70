"""A program that is measured: it takes jobs, one a line, and says what each of them took."""

import json
import os
import subprocess
import sys

from driver import tools


# A function's memory is paid for whether it gives any back or not.
KEEP_MEMORY = {"MIMALLOC_PURGE_DELAY": "-1"}


class Contender:
    """A process that takes jobs, one a line."""

    def __init__(self, name, endpoint, table):
        template = tools.BENCHES / "message.json"
        peers = tools.BENCHES / "peers"
        request = tools.BENCHES / "request.json"
        folder = tools.NODE_HOME if "typescript" in name else None
        python = [tools.PYTHON_HOME / "bin" / "python", peers / "powertools.py", endpoint, table, template]
        match name:
            case "powertools-python":
                command = python
            case "powertools-python-kinesis":
                command = [*python, tools.BENCHES / "record.json"]
            case "powertools-typescript":
                command = ["node", peers / "powertools.mjs", endpoint, table, template]
            case "web-typescript-bare":
                command = ["node", peers / "powertools-web.mjs", endpoint, table, request, "bare"]
            case "web-typescript":
                command = ["node", peers / "powertools-web.mjs", endpoint, table, request, "guarded"]
            case _:
                command = [tools.program("benches"), "contender", name, endpoint, table]
        self.name = name
        environment = {**os.environ, **KEEP_MEMORY}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def work(self, prefix, batches, size, *, runs, receives=1):
        """Does the job, in which so many handlers have to run."""
        job = {"prefix": prefix, "batches": batches, "size": size, "receives": receives}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended at {job}")
        report = json.loads(line)
        if report["ran"] != runs:
            sys.exit(f"{self.name}: {report['ran']} ran instead of {runs}, at {job}")
        return report
