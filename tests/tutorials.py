#!/usr/bin/env python3
"""Does what the tutorials of docs/tutorials say, command by command, and compares what is said then.

    tests/tutorials.py [NAME…]   all of them, or these

A block of `sh` is run as it is written; the block of `text` after it is what it must print, where `…` stands for anything, and a line
must come somewhere. A comment before a block says what else becomes of it. `~/lambda-idempotency` is this repository.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "tutorials"
# The reader's own folder: outside of the repository, whose workspace it doesn't belong to.
HOME = Path(tempfile.gettempdir()) / f"tutorials-{os.getpid()}"
# Longer than a first build takes on a busy machine.
PATIENCE = 1_200


def blocks(page):
    """The blocks of a page, each with its language and the comment before it."""
    found = re.finditer(r"(?:^<!-- ([^\n]*) -->\n)?^```(sh|text)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [(note or "", language, text) for note, language, text in (match.groups() for match in found)]


def missing(expected, said):
    """The first line of what is expected that wasn't said: each is a line by itself, but for what `…` at its ends stands for."""
    lines = [line.strip() for line in said.splitlines()]
    for line in expected.strip().splitlines():
        pattern = re.compile(".*".join(map(re.escape, line.strip().split("…"))))
        found = next((own for own in lines if pattern.fullmatch(own)), None)
        if found is None:
            return line
        lines.remove(found)
    return None


def configuration():
    """Cargo's, for the new functions and for this repository's programs alike: the repository's variables of the environment and its
    profile, so that neither builds again what the other has built. Without incremental builds of the library, which is built once."""
    profile = re.search(r"^\[profile\.dev\]\n.*", (ROOT / "Cargo.toml").read_text(), re.MULTILINE | re.DOTALL)[0]
    packages = '[profile.dev.package."*"]\n'
    assert packages in profile, profile
    profile = profile.replace(packages, packages + "incremental = false\n")
    return f"{(ROOT / '.cargo' / 'config.toml').read_text()}\n{profile}"


class Reader:
    """A reader of one page, with two terminals."""

    def __init__(self, environment):
        self.environment = environment
        self.folder = HOME
        self.shell = ""
        self.watch = None
        self.log = HOME / "watch.log"
        self.port = int(subprocess.check_output([ROOT / "scripts" / "with", "free-port"]))

    def local(self, text):
        """A command on this machine: cargo-lambda on its own port, and the API's address as the first terminal says it."""
        text = text.replace("cargo lambda watch", f"cargo lambda watch --invoke-address 127.0.0.1 --invoke-port {self.port}")
        text = text.replace("cargo lambda invoke", f"cargo lambda invoke --invoke-address 127.0.0.1 --invoke-port {self.port}")
        text = text.replace("localhost:9000", f"127.0.0.1:{self.port}")
        if "http://127.0.0.1:…" in text:
            text = text.replace("http://127.0.0.1:…", re.search(r"AWS_ENDPOINT_URL_DYNAMODB=(\S+)", self.log.read_text())[1])
        return text

    def types(self, text):
        """Types a block into the second terminal; what is said. Folders and variables stay from block to block."""
        done = subprocess.run(
            ["bash", "-c", f"cd {self.folder}\n{self.shell}\nset -e\n{self.local(text)}\npwd > {HOME}/folder"],
            env=self.environment, capture_output=True, text=True, timeout=PATIENCE)
        if (HOME / "folder").exists():
            self.folder = (HOME / "folder").read_text().strip()
        self.shell += "".join(line + "\n" for line in self.local(text).splitlines() if re.match(r"(export |\w+=)", line))
        self.locked()
        return done.returncode, f"{done.stdout}\n{done.stderr}"

    def locked(self):
        """A new function gets the repository's versions of its dependencies, which are at hand."""
        lock = Path(self.folder, "Cargo.lock")
        if not lock.exists() and lock.with_name("Cargo.toml").exists():
            shutil.copy(ROOT / "Cargo.lock", lock)

    def leaves_running(self, text):
        with self.log.open("w") as log:
            self.watch = subprocess.Popen(
                ["bash", "-c", f"cd {self.folder}\n{self.shell}\n{self.local(text)}"],
                env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        until = time.monotonic() + PATIENCE
        while True:
            assert self.watch.poll() is None and time.monotonic() < until, f"it didn't start:\n{self.log.read_text()}"
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.2)

    def leaves(self):
        if self.watch:
            os.killpg(self.watch.pid, signal.SIGTERM)
            self.watch.wait()


def follow(name, environment):
    reader = Reader(environment)
    said, command = "", ""
    try:
        code = 0
        for note, language, text in blocks((PAGES / f"{name}.md").read_text()):
            # What fails on purpose is an error of the function, which the page shows.
            if code and not (language == "text" and text.startswith("Error: ")):
                raise SystemExit(f"{name}: this ended with {code}:\n{command}\n{said}")
            if note.startswith("not here"):
                continue
            if note == "until the end":
                reader.leaves_running(text)
            elif language == "sh":
                command = text
                code, said = reader.types(text)
            elif line := missing(text, said):
                watched = reader.log.read_text()[-3_000:] if reader.watch else ""
                raise SystemExit(f"{name}: after\n{command}\nthe page shows\n{line}\nand this was said:\n{said}\n{watched}")
            else:
                code = 0
        print(f"{name}: as it is written", flush=True)
    finally:
        reader.leaves()


def run(names):
    HOME.mkdir()
    (HOME / "lambda-idempotency").symlink_to(ROOT)
    (HOME / ".cargo").mkdir()
    (HOME / ".cargo" / "config.toml").write_text(configuration())
    home = Path.home()
    environment = os.environ | {
        "HOME": str(HOME),
        "CARGO_HOME": os.environ.get("CARGO_HOME", str(home / ".cargo")),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(home / ".rustup")),
        "CARGO_TARGET_DIR": str(ROOT / "target"),
    }
    for name in names or sorted(page.stem for page in PAGES.glob("*.md")):
        follow(name, environment)


def main():
    if "CARGO_LAMBDA" not in os.environ:
        os.execv(ROOT / "scripts" / "with", ["with", "cargo-lambda", "aws", "--", *sys.argv])
    # Ended by a signal, it ends what it started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(sys.argv[1:])
    finally:
        shutil.rmtree(HOME, ignore_errors=True)


main()
