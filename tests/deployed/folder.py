"""The SAM template of any folder, in the emulator: `scripts/deployment deploy FOLDER`. The tests of new functions take the same steps."""

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from deployed.emulator import Emulator

STACK = "local"


def build(folder):
    """Builds the template with SAM; the folder that has the result. `sam build` of the user has another one."""
    built = folder / ".aws-sam/emulator/build"
    command = [os.environ["SAM"], "build", "--beta-features", "--build-dir", str(built)]
    architecture = ["--parameter-overrides", f"Architecture={os.environ['ARCHITECTURE']}"]
    # Its own session, so that an interrupt ends the compilers, too.
    process = subprocess.Popen(
        [*command, *architecture], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    if process.returncode:
        raise RuntimeError(f"sam build failed in {folder}:\n{said}")
    return built


def deploy(emulator, built, stack):
    """Deploys what `build` made, and makes the stack's tables in DynamoDB Local; the stack's outputs."""
    outputs = emulator.sam_deploy(built, stack, {"Architecture": os.environ["ARCHITECTURE"], "DeletionProtection": "false"})
    tables = [name for _, kind, name in emulator.resources(stack) if kind == "AWS::DynamoDB::Table"]
    emulator.keep(*tables, ttl=tables)
    return outputs


def show(folder, outputs, emulator):
    exports = emulator.settings() | {"AWS_ENDPOINT_URL_DYNAMODB": os.environ["DYNAMODB_LOCAL_ENDPOINT"]}
    print(f"The stack `{STACK}` is deployed. Its outputs:\n")
    for name, value in outputs.items():
        print(f"{name}={shlex.quote(value)}")
    print("\nFor the AWS CLI in another terminal:\n")
    for name, value in exports.items():
        print(f"export {name}={value}")
    print(f"\nThe log of the functions is in {emulator.log_file}", "Ctrl-C ends it all.", sep="\n", flush=True)


def interrupt(*_):
    # Once: a second signal would interrupt the end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(folder):
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    # PR_SET_PDEATHSIG: a script that ended by a signal has not passed it on.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    ready = False
    try:
        print(f"Builds {folder}: some minutes the first time", file=sys.stderr)
        built = build(folder)
        print(f"Deploys it as the stack `{STACK}`", file=sys.stderr)
        with contextlib.closing(Emulator(f"deployed-{folder.name}")) as emulator:
            show(folder, deploy(emulator, built, STACK), emulator)
            ready = True
            signal.pause()
    except KeyboardInterrupt:
        sys.exit(0 if ready else 130)
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
