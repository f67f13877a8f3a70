"""Runs tests of one program in a process group of their own, with a limit of time and of memory, until the first of them fails."""

import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

from .places import OUT, TREE

# A mutant that allocates without end must not take the machine with it.
MOST_BYTES = 8 * 1024**3
ENDED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", re.MULTILINE)
# The same cases each time: what a test reaches doesn't change from run to run. No case is made smaller or kept.
SAME_CASES = {
    "PROPTEST_RNG_SEED": "1",
    "PROPTEST_MAX_SHRINK_ITERS": "0",
    "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true",
    "RUST_BACKTRACE": "0",
    # In a switch both forms have room on the stack.
    "RUST_MIN_STACK": str(16 * 1024**2),
}


@dataclass
class End:
    """How a run ended: `passed`, `failed` or `time`."""

    how: str
    failed: list = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0
    output: str = ""


def run(executable, arguments, limit, environment):
    folder = tempfile.mkdtemp(prefix="run-", dir=OUT)
    try:
        return run_in(folder, [executable, *arguments], limit, environment)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_in(folder, command, limit, environment):
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=TREE,
        env={**os.environ, **SAME_CASES, "CARGO_MANIFEST_DIR": str(TREE), "TMPDIR": folder, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES)),
    )
    output, how = follow(process, began + limit)
    if how != "passed":
        os.killpg(process.pid, signal.SIGKILL)
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if how == "passed" and process.returncode != 0:
        how = "failed"
    failed = [name for name, result in ENDED.findall(output) if result == "FAILED"]
    return End(how, failed, time.monotonic() - began, usage.ru_utime + usage.ru_stime, output)


def follow(process, until):
    """What was printed, up to the end, the first failure, or the limit."""
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = until - time.monotonic()
            if left <= 0:
                return output.decode(errors="replace"), "time"
            if not selector.select(left):
                continue
            piece = os.read(process.stdout.fileno(), 65_536)
            if not piece:
                return output.decode(errors="replace"), "passed"
            output += piece
            if b"... FAILED\n" in piece or b"FAILED" in output[-80:]:
                text = output.decode(errors="replace")
                if any(result == "FAILED" for _, result in ENDED.findall(text)):
                    return text, "failed"
