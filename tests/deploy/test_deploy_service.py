"""The shipped systemd unit, its settings, and a key for each user."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from proxy_harness import DEPLOY

from realtime_tts.cli.main import cli
from realtime_tts.config import AccessConfig, ServerConfig
from realtime_tts.config_loader import load_settings
from realtime_tts.errors import Unauthorized
from realtime_tts.server.admission.auth import Authenticator

PROGRAM = "/opt/realtime-tts/.venv/bin/realtime-tts"


def unit_settings() -> dict[str, str]:
    """Names and values of all sections; none may stand twice."""
    lines = (DEPLOY / "realtime-tts.service").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("=") for line in lines if line and line[0] not in "#[;"]
    assert len({name for name, _, _ in pairs}) == len(pairs)
    return {name: value for name, _, value in pairs}


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    text = (DEPLOY / "realtime-tts.service").read_text(encoding="utf-8")
    unit = tmp_path / "realtime-tts.service"
    unit.write_text(text.replace(PROGRAM, "/bin/true"), encoding="utf-8")  # it must be there to be verified
    result = subprocess.run([program, "verify", "--man=no", str(unit)], capture_output=True, text=True)
    complaints = [line for line in (result.stdout + result.stderr).splitlines() if "realtime-tts" in line]
    assert (result.returncode, complaints) == (0, [])


def test_the_unit_runs_the_server_as_a_dynamic_user_and_lets_it_drain() -> None:
    settings = unit_settings()
    program, *arguments = shlex.split(settings["ExecStart"])
    assert program == PROGRAM
    assert arguments == ["serve", "--config", "/etc/realtime-tts/realtime-tts.toml"]
    assert settings["DynamicUser"] == "yes"
    assert settings["KillMode"] == "mixed", "a worker that gets SIGTERM too would refuse what is still to be spoken"
    assert float(settings["TimeoutStopSec"]) > ServerConfig().timeouts.drain_timeout_s + 5
    assert "PrivateDevices" not in settings, "it hides the GPU"


def test_the_settings_are_for_a_proxy_on_the_same_machine() -> None:
    server = load_settings(toml_text=(DEPLOY / "realtime-tts.toml").read_text(encoding="utf-8")).server
    assert (server.host, server.port) == ("127.0.0.1", 8000)
    assert server.access.api_key_file == "/etc/realtime-tts/keys.txt"


def test_each_user_has_a_key_that_can_be_taken_away(tmp_path: Path) -> None:
    file, keys = tmp_path / "keys.txt", {}
    for name in ("phone app", "Ada's laptop"):
        result = CliRunner().invoke(cli, ["keys", "create", "--name", name, "--append", str(file)])
        keys[name] = result.output.splitlines()[0].removeprefix("key:").strip()
    assert not any(key in file.read_text() for key in keys.values())

    def tenant(name: str) -> str:
        authenticator = Authenticator(ServerConfig(host="0.0.0.0", access=AccessConfig(api_key_file=str(file))))
        return authenticator.authenticate({"authorization": f"Bearer {keys[name]}"}, {}).tenant

    assert tenant("phone app") != tenant("Ada's laptop")
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "phone" not in line))
    assert tenant("Ada's laptop")
    with pytest.raises(Unauthorized):
        tenant("phone app")
