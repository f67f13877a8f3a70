"""Runs the lanes of the test command side by side, as far as they don't wait for each other, and says what each of them took.

A lane is a list of commands. It starts when the lanes are done that it comes after, when nobody else uses what it uses, and when the
machine has room for it. What it says is shown as a whole when it ends. A lane that fails stops those that come after it; the others
are run all the same, and the first failure is named at the end.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Lane:
    name: str
    # Each a list of words, or a function of Python that raises where it fails.
    commands: list
    # Names of lanes, which must be done.
    after: tuple = ()
    # What one lane at a time may use: a build folder, say.
    uses: tuple = ()
    # How many processors it keeps busy; less than one for what waits most of the time.
    load: float = 1
    environment: dict = field(default_factory=dict)


@dataclass
class Result:
    lane: Lane
    code: int
    began: float
    wall: float
    processor: float


class Run:
    def __init__(self, lanes, root, room=None):
        names = [lane.name for lane in lanes]
        assert len(set(names)) == len(names), "two lanes of one name"
        unknown = {name for lane in lanes for name in lane.after} - set(names)
        assert not unknown, f"no lane is named so: {unknown}"
        self.waiting = list(lanes)
        self.running = {}
        self.results = []
        self.room = room or len(os.sched_getaffinity(0)) + 0.5
        self.logs = root / "target" / "lanes"
        self.root = root
        self.began = time.monotonic()

    def all(self):
        """Runs them; whether all passed."""
        self.logs.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            while self.waiting or self.running:
                self._skip()
                self._start()
                if self.running:
                    self._end_one()
        finally:
            self._stop()
        self._report()
        return all(result.code == 0 for result in self.results)

    def _is_ready(self, lane):
        done = {result.lane.name for result in self.results if result.code == 0}
        used = {thing for other, _ in self.running.values() for thing in other.uses}
        busy = sum(other.load for other, _ in self.running.values())
        fits = not self.running or busy + lane.load <= self.room
        return fits and done.issuperset(lane.after) and not used.intersection(lane.uses)

    def _skip(self):
        failed = {result.lane.name for result in self.results if result.code != 0}
        for lane in list(self.waiting):
            missing = failed.intersection(lane.after)
            if missing:
                self.waiting.remove(lane)
                print(f"\n=== {lane.name}: NOT RUN, since `{missing.pop()}` failed", flush=True)
                self.results.append(Result(lane, -1, self._now(), 0, 0))
                failed.add(lane.name)

    def _start(self):
        for lane in list(self.waiting):
            if self._is_ready(lane):
                self.waiting.remove(lane)
                # A process of its own for each lane, in a group of its own: it can be ended with all that it has started.
                pid = os.fork()
                if pid == 0:
                    self._be(lane)
                self.running[pid] = lane, self._now()
                print(f"... {lane.name}", flush=True)

    def _be(self, lane):
        """The process of a lane; doesn't return."""
        code = 1
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            log = os.open(self._log(lane), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(self.root)
            os.environ.update({name: str(value) for name, value in lane.environment.items()})
            code = 0
            for command in lane.commands:
                if callable(command):
                    command()
                else:
                    code = subprocess.run([str(word) for word in command]).returncode
                if code:
                    break
        except BaseException as error:
            code = 1
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            sys.stdout.flush()
            os._exit(code if 0 <= code < 256 else 1)

    def _end_one(self):
        pid, status, usage = os.wait4(-1, 0)
        lane, began = self.running.pop(pid)
        wall, processor = self._now() - began, usage.ru_utime + usage.ru_stime
        result = Result(lane, os.waitstatus_to_exitcode(status), began, wall, processor)
        self.results.append(result)
        end = "" if result.code == 0 else ", FAILED"
        print(f"\n=== {lane.name}\n{self._log(lane).read_text(errors='replace').rstrip()}")
        print(f"--- {lane.name}: {wall:.0f} s, {processor:.0f} s of processor{end}\n", flush=True)

    def _stop(self):
        """Ends what still runs, where this is cut off itself."""
        for pid in self.running:
            os.killpg(pid, signal.SIGTERM)
        until = time.monotonic() + 20
        while self.running and time.monotonic() < until:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            self.running.pop(pid, None)
            time.sleep(0.1)
        for pid in self.running:
            os.killpg(pid, signal.SIGKILL)

    def _report(self):
        print(f"\n{'lane':58}{'began':>7}{'wall s':>8}{'CPU s':>8}")
        for result in sorted(self.results, key=lambda result: result.began):
            end = {0: "", -1: "  not run"}.get(result.code, "  FAILED")
            print(f"{result.lane.name:58}{result.began:7.0f}{result.wall:8.0f}{result.processor:8.0f}{end}")
        wall, processor = self._now(), sum(result.processor for result in self.results)
        print(f"{'together':58}{'':7}{wall:8.0f}{processor:8.0f}  {processor / wall:.1f} processors busy")
        used = subprocess.run(["du", "-sm", self.root / "target"], capture_output=True, text=True).stdout.split()[0]
        free = shutil.disk_usage(self.root).free // 1_000_000
        print(f"target/ takes {used} MB; {free} MB of the disk are free", flush=True)

    def first_failure(self):
        """The name of the lane that failed first."""
        return next(result.lane.name for result in self.results if result.code != 0)

    def _log(self, lane):
        return self.logs / ("".join(letter if letter.isalnum() else "-" for letter in lane.name) + ".log")

    def _now(self):
        return time.monotonic() - self.began
