"""`bench load`: a gateway with a fake worker under a load of listeners in processes of their own."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import socketserver
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from gateway_harness import GatewayHarness

from realtime_tts.bench.arrivals import Arrival, OpenLoad
from realtime_tts.bench.load_generator import Target
from realtime_tts.bench.load_result import load_result
from realtime_tts.bench.native_stream import CUT_OFF, open_stream
from realtime_tts.bench.plots import draw
from realtime_tts.bench.server_load import ServerLoad, describe_server
from realtime_tts.bench.streams import Heard
from realtime_tts.bench.texts import TURN
from realtime_tts.bench.usage import Usage
from realtime_tts.cli.main import cli
from realtime_tts.errors import ConfigError, EngineError


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayHarness]:
    with GatewayHarness({"max_streams": 64, "chars_per_patch": 8}) as harness:
        yield harness


def test_the_command_tells_how_a_load_was_heard_and_what_it_cost(gateway: GatewayHarness, tmp_path: Path) -> None:
    path = tmp_path / "load.json"
    arguments = ["bench", "load", "--url", gateway.ws_url, "--streams", "4", "--seconds", "0.6", "--words", "3"]
    arguments += ["--processes", "2", "--text-rate", "50", "--barge-ins", "0.5", "--codec", "pcm"]
    arguments += ["--pid", str(os.getpid()), "--json", str(path), "--plot", str(tmp_path / "load.png")]
    result = CliRunner().invoke(cli, arguments)
    results = json.loads(path.read_text())["results"]
    assert result.exit_code == (1 if results["void"] else 0), result.output
    assert ("VOID" in result.stdout) == bool(results["void"])
    assert results["errors"] == {}
    assert results["asked"] == results["streams"] == len(results["raw"]) > 0
    assert results["refused"] == 0
    assert results["packets"] == sum(stream["num_chunks"] for stream in results["raw"]) > 0
    assert results["speech_per_s"] > 0
    assert results["gateway_ms_per_speech_s"] > 0
    # Token by token from the first one on: what is heard first has waited for some of the text.
    assert results["first_audio_ms"]["p50"] > 1000 / 50
    assert (tmp_path / "load.png").stat().st_size > 0


def test_a_load_has_one_size(gateway: GatewayHarness) -> None:
    for flags in ([], ["--streams", "2", "--rate", "1"]):
        result = CliRunner().invoke(cli, ["bench", "load", "--url", gateway.ws_url, *flags])
        assert "--streams or --rate" in str(result.exception)


@pytest.mark.parametrize("answer", [b"[1]", b'{"data": [{"id": "llama"}]}', b'{"data": ["llama"]}', None])
def test_another_program_at_the_address_is_an_error(answer: bytes | None) -> None:
    class Program(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():  # of the request
                pass
            self.wfile.write(b"SSH-2.0\r\n" if answer is None else b"HTTP/1.0 200 OK\r\n\r\n" + answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Program) as program:
        thread = threading.Thread(target=program.serve_forever)
        thread.start()
        try:
            with pytest.raises(ConfigError, match="no realtime-tts answers"):
                describe_server(Target(f"ws://127.0.0.1:{program.server_address[1]}", (), 1, 3, {}))
        finally:
            program.shutdown()
            thread.join()


def test_a_session_that_the_server_refuses_is_an_error(gateway: GatewayHarness) -> None:
    for flags, what in ((["--codec", "mp3"], "codec must be"), (["--sample-rate", "12345"], "sample_rate must be")):
        result = CliRunner().invoke(cli, ["bench", "load", "--url", gateway.ws_url, "--streams", "1", *flags])
        assert isinstance(result.exception, ConfigError)
        assert what in result.exception.message


def test_a_connection_that_the_server_refuses_is_an_error() -> None:
    with GatewayHarness({"max_streams": 4}, max_sessions=1) as gateway:

        async def measure_beside_another() -> None:
            async with await open_stream(gateway.ws_url):
                await asyncio.to_thread(ServerLoad(Target(gateway.ws_url, (), 1, 3, {})).measure_turn)

        with pytest.raises(EngineError, match="does not speak: overloaded"):
            asyncio.run(measure_beside_another())


def test_a_server_that_cannot_speak_the_texts_is_an_error(tmp_path: Path) -> None:
    lexicon = tmp_path / "lexicon.json"  # into letters that its model does not have
    lexicon.write_text(json.dumps({word.strip(",."): "я" for word in TURN.split()}))
    with GatewayHarness(lexicon=str(lexicon)) as gateway:
        arguments = ["bench", "load", "--url", gateway.ws_url, "--streams", "1", "--seconds", "0.1", "--words", "3"]
        result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, EngineError)
    assert "makes no audio of the bench's texts" in result.exception.message


def test_a_load_without_turns_in_its_window_is_void(gateway: GatewayHarness) -> None:
    arguments = ["bench", "load", "--url", gateway.ws_url, "--rate", "0.001", "--seconds", "0.1", "--words", "3"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1, result.output
    assert "VOID: no turn began" in result.stdout


def test_barge_ins_end_what_is_said(gateway: GatewayHarness) -> None:
    target = Target(gateway.ws_url, (), 1, 200, {})
    load = ServerLoad(target)
    load.turn_s = 4.0
    [heard] = load.open_loop([Arrival(0, 0.0, 1.0, judged=True, heard=0.05)])
    assert heard.error == ""
    assert heard.cancelled_at_s is not None
    assert heard.first_s + 0.2 <= heard.cancelled_at_s <= heard.ended_s
    assert heard.span == (0.0, heard.ended_s)


def generator_pid() -> int:
    """The one process that listens."""
    [process] = multiprocessing.active_children()
    assert process.pid is not None
    return process.pid


def test_a_generator_that_stands_still_is_seen_to_be_late(gateway: GatewayHarness) -> None:
    target = Target(gateway.ws_url, (), 1, 3, {})
    load = ServerLoad(target)
    load.turn_s = 0.5
    stopped = threading.Event()

    def stop(now: Counter[str]) -> None:
        if not stopped.is_set():
            stopped.set()
            os.kill(generator_pid(), signal.SIGSTOP)
            threading.Timer(0.5, os.kill, (generator_pid(), signal.SIGCONT)).start()

    load.on_now = stop
    load.open_loop([Arrival(number, 0.2 * number, 1.0, judged=True) for number in range(6)])
    assert max(load.late_ms[0]) > 300


def test_refused_and_lost_streams_are_told_apart_by_code() -> None:
    """The server has one stream; then it goes away while streams speak."""
    with GatewayHarness({"max_streams": 1, "chars_per_patch": 1}, max_queued=1, drain_timeout_s=0.0) as gateway:
        target = Target(gateway.ws_url, (), 1, 200, {})
        load = ServerLoad(target)
        load.turn_s = 5.0
        arrivals = [Arrival(number, 0.05 * number, 1.0, judged=True) for number in range(6)]

        def end(now: Counter[str]) -> None:
            if now["errors"] and not gateway.server.should_exit:
                gateway.call(gateway.server.stop)

        load.on_now = end
        heard = load.open_loop(arrivals)
    codes = [stream.error for stream in heard]
    assert "overloaded" in codes
    assert CUT_OFF in codes
    assert set(codes) <= {CUT_OFF, "overloaded", "draining", "connection_lost", "ConnectionRefusedError", "engine_lost"}


def test_a_process_that_dies_ends_the_bench(gateway: GatewayHarness) -> None:
    load = ServerLoad(Target(gateway.ws_url, (), 1, 3, {}))
    load.turn_s = 0.5
    load.on_now = lambda now: os.kill(generator_pid(), signal.SIGKILL)
    with pytest.raises(EngineError, match="it ended"):
        load.open_loop([Arrival(0, 5.0, 1.0, judged=True)])


def test_a_generator_process_loads_little() -> None:
    code = (
        "import sys, realtime_tts.bench.load_generator; print({'torch', 'numpy', 'av', 'fastapi'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_samples_of_several_processes_are_one() -> None:
    """A hundred in time and one late; two that are late half of the time, which the many must not hide."""
    result = load_result([], OpenLoad(1.0, 1.0, 1.0), Usage(), [[0.0] * 1000, [1.0, 30.0]])
    assert (result.late_ms.count, result.late_ms.p99) == (1002, 0.0)
    assert (result.late_ms.max, result.latest_p99_ms) == (30.0, 30.0)


def test_a_refused_stream_does_not_count_as_a_listener() -> None:
    load = OpenLoad(1.0, 2.0, 10.0)
    at_s = load.window[0]
    good = Heard(at_s, [(0.1, 0.0)], 50, 1.0, 0.98, 1.0, ended_s=1.0)
    dry = Heard(at_s, [(0.2, 0.0), (0.9, 0.16)], 50, 1.0, 0.98, 1.0, ended_s=1.0)
    lost = Heard(at_s, error="engine_lost", ended_s=0.5)
    refused = Heard(at_s, error="overloaded", ended_s=0.01)
    usage = Usage(gateway_cores=0.01, worker_cores=0.1)
    result = load_result([good, dry, lost, refused], load, usage, [[50.0]])
    assert (result.asked, result.refused, result.streams) == (4, 1, 3)
    assert result.errors == {"engine_lost": 1, "overloaded": 1}
    assert result.first_audio_ms.p50 == pytest.approx(200)
    assert result.stalls["0"].num_streams == 2  # and the one without audio
    assert result.stalls["0"].num_stalls == 2
    assert result.speech_per_s == pytest.approx(0.2)
    assert result.gateway_ms_per_speech_s == pytest.approx(50)
    assert result.worker_ms_per_speech_s == pytest.approx(500)
    assert "50 ms late" in result.void


def test_a_load_in_which_nothing_was_asked_for_can_be_drawn(tmp_path: Path) -> None:
    result = load_result([], OpenLoad(1.0, 1.0, 1.0), Usage(), [])
    draw("load", {"model": "m", "device_name": "cpu", "dtype": "float32"}, result, tmp_path / "load.svg")
    assert (tmp_path / "load.svg").stat().st_size > 0
