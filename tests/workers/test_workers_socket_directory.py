"""Directories and workers of killed gateways are removed, and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from realtime_tts.workers.socket_directory import SocketDirectory, clear_leftovers

# An owner in a process of its own: says where its directory is, then waits to be killed.
OWNER = """
import sys, time
from realtime_tts.workers.socket_directory import SocketDirectory
directory = SocketDirectory()
directory.note_worker(int(sys.argv[1]))
print(directory.clients_path, flush=True)
time.sleep(600)
"""
WORKER = "import time; print(flush=True); time.sleep(600)"


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for temporary files that no other test uses."""
    tmp_path_factory.getbasetemp()  # not in there
    path = tempfile.mkdtemp()
    monkeypatch.setenv("TMPDIR", path)
    monkeypatch.setattr("tempfile.tempdir", path)
    yield Path(path)
    shutil.rmtree(path)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python code as a process; none is left."""
    processes: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *arguments]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def killed_owner(start: Callable[..., subprocess.Popen[str]], worker: int = 0) -> Path:
    """The socket's path of an owner that was killed."""
    owner = start(OWNER, str(worker))
    assert owner.stdout is not None
    path = Path(owner.stdout.readline().strip())
    owner.kill()
    owner.wait()
    return path


def test_a_directory_goes_with_its_owner(parent: Path) -> None:
    directory = SocketDirectory()
    assert Path(directory.clients_path).parent.stat().st_mode & 0o777 == 0o700
    Path(directory.clients_path).touch()
    directory.note_worker(1)
    directory.remove()
    assert not list(parent.iterdir())


def test_what_a_killed_owner_left_is_removed_and_its_stopped_worker_ended(
    parent: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    path = killed_owner(start)
    worker = start(WORKER, "--clients", str(path))
    assert worker.stdout is not None
    worker.stdout.readline()  # a process that is just being born has no command line yet
    (path.parent / "worker").write_text(str(worker.pid))
    path.touch()
    worker.send_signal(signal.SIGSTOP)
    clear_leftovers()
    assert worker.wait(30) == -signal.SIGKILL
    assert not list(parent.iterdir())


def test_a_living_owners_directory_stays_even_if_the_owner_is_stopped(
    parent: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    owner = start(OWNER, str(os.getpid()))
    assert owner.stdout is not None
    theirs = Path(owner.stdout.readline().strip()).parent
    owner.send_signal(signal.SIGSTOP)
    ours = SocketDirectory()
    clear_leftovers()
    assert set(parent.iterdir()) == {theirs, Path(ours.clients_path).parent}
    ours.remove()


def test_a_process_that_has_got_the_workers_id_lives_on(
    parent: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    stranger = start(WORKER, "--clients", str(parent / "realtime-tts-other" / "clients.sock"))
    killed_owner(start, stranger.pid)
    clear_leftovers()
    assert stranger.poll() is None
    assert not list(parent.iterdir())


@pytest.mark.parametrize("note", ["", "none", "-1", "0", "99999999999999999999"])
def test_a_damaged_note_ends_no_process(parent: Path, start: Callable[..., subprocess.Popen[str]], note: str) -> None:
    path = killed_owner(start)
    (path.parent / "worker").write_text(note)
    clear_leftovers()
    assert not list(parent.iterdir())


def test_links_files_and_what_others_can_enter_are_left_alone(
    parent: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(0o700)
    (victim / "worker").write_text("1")
    (parent / "realtime-tts-link").symlink_to(victim)
    (parent / "realtime-tts-file").touch()
    (parent / "realtime-tts-open").mkdir()
    (parent / "realtime-tts-open").chmod(0o777)
    (parent / "realtime-tts-open" / "clients.sock").touch()
    path = killed_owner(start)
    worker = start(WORKER, "--clients", str(path))
    assert worker.stdout is not None
    worker.stdout.readline()
    noted = path.parent / "worker"
    noted.unlink()
    noted.symlink_to(tmp_path / "pid")
    (tmp_path / "pid").write_text(str(worker.pid))
    clear_leftovers()
    assert worker.poll() is None
    assert {path.name for path in parent.iterdir()} == {"realtime-tts-link", "realtime-tts-file", "realtime-tts-open"}
    assert (victim / "worker").exists()
    assert (parent / "realtime-tts-open" / "clients.sock").exists()


def test_a_directory_that_holds_more_than_ours_keeps_it(
    parent: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    directory = killed_owner(start).parent
    (directory / "thesis.txt").touch()
    clear_leftovers()
    assert [path.name for path in directory.iterdir()] == ["thesis.txt"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's directory")
def test_another_users_directory_is_left_alone(parent: Path) -> None:
    theirs = parent / "realtime-tts-theirs"
    theirs.mkdir(0o700)
    (theirs / "worker").touch()
    os.chown(theirs, 12345, 12345)
    clear_leftovers()
    assert (theirs / "worker").exists()
