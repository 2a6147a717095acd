"""`bench server` against a server with a fake worker, which no load makes too slow to take two streams."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from server_processes import ServerProcess

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.load_generator import Target
from realtime_tts.bench.server_load import ServerLoad
from realtime_tts.bench.streams import GAVE_UP
from realtime_tts.cli.main import cli


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("server") / "log.txt", {"max_streams": 64}, max_late_ms=0)
    yield server
    server.close()


def get(server: ServerProcess, path: str) -> str:
    with urllib.request.urlopen(server.url + path, timeout=60) as response:
        return str(response.read().decode())


def test_the_command_measures_a_server_that_runs(server: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    arguments = ["bench", "server", "--url", server.url, "--device", "cpu", "--clients", "1"]
    arguments += ["--words", "1", "--start", "2", "--window-s", "1", "--max-trials", "1", "--runs", "1"]
    arguments += ["--first-audio-ms", "60000", "--pre-buffer-ms", "60000", "--json", str(path)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    results = json.loads(path.read_text())["results"]
    assert [len(run) for run in results["alone_ms"]] == [20]
    [trial] = results["trials"]
    # A busy machine may make the streams too late for the end of the load, as it says then.
    outcome = "hold" if trial["held"] else "are too many"
    assert f"2.00 streams at once {outcome}" in result.stdout
    assert trial["held"] == (trial["errors"] == {})
    assert set(trial["errors"]) <= {GAVE_UP}


def test_what_is_given_up_leaves_nothing_behind(server: ServerProcess) -> None:
    target = Target(server.ws_url, [server.process.pid], 2, 15, {})
    load = ServerLoad(target)
    load.turn_s = 5.0
    arrivals = [Arrival(number, 0.0 if number < 8 else 600.0, 1.0, judged=True) for number in range(12)]
    heard = load.open_loop(arrivals, deadline_s=1.0)
    assert len(heard) == len(arrivals)
    assert sum(stream.error == GAVE_UP for stream in heard) >= 4
    usage = load.usage
    assert usage.client_cores is not None
    assert usage.busiest_client is not None
    assert usage.client_cores >= usage.busiest_client > 0
    assert usage.engine is not None  # said in heartbeats only, so it may be 0 over such a short time
    assert usage.machine is None or usage.machine > 0  # None: given up within a tick of the machine's clock
    assert usage.gateway_cores is not None
    assert usage.worker_cores is not None
    assert "realtime_tts_sessions 0.0" in get(server, "/metrics")
