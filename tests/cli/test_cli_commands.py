"""The commands as a user runs them, with a fake worker where a model would be loaded."""

from __future__ import annotations

import http.server
import io
import json
import os
import re
import signal
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from fake_worker import fake_worker_command
from gateway_harness import GatewayHarness
from spoken_recordings import said, wav
from voices import POLICY, VOICES

from realtime_tts.audio.provenance import Provenance
from realtime_tts.cli import doctor
from realtime_tts.cli import sinks as cli_sinks
from realtime_tts.cli.checks import check_engine
from realtime_tts.cli.main import COMMANDS, cli, main
from realtime_tts.cli.serve import show
from realtime_tts.cli.sinks import FORMATS, FileSink, format_of
from realtime_tts.config import AccessConfig, EngineConfig
from realtime_tts.errors import AdapterExists, AdapterNotFound, ConfigError, Unauthorized, VoiceNotFound
from realtime_tts.server.admission.auth import hash_key, load_hashes
from realtime_tts.server.run import describe

Program = Callable[..., tuple[int, list[str]]]
LISTED = ", ".join(VOICES)


@pytest.fixture(scope="module")
def server() -> Iterator[GatewayHarness]:
    with GatewayHarness() as harness:
        yield harness


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def in_process(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "realtime_tts", *arguments], input=stdin, capture_output=True)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Program]:
    """The entry point without a process of its own, which takes a second to start: status, and lines for the user.

    Standard input is a file that holds `stdin`, and what processes of its own say counts too.
    """

    def called(*arguments: str, stdin: str = "") -> tuple[int, list[str]]:
        with tempfile.TemporaryFile() as file:
            file.write(stdin.encode())
            file.seek(0)
            monkeypatch.setattr("sys.stdin", file)
            monkeypatch.setattr("realtime_tts.server.logs.configure_logging", lambda *_: None)  # that stays
            monkeypatch.setattr("sys.argv", ["realtime-tts", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
        said = capfd.readouterr().err
        assert "Traceback" not in said
        return int(ended.value.code or 0), said.splitlines()

    yield called
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `serve` ignores it while it starts


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = run(command, "--help") if command != "keys" else run("keys", "create", "--help")
    assert result.exit_code == 0
    assert "Example" in result.output
    assert "realtime-tts " in result.output


def test_the_help_lists_the_commands_without_loading_them() -> None:
    code = (
        "import sys, realtime_tts.cli.main as c; sys.argv = ['x', '--help']\ntry: c.main()\nexcept SystemExit: pass\n"
    )
    code += "print([m for m in ('torch', 'numpy', 'fastapi', 'av') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(command in result.stdout for command in COMMANDS)
    assert result.stdout.splitlines()[-1] == "[]"


def test_serve_shows_every_setting_when_asked() -> None:
    assert "--max-late-ms" not in run("serve", "--help").output
    assert "--max-late-ms" in run("serve", "--help-all").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--port", "x"], "--port: 'x' is not a whole number"),
        (["serve", "--host", "0.0.0.0"], "needs an API key"),
        (["serve", "--api-key-file", "/nowhere/keys"], "cannot be read"),
        (["say", "hi", "-o", "x.mp4"], "must end in"),
        (["say", "hi", "-o", "/nowhere/x.wav", "--url", "{url}"], "cannot be written"),
        (["say", "hi", "-o", "x.wav", "--url", "ftp://a"], "looks like http://127.0.0.1:8000"),
        (["say", "hi", "-o", "x.wav", "--url", "http://[::1"], "looks like http://127.0.0.1:8000"),
        (["say", "hi", "-o", "x.wav", "--url", "http://host:99999"], "looks like http://127.0.0.1:8000"),
        (["voices", "--url", "http://host:abc"], "looks like http://127.0.0.1:8000"),
        (["say", "hi", "-o", "x.wav", "--url", "http://127.0.0.1:1"], "no server answers"),
        (["voices", "--url", "http://127.0.0.1:1"], "no server answers"),
        (["voices", "--model", "some/model"], "no directory here"),
        (["serve", "--config", "/nonexistent.toml"], "file /nonexistent.toml cannot be read: No such file or"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    server: GatewayHarness, program: Program, arguments: list[str], said: str
) -> None:
    status, lines = program(*(argument.replace("{url}", server.url) for argument in arguments))
    assert status == 2
    assert lines[-1].startswith("Error: ")
    assert said in lines[-1]


def test_a_reload_does_not_end_a_server_that_starts(tmp_path: Path) -> None:
    """systemd takes the end by SIGHUP for a clean one, after which it restarts nothing."""
    config = tmp_path / "config.toml"
    os.mkfifo(config)
    command = [sys.executable, "-m", "realtime_tts", "serve", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        with config.open("w") as file:  # it is open when the server reads it
            process.send_signal(signal.SIGHUP)
            file.write("[nothing]")
        assert b"nothing" in process.stderr.read()
        assert process.wait() == 2


@pytest.mark.parametrize("num_gateways", [1, 2])
def test_a_server_with_a_log_for_machines_prints_nothing_else(num_gateways: int) -> None:
    command = [sys.executable, "-m", "realtime_tts", "serve", "--port", "0", "--voices-dir", "none", "--threads", "1"]
    command += ["--log-format", "json", "--gateways", str(num_gateways)]
    records = {}
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                record = json.loads(line)
                records[record["event"]] = record
                if record["event"] == "serving":
                    process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
        finally:
            process.kill()
    assert records["loading"]["model"] == "starter-voice"
    assert records["serving"]["playground"].startswith("http://127.0.0.1:")
    assert records["serving"]["gateways"].startswith(f"{num_gateways} process")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[server]\nport = \n", "{file} is not TOML: Invalid value (at line 2, column 8)"),
        ("[server]\nprot = 1", "'prot' in [server] of the config file {file} is not a setting; did you mean port?"),
        ("[server]\nport = 'x'", "'port' in [server] of the config file {file}: 'x' is not a whole number"),
        ("[engine]\nport = 1", "{file}: 'port' belongs into [server], not [engine]"),
        ("[gateway]", "{file} may hold the tables"),
        ("\ufeff[server]\nport = 'x'", "{file}: 'x' is not a whole number"),  # some editors begin a file so
        ("[server]\nhost = '\udce9'", "{file} is not UTF-8"),
    ],
)
def test_a_mistake_in_the_config_file_names_the_file(program: Program, tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content.encode(errors="surrogateescape"))
    status, lines = program("serve", "--config", str(file))
    assert (status, len(lines)) == (2, 1)
    assert said.format(file=file) in lines[0]


def test_a_mistake_ends_the_process_without_a_traceback() -> None:
    result = in_process("serve", "--port", "0", "--metrics-address", "127.0.0.1:0", "--devices", "nonsense")
    assert result.returncode == 2
    assert [line.split()[0] for line in result.stderr.splitlines()] == [b"Loading", b"Error:"]
    assert b"device 'nonsense' is unknown: give auto, cpu, cuda or cuda:N" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["say", "hi", "-o", "{tmp}/a.wav", "--model", "/nonexistent"], "neither a checkpoint directory nor a hub id"),
        (
            ["say", "hi", "-o", "{tmp}/a.wav", "--model", "owner/none"],
            "owner/none is no directory, and could not be taken",
        ),
        (["say", "hi", "-o", "{tmp}/a.wav", "--model", "./nothing"], "neither a checkpoint directory nor a hub id"),
        (["say", "hi", "-o", "{tmp}/a.wav", "--model", "{tmp}"], "{tmp}' is no checkpoint: it has no config.json"),
        (["say", "hi", "-o", "{tmp}/a.wav", "--device", "gpu"], "'gpu' is unknown: give auto, cpu, cuda or cuda:N"),
        (["say", "hi", "-o", "{tmp}/a.wav", "--device", "cuda:99"], "device 'cuda:99' cannot be used"),
        (["say", "hi", "-o", "{tmp}/a.wav", "--adapter", "{tmp}/x"], "--adapter: there is no directory {tmp}/x;"),
        (["serve", "--model", "{tmp}"], "{tmp}' is no checkpoint: it has no config.json"),
        (["serve", "--adapters", "a={tmp}/x"], "--adapters: a: there is no directory {tmp}/x"),
        # Like a directory that this user may not enter, which tests as root cannot make.
        (["serve", "--model", "{long}"], "x' cannot be read: File name too long"),
        (["serve", "--adapters", "a={long}"], "x cannot be read: File name too long"),
        (["serve", "--adapters-dir", "{long}"], "x cannot be read: File name too long"),
        (["say", "hi", "-o", "{tmp}/a.wav", "--adapter", "{long}"], "x cannot be read: File name too long"),
        (["voices", "--model", "{tmp}"], "{tmp}' is no checkpoint: it has no config.json"),
        (["doctor", "--model", "{tmp}", "--devices", "cpu"], "{tmp}' is no checkpoint: it has no config.json"),
    ],
)
def test_a_model_or_device_that_is_not_there_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    program: Program,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    known = {"{tmp}": str(tmp_path), "{long}": 300 * "x"}
    status, lines = program(*(re.sub("{.+?}", lambda match: known[match[0]], argument) for argument in arguments))
    assert status in (1, 2)
    assert len([line for line in lines if not line.startswith(("Loading", "Measuring"))]) == 1, lines
    assert lines[-1].startswith("Error: ")
    assert said.replace("{tmp}", str(tmp_path)) in lines[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("num_there", "room"), [(0, 4), (6, 6), (70, 64)])
def test_memory_is_held_for_all_adapters_of_a_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, num_there: int, room: int
) -> None:
    (tmp_path / "adapters").mkdir()
    for number in range(num_there):
        (tmp_path / "adapters" / str(number)).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for directory in (str(tmp_path / "adapters"), "~/adapters"):
        assert EngineConfig(adapters_dir=directory).options("cpu").max_adapters == room
    assert EngineConfig(adapters=(("a", "b"),)).options("cpu").max_adapters == 1


def test_a_directory_for_adapters_that_is_not_there_is_warned_of(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    check_engine(EngineConfig(adapters_dir=str(tmp_path)))
    assert not caplog.messages
    check_engine(EngineConfig(adapters_dir=str(tmp_path / "none")))
    (warning,) = caplog.messages
    assert f"there is no directory {tmp_path}/none" in warning


def test_doctor_tells_of_the_machine_also_where_there_is_no_such_model() -> None:
    result = run("doctor", "--model", "nothing", "--no-measure")
    assert result.exit_code == 0
    assert "'nothing' is neither a checkpoint directory nor a hub id" in result.stdout


def test_doctor_tells_before_it_downloads_a_model_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    told = "owner/none is downloaded first unless the hub's cache has it (not with --no-measure)"
    assert told in run("doctor", "--model", "owner/none", "--devices", "cpu").stderr
    assert "downloaded first" not in run("doctor", "--model", "owner/none", "--no-measure").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["hi", "--file", __file__],
        ["hi", "--prompt-text", "said"],
        ["hi", "--voice", "a", "--reference", __file__],
        ["hi", "--reference", __file__, "--consent"],
        ["hi", "--url", "http://x", "--voice", "v", "--prompt", __file__, "--prompt-text", "t"],
        ["hi", "--url", "http://x", "--model", "m"],
        ["hi", "--seed", "-1"],
        ["hi", "--mode", "auto"],
        ["hi", "--speed", "0.1"],
        ["hi", "--reference", "/nowhere.wav"],
    ],
)
def test_flags_that_contradict_each_other_are_refused(arguments: list[str]) -> None:
    result = run("say", *arguments)
    assert result.exit_code == 2
    assert "Error" in result.output


def test_say_writes_a_wav_file_through_a_server(server: GatewayHarness, tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    result = run("say", "Hello there, you.", "-o", str(path), "--url", server.url)
    assert result.exit_code == 0, result.output
    assert "of speech" in result.stderr
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels()) == (48_000, 1)
        assert file.getnframes() / 48_000 == pytest.approx(4 * 0.16, abs=0.05)  # 16 characters are spoken


def test_say_takes_more_than_the_server_would_send_ahead(server: GatewayHarness, tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    result = run("say", "And so it went on and on. " * 12, "-o", str(path), "--url", server.url, "-q")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    with wave.open(str(path)) as file:
        assert file.getnframes() / 48_000 > 10


def test_say_reads_a_pipe_and_writes_to_one(server: GatewayHarness) -> None:
    result = in_process("say", "--url", server.url, "-o", "-", "--format", "raw", "-q", stdin=b"Hello there.")
    assert result.returncode == 0, result.stderr
    assert result.stderr == b""
    assert len(result.stdout) / 2 / 48_000 == pytest.approx(3 * 0.16, abs=0.05)


def test_say_speaks_at_another_speed(server: GatewayHarness, tmp_path: Path) -> None:
    path = tmp_path / "slow.wav"
    result = run("say", "Hello there, you.", "-o", str(path), "--speed", "0.5", "--url", server.url)
    assert result.exit_code == 0, result.output
    assert duration_s(path) == pytest.approx(2 * 4 * 0.16, abs=0.05)


def test_say_pauses_between_sentences_and_reads_a_lexicon(server: GatewayHarness, tmp_path: Path) -> None:
    names, broken = tmp_path / "names.json", tmp_path / "broken.json"
    names.write_text('{"nginx": "a much longer word"}')
    broken.write_text('{"nginx": "!"}')
    lengths = []
    for number, flags in enumerate(([], ["--sentence-pause-ms", "2000"], ["--lexicon", str(names)])):
        path = tmp_path / f"{number}.wav"
        result = run("say", "One nginx. Two nginx.", "-o", str(path), "--url", server.url, *flags)
        assert result.exit_code == 0, result.output
        lengths.append(duration_s(path))
    assert 1.9 < lengths[1] - lengths[0] < 2.4
    assert lengths[2] > lengths[0]
    assert in_process("lexicon", str(names)).stdout.decode().strip().endswith("1 entries")
    assert (
        run("lexicon", str(names), "Ask Nginx. [pause 1s]").output == "Ask a much longer word.\n(silence of 1000 ms)\n"
    )
    refused = in_process("lexicon", str(broken))
    assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
    assert b"nothing to speak" in refused.stderr


def test_say_tells_what_it_leaves_out(server: GatewayHarness, tiny_voice: Path, tmp_path: Path) -> None:
    """With a model of its own, too, where nothing of the worker's log or warnings reaches the terminal."""
    note = "Note: parts of the text cannot be spoken and are left out: at character 7, 16 to 17"
    path = tmp_path / "out.wav"
    command = ["say", "Hello \U0001f600 there. \u4f60\u597d", "-o", str(path)]
    for where in (["--url", server.url], ["--model", str(tiny_voice), "--device", "cpu"]):
        result = in_process(*command, *where)
        assert result.returncode == 0, result.stderr
        told, spoken, *loaded = result.stderr.decode().splitlines()
        assert told == note
        assert "s of speech in" in spoken
        assert [line.split()[0] for line in loaded] == ([] if "--url" in where else ["Loaded"])
        assert duration_s(path) > 0.3
    assert in_process(*command, "--url", server.url, "-q").stderr == b""


def test_say_tells_a_servers_refusal(server: GatewayHarness, program: Program) -> None:
    status, lines = program("say", "hi", "--url", server.url, "-o", "-", "--adapter", "missing")
    assert status == 1
    assert lines[-1].startswith("Error: unknown adapter 'missing'")


@pytest.mark.parametrize(
    ("begin", "flags"),
    [(b"This is the first sentence. And ", []), (b"This is the first sentence and ", ["--mode", "live"])],
    ids=["a sentence", "live"],
)
def test_say_forwards_text_while_it_is_being_written(server: GatewayHarness, begin: bytes, flags: list[str]) -> None:
    command = [sys.executable, "-m", "realtime_tts", "say", "--url", server.url, "-o", "-", "--format", "raw", "-q"]
    command += flags
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(begin)
        process.stdin.flush()
        assert process.stdout.read(960), "nothing is heard before the text has ended"
        process.stdin.write(b"this is the second.")
        process.stdin.close()
        num_bytes = 960 + len(process.stdout.read())
    assert process.returncode == 0
    assert num_bytes / 2 / 48_000 == pytest.approx(1.92, abs=0.2)


def test_say_through_a_server_needs_the_client_and_says_how_to_get_it(
    server: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "realtime_tts_client", None)
    result = run("say", "Hello.", "--url", server.url, "-o", "-")
    assert isinstance(result.exception, ConfigError)
    assert "pip install ./clients/python" in result.exception.message


@pytest.mark.parametrize("text", ["😀", "...", " \n"])
def test_say_of_nothing_speakable_fails_and_leaves_no_file(
    server: GatewayHarness, program: Program, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "out.wav"
    for where in (["--url", server.url], ["--model", "starter-voice"]):
        assert program("say", text, "-o", str(path), *where) == (2, ["Error: there is nothing to say in this text"])
        assert not path.exists()
    assert program("say", "-o", str(path), "--url", server.url, stdin=text)[0] == 2
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hi", "-o", "{tmp}/a.wav", "--voice", "nobody"], "a running server has voices of its own (--url)"),
        (
            ["hi", "-o", "{tmp}/a.wav", "--voice", "nobody"],
            f"the voices of this model are {LISTED}, zero-shot",
        ),
        (["hi", "-o", "{tmp}/none/a.wav"], "there is no directory"),
        (["hi", "-o", "{tmp}", "--format", "wav"], "is a directory"),
        (["hi", "-o", "{tmp}/a.mp4"], "must end in"),
        (["hi", "-o", "{tmp}/locked.wav"], "permission denied"),
        (["", "-o", "{tmp}/a.wav"], "nothing to say"),
        (["🙂", "-o", "{tmp}/a.wav"], "nothing to say"),
        (["hi"], "the speaker needs the package sounddevice"),
    ],
)
def test_say_tells_what_is_wrong_before_it_loads_a_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], said: str
) -> None:
    def load(**options: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("realtime_tts.api.AsyncTTS", load)
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    locked = tmp_path / "locked.wav"
    locked.touch()
    access = os.access  # root may write everything
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != locked and access(path, mode))
    result = run("say", *(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert isinstance(result.exception, ConfigError)
    assert said in result.exception.message
    assert list(tmp_path.iterdir()) == [locked]


def test_a_speaker_that_cannot_be_opened_is_told_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(**options: object) -> None:
        raise RuntimeError("no default output device")

    fake = type("sounddevice", (), {"check_output_settings": staticmethod(check), "PortAudioError": RuntimeError})
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    monkeypatch.setattr("realtime_tts.api.AsyncTTS", None)
    result = run("say", "Hello.")
    assert isinstance(result.exception, ConfigError)
    assert "no default output device" in result.exception.message


@pytest.mark.parametrize("is_remote", [True, False])
@pytest.mark.parametrize("suffix", ["wav", "mp3"])
def test_an_interrupted_file_is_whole_and_its_length_is_told(
    server: GatewayHarness, tmp_path: Path, is_remote: bool, suffix: str
) -> None:
    path = tmp_path / f"cut.{suffix}"
    where = ["--url", server.url] if is_remote else []
    with say_with_a_fake_worker("command never", "-o", str(path), *where) as process:
        wait_until(lambda: path.exists() and path.stat().st_size > 20_000)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    said = re.fullmatch(rf"Interrupted: ([0-9.]+) s of speech are kept in {re.escape(str(path))}\.", stderr.strip())
    assert said, stderr
    assert duration_s(path) == pytest.approx(float(said[1]), abs=0.15)


def test_an_interrupted_say_that_still_waits_for_text_ends_at_once(tmp_path: Path) -> None:
    path = tmp_path / "cut.wav"
    before = set(os.listdir(tempfile.gettempdir()))
    with say_with_a_fake_worker("-o", str(path), stdin=subprocess.PIPE) as process:
        wait_until(lambda: bool(set(os.listdir(tempfile.gettempdir())) - before))  # its worker's directory
        time.sleep(1)  # likely it has loaded; the outcome is the same
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert process.stderr is not None
        assert process.stderr.read().strip() == "Interrupted before there was speech; nothing was written."
    assert process.returncode == 130
    assert not path.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has")
def test_a_disk_that_is_full_is_told_in_one_line(server: GatewayHarness, program: Program) -> None:
    arguments = ("say", "Hello there.", "-q", "-o", "/dev/full", "--format", "wav", "--url", server.url)
    assert program(*arguments) == (2, ["Error: /dev/full cannot be written: No space left on device"])


def test_say_ends_when_its_pipe_is_closed() -> None:
    with say_with_a_fake_worker("command never " * 20, "-o", "-", "-q", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(100)
        process.stdout.close()
        process.wait(60)  # all of it would take two minutes
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141


def say_with_a_fake_worker(
    *arguments: str, stdin: int | None = None, stdout: int | None = None
) -> subprocess.Popen[str]:
    command = fake_worker_command(patch_delay_s=0.01)
    code = (
        # A shell starts what runs in its background with this signal ignored, and so a test's program would be.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import sys; from realtime_tts.cli import engine, main\n"
        "from realtime_tts.workers.supervisor import WorkerSpec\n"
        f"engine.worker_specs = lambda *_, **__: [WorkerSpec(command={command!r})]\n"
        f"sys.argv = ['realtime-tts', 'say', *{arguments!r}]; main.main()"
    )
    command_line = [sys.executable, "-c", code]
    return subprocess.Popen(
        command_line, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace"
    )


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def duration_s(path: Path) -> float:
    import av

    with av.open(str(path)) as container:
        frames = list(container.decode(audio=0))
    return sum(frame.samples for frame in frames) / frames[0].sample_rate


def test_say_without_a_speaker_says_what_to_do(server: GatewayHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    result = run("say", "Hello.", "--url", server.url)
    assert isinstance(result.exception, ConfigError)
    assert "pip install sounddevice" in result.exception.message
    assert "-o hello.wav" in result.exception.message


def test_say_without_portaudio_says_what_to_do(
    server: GatewayHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    result = run("say", "Hello.", "--url", server.url)
    assert isinstance(result.exception, ConfigError)
    assert "libportaudio2" in result.exception.message
    assert "pip install" not in result.exception.message  # the package is there


@pytest.mark.parametrize(("host", "is_followed"), [("127.0.0.1", True), ("localhost", False)])
def test_a_redirect_takes_the_key_to_no_other_host(host: str, is_followed: bool) -> None:
    asked: list[str] = []

    class Moved(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            self.send_response(302 if self.path == "/v1/voices" else 404)
            self.send_header("Location", f"http://{host}:{self.server.server_port}/moved")  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Moved) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            result = run("voices", "--url", f"http://127.0.0.1:{server.server_port}", "--api-key", "rtts_k")
        finally:
            server.shutdown()
            thread.join()
    assert asked == ["/v1/voices Bearer rtts_k", "/moved Bearer rtts_k"][: 1 + is_followed]
    assert ("404" if is_followed else "302") in str(result.exception)


@pytest.mark.parametrize("body", [b"<!doctype html>", b"[1]", b"\xff"])
def test_an_address_of_another_program_is_told_in_one_line(program: Program, body: bytes) -> None:
    class Website(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Website) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            status, lines = program("voices", "--url", f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
    assert status == 2
    assert len(lines) == 1
    assert lines[0].startswith(f"Error: no realtime-tts answers at http://127.0.0.1:{server.server_port}")


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}"])
def test_an_answer_that_is_no_http_or_ends_early_is_told_in_one_line(program: Program, answer: bytes) -> None:
    class Banner(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Banner) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        status, lines = program("voices", "--url", url := f"http://127.0.0.1:{server.server_address[1]}")
        thread.join()
    assert (status, len(lines)) == (2, 1)
    assert lines[0].startswith(f"Error: no server answers at {url}: ")


@pytest.mark.parametrize("command", [["voices"], ["adapters"], ["say", "-o", "-", "Hello."]])
@pytest.mark.parametrize("key", ["the key", "the\nkey", "th\xe9-key"])
def test_a_key_that_no_header_can_carry_is_not_repeated(command: list[str], key: str) -> None:
    result = run(command[0], "--url", "http://127.0.0.1:9", "--api-key", key, *command[1:])
    told = f"{result.output}{result.exception!r}"
    assert "--api-key must be printable" in told
    assert key not in told
    assert repr(key) not in told


@pytest.mark.parametrize("arguments", [["say", "Hello.", "-o", "hello.wav"], ["voices"]])
def test_of_a_server_that_wants_a_key_it_is_said_how_to_give_one(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with GatewayHarness(api_key_hashes=(hash_key("rtts_k"),)) as guarded:
        result = run(*arguments, "--url", guarded.url)
    assert isinstance(result.exception, Unauthorized)
    assert "--api-key" in result.exception.message


def test_voices_of_the_bundled_model_and_of_a_server(server: GatewayHarness) -> None:
    local = json.loads(run("voices", "--json").stdout)
    assert [voice["id"] for voice in local] == list(VOICES)
    remote = run("voices", "--url", server.url)
    assert remote.stdout.splitlines()[0].startswith("* slt")


def test_a_servers_adapters_are_loaded_listed_and_unloaded(tmp_path: Path) -> None:
    (tmp_path / "support").mkdir()
    with GatewayHarness(engine={"adapters_dir": str(tmp_path)}) as server:
        assert run("adapters", "--url", server.url).stdout == "No adapter is loaded.\n"
        loaded = run("adapters", "load", "support", "--url", server.url)
        assert loaded.stdout == "support (rank 8) can be spoken with\n"
        assert isinstance(run("adapters", "load", "support", "--url", server.url).exception, AdapterExists)
        assert run("adapters", "--url", server.url).stdout.split() == ["support", "rank", "8", "support"]
        (listed,) = json.loads(run("adapters", "--json", "--url", server.url).stdout)
        assert listed == {"name": "support", "rank": 8, "digest": "support"}
        spoken = run("say", "--url", server.url, "--adapter", "support", "hello there", "-o", str(tmp_path / "a.wav"))
        assert spoken.exit_code == 0
        assert run("adapters", "unload", "support", "--url", server.url).exit_code == 0
        refused = run("say", "--url", server.url, "--adapter", "support", "hello there", "-o", str(tmp_path / "b.wav"))
        assert isinstance(refused.exception, AdapterNotFound)


@pytest.mark.parametrize(
    "arguments",
    [
        ("voices", "delete", "nobody"),
        ("adapters", "load", "nothing"),
        ("adapters", "unload", "nothing"),
        ("voices", "add", "Anna", "--instructions", "low"),
    ],
)
def test_a_server_named_before_the_subcommand_is_the_one_that_is_asked(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None]] = []

    def answer(opener: object, request: urllib.request.Request, timeout: float) -> io.BytesIO:
        asked.append((f"http://{request.host}", request.get_header("Authorization")))
        return io.BytesIO(b'{"id": "voice-1", "warnings": [], "name": "a", "rank": 8}')

    monkeypatch.setattr("urllib.request.OpenerDirector.open", answer)
    monkeypatch.setenv("REALTIME_TTS_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("REALTIME_TTS_API_KEY", "rtts_other")
    before, after = arguments[:1], arguments[1:]
    given = ("--url", "http://127.0.0.1:2", "--api-key", "rtts_k")
    assert run(*before, *given, *after).exit_code == 0
    assert run(*before, *after, *given).exit_code == 0
    assert run(*before, "--url", "http://127.0.0.1:3", *after, *given).exit_code == 0
    assert run(*before, *after).exit_code == 0
    monkeypatch.delenv("REALTIME_TTS_URL")
    monkeypatch.delenv("REALTIME_TTS_API_KEY")
    assert run(*before, *after).exit_code == 0
    named, of_environment = ("http://127.0.0.1:2", "Bearer rtts_k"), ("http://127.0.0.1:1", "Bearer rtts_other")
    assert asked == [named, named, named, of_environment, ("http://127.0.0.1:8000", None)]


def test_an_option_that_a_subcommand_would_ignore_is_refused() -> None:
    for arguments in (("voices", "--model", "x", "delete", "a"), ("adapters", "--json", "load", "a")):
        result = run(*arguments)
        assert result.exit_code == 2
        assert f"{arguments[1]} cannot be used with {arguments[-2]!r}" in result.output


def test_a_servers_voices_are_added_and_deleted(server: GatewayHarness, tmp_path: Path) -> None:
    (tmp_path / "clipped.wav").write_bytes(wav(said("heart") * 4))
    recording = ("--reference", str(tmp_path / "clipped.wav"), "--url", server.url)
    refused = run("voices", "add", "Anna", *recording)
    assert "consent" in str(getattr(refused.exception, "message", ""))
    added = run("voices", "add", "Anna", *recording, "--consent", "--consent-by", "Anna", "--description", "low")
    assert (added.exit_code, added.stdout[:6]) == (0, "voice-")
    assert "clipped" in added.stderr
    listed = run("voices", "--url", server.url).stdout
    assert [line.split() for line in listed.splitlines() if "Anna" in line] == [["Anna", "low"]]
    assert run("voices", "delete", "Anna", "--url", server.url).exit_code == 0
    assert "Anna" not in run("voices", "--url", server.url).stdout
    assert isinstance(run("voices", "delete", "Anna", "--url", server.url).exception, VoiceNotFound)


@pytest.mark.parametrize("command", [("say", "Hello.", "-o", "{tmp}/a.wav"), ("voices", "add", "Anna")])
@pytest.mark.parametrize(
    ("given", "option"), [((), "--consent"), (("--consent", "--prompt-text", "x" * 5000), "--prompt-text")]
)
def test_a_servers_refusal_names_the_option_of_the_command(
    server: GatewayHarness, tmp_path: Path, command: tuple[str, ...], given: tuple[str, ...], option: str
) -> None:
    (tmp_path / "me.wav").write_bytes(b"any")
    path = str(tmp_path / "me.wav")
    recordings = ("--reference", path, *(("--prompt", path) if "--prompt-text" in given else ()))
    arguments = [argument.replace("{tmp}", str(tmp_path)) for argument in (*command, *recordings, *given)]
    refused = run(*arguments, "--url", server.url)
    assert str(getattr(refused.exception, "message", "")).endswith(f"; here: {option}")


def test_say_has_a_server_speak_like_a_recording(server: GatewayHarness, tmp_path: Path) -> None:
    (tmp_path / "me.wav").write_bytes(wav(said("heart")))
    path = tmp_path / "x.wav"
    arguments = ("Hello.", "--url", server.url, "-o", str(path), "--reference", str(tmp_path / "me.wav"))
    refused = run("say", *arguments)
    assert "consent" in str(getattr(refused.exception, "message", ""))
    assert not path.exists()
    assert run("say", *arguments, "--consent").exit_code == 0
    with wave.open(str(path)) as file:
        assert file.getnframes() > 0
    assert server.gateway.voices.num_temporary() == 0
    assert b"Synthetic speech made by realtime-tts" in path.read_bytes()
    assert run("say", *arguments, "--consent", "--no-provenance").exit_code == 0
    assert b"Synthetic" not in path.read_bytes()


def test_serve_tells_where_to_go_and_what_it_speaks_with(
    server: GatewayHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    show(describe(server.server))
    said = capsys.readouterr().err
    assert server.url in said
    assert "slt, rms (default: slt)" in said
    assert "no key is needed" in said
    assert "Added voices  0, which end with the server" in said


def test_serve_tells_where_voices_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with GatewayHarness(voices_dir="auto") as harness:
        show(describe(harness.server))
    directory = tmp_path / "realtime-tts" / "voices"
    assert f"0, kept in {directory} (all servers of this user share it: --voices-dir)" in capsys.readouterr().err
    with GatewayHarness(voices_dir=str(tmp_path)) as harness:
        show(describe(harness.server))
    assert f"0, kept in {tmp_path}\n" in capsys.readouterr().err


def test_a_new_key_opens_the_server_through_its_hash(tmp_path: Path) -> None:

    path = tmp_path / "hashes"
    output = run("keys", "create", "--name", "phone app", "--append", str(path)).stdout
    key = output.splitlines()[0].removeprefix("key:").strip()
    assert load_hashes(AccessConfig(api_key_file=str(path))) == (hash_key(key),)
    assert run("keys", "hash", stdin=f"{key}\n").stdout.splitlines()[-1] == hash_key(key)
    path.write_bytes(path.read_bytes().rstrip())  # as some editors leave it
    run("keys", "create", "--append", str(path))
    assert len(load_hashes(AccessConfig(api_key_file=str(path)))) == 2
    refused = run("keys", "create", "--append", str(tmp_path / "nowhere" / "hashes"))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert run("keys", "create", "--name", "two\nlines").exit_code == 2


def test_doctor_asks_a_server_how_its_devices_are(server: GatewayHarness) -> None:
    result = run("doctor", "--url", server.url, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["Server"]
    assert rows["workers"] == "1 of 1 take new contexts"
    assert "cpu: serving, 0 lost" in rows.values()
    assert "take new contexts" in run("doctor", "--url", server.url).stdout
    unreached = run("doctor", "--url", "http://127.0.0.1:9")
    assert unreached.exit_code != 0


def test_doctor_explains_this_machine() -> None:
    result = run("doctor", "--no-measure", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert set(report) == {"Machine", "Compute", "Model", "Limits", "Packages"}
    assert report["Compute"]["device"].startswith(("cpu: ", "cuda:0"))
    assert report["Model"]["voices"] == LISTED
    assert report["Model"]["word times"] == str(POLICY.text_head)
    assert "libopus" in report["Packages"]["opus encoder"]
    assert re.match(r"\d+: ", report["Limits"]["gateway processes"])


class _NoDevice(Exception):
    pass


def _no_device(**_: object) -> dict[str, str]:
    raise _NoDevice("Error querying device -1")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (_no_device, "no output device was found: `say` needs -o FILE"),
        (lambda **_: {"name": "Loudspeaker"}, "Loudspeaker"),
    ],
)
def test_doctor_tells_whether_there_is_a_speaker(
    query: Callable[..., dict[str, str]], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", SimpleNamespace(query_devices=query, PortAudioError=_NoDevice))
    assert doctor.speaker() == told


def test_doctor_tells_that_the_speaker_needs_sounddevice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert doctor.speaker() == "not usable without sounddevice"


@pytest.mark.parametrize(
    ("name", "explicit", "kind"),
    [
        ("a.wav", None, "wav"),
        ("A.OGG", None, "ogg"),
        ("a.opus", None, "ogg"),
        ("a.mp3", None, "mp3"),
        ("-", None, "wav"),
        ("a.x", "raw", "raw"),
    ],
)
def test_the_format_follows_the_name(name: str, explicit: str | None, kind: str) -> None:
    assert format_of(name, explicit) == kind


def test_a_wav_file_that_was_cut_off_is_still_whole(tmp_path: Path) -> None:
    path = tmp_path / "cut.wav"
    sink = FileSink(path.open("wb"), "wav", 16_000)
    sink.write(struct.pack("<3h", 1, 2, 3))
    sink.abort()
    with wave.open(str(path)) as file:
        assert file.readframes(10) == struct.pack("<3h", 1, 2, 3)


@pytest.mark.parametrize("rate_hz", [16_000, 22_050, 24_000, 48_000])
@pytest.mark.parametrize("output_format", [name for name in FORMATS if name != "raw"])
def test_a_file_of_any_format_holds_all_of_the_audio(tmp_path: Path, output_format: str, rate_hz: int) -> None:
    import av

    path = tmp_path / f"out.{output_format}"
    sink = FileSink(path.open("wb"), output_format, rate_hz, Provenance("realtime-tts"))
    for _ in range(10):
        sink.write(bytes(2 * rate_hz // 10))
    sink.close()
    with av.open(str(path)) as container:
        frames = list(container.decode(audio=0))
    duration_s = sum(frame.samples / frame.sample_rate for frame in frames)
    assert 0.98 <= duration_s <= 1.2  # MP3 and AAC add their encoder's delay


@pytest.mark.parametrize(("args", "said"), [(["serv"], "Did you mean 'serve'?"), (["xyz"], "No such command 'xyz'.")])
def test_a_misspelt_command_is_answered_with_the_likely_one(args: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 2
    assert result.output.strip().endswith(said)


@pytest.mark.parametrize(
    ("words", "completed"),
    [("say --voice e", ["emma"]), ("sa", ["say"]), ("say --model openbmb/VoxCPM2 --voice ", [])],
)
def test_the_shell_completes_commands_and_voices(words: str, completed: list[str]) -> None:
    *before, incomplete = words.split(" ")
    found = ShellComplete(cli, {}, "realtime-tts", "_").get_completions(before, incomplete)
    assert [item.value for item in found] == completed


def test_a_speaker_plays_to_the_end_and_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Stream:
        def __init__(self, rate: int, **options: object) -> None:
            calls.append(f"open {rate}")

        def __getattr__(self, name: str) -> object:
            return lambda *args: calls.append(name)

    fake = type("sounddevice", (), {"RawOutputStream": Stream, "PortAudioError": RuntimeError})
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    sink = cli_sinks.open_sink(None, None, 16_000)
    sink.write(b"\0\0")
    sink.close()
    cli_sinks.open_sink(None, None, 16_000).abort()
    assert calls == ["open 16000", "start", "write", "stop", "close", "open 16000", "start", "abort", "close"]


def test_the_first_process_of_a_container_can_be_stopped_at_any_time() -> None:
    """A process whose signals have no handlers yet."""
    program = "import os, time; os.getpid = lambda: 1; from realtime_tts.cli import main as entry\n"
    program += "entry.cli.main = lambda **_: (print('begun', flush=True), time.sleep(60))\n"
    program += "entry.main()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
