"""Voices on disk: what is added outlives a crash, what is removed leaves nothing, several processes may do both."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from realtime_tts.errors import ConfigError, InternalError, TooManyVoices, VoiceExists, VoiceNotFound
from realtime_tts.speech.voice_store import Consent, Latents, VoiceRecord, VoiceStore, open_store

LATENTS = Latents(3, 2, 4, 8, bytes(range(256)) * 2 + b"secret latents!!" * 8, "What is said in the prompt.")
VOICE = VoiceRecord(
    "voice-1",
    "key-a",
    "Anna",
    "voxcpm2",
    1000.5,
    LATENTS,
    "a low voice",
    "en",
    "An old woman, slow and warm",
    Consent("the studio", "phone calls", 999.0, "ab" * 32),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VoiceStore]:
    opened = VoiceStore(tmp_path / "voices")
    yield opened
    opened.close()


def named(voice: VoiceRecord, voice_id: str, **changed: object) -> VoiceRecord:
    return dataclasses.replace(voice, voice_id=voice_id, **{"name": voice_id, **changed})  # type: ignore[arg-type]


def files(store: VoiceStore) -> list[str]:
    return sorted(path.name for path in (store.directory / "latents").iterdir())


def test_a_voice_comes_back_as_it_was_given(store: VoiceStore) -> None:
    bare = VoiceRecord("voice-2", "", "bare", "voxcpm2", 1001.0, Latents(1, 0, 4, 8, b"x"))
    store.add(VOICE)
    store.add(bare)
    assert store.voices("voxcpm2") == [VOICE, bare]
    assert store.voices("another model") == []
    again = VoiceStore(store.directory)
    assert again.voices("voxcpm2") == [VOICE, bare]
    again.close()


def test_a_name_belongs_to_one_voice_of_a_key(store: VoiceStore) -> None:
    store.add(VOICE)
    with pytest.raises(VoiceExists):
        store.add(named(VOICE, "voice-2", name="Anna", latents=dataclasses.replace(LATENTS, payload=b"others")))
    store.add(named(VOICE, "voice-3", name="Anna", tenant="key-b"))
    store.add(named(VOICE, "voice-4", name="Bert"))
    with pytest.raises(VoiceExists):
        store.describe("voice-4", name="Anna", description="", language="")
    assert [(voice.tenant, voice.name) for voice in store.voices("voxcpm2")] == [
        ("key-a", "Anna"),
        ("key-b", "Anna"),
        ("key-a", "Bert"),
    ]
    assert len(files(store)) == 1  # all of one recording, and nothing of the one that was refused


def test_a_key_gets_no_voice_too_many_whichever_process_adds_it(store: VoiceStore) -> None:
    another = VoiceStore(store.directory)
    loan = {"ttl_s": 60.0, "expires_at": time.time() + 60}
    other_recording = dataclasses.replace(LATENTS, payload=b"others")
    store.add(VOICE, limit=2)
    another.add(named(VOICE, "voice-2"), limit=2)
    for process in (store, another):
        with pytest.raises(TooManyVoices, match="2 voices; delete"):
            process.add(named(VOICE, "voice-3", latents=other_recording), limit=2)
    assert len(files(store)) == 1
    # Counted apart: other keys' voices, other models', and temporary ones.
    for number, other in enumerate(({"tenant": "key-b"}, {"model": "voxcpm1"}, loan)):
        another.add(named(VOICE, f"other-{number}", **other), limit=1)
    with pytest.raises(TooManyVoices, match="temporary"):
        store.add(named(VOICE, "loan-2", **loan), limit=1)
    store.remove("voice-2")
    another.add(named(VOICE, "voice-3"), limit=2)
    another.close()


def test_what_is_said_of_a_voice_can_change(store: VoiceStore) -> None:
    store.add(VOICE)
    store.describe("voice-1", name="Annie", description="low", language="de")
    assert store.voices("voxcpm2") == [dataclasses.replace(VOICE, name="Annie", description="low", language="de")]
    with pytest.raises(VoiceNotFound):
        store.describe("voice-9", name="x", description="", language="")


def test_nothing_is_left_of_a_removed_voice(store: VoiceStore) -> None:
    store.add(VOICE)
    store.add(named(VOICE, "voice-2"))
    store.remove("voice-1")
    assert [voice.voice_id for voice in store.voices("voxcpm2")] == ["voice-2"]
    assert len(files(store)) == 1  # the other one's still
    store.remove("voice-2")
    store.remove("voice-2")
    assert files(store) == []
    left = b"".join(path.read_bytes() for path in store.directory.iterdir() if path.is_file())
    for secret in (b"Anna", b"voice-2", b"What is said", b"the studio", b"An old woman"):
        assert secret not in left


@pytest.mark.parametrize("damage", ["gone", "changed", "cut"])
def test_a_voice_whose_latents_are_damaged_is_left_out(
    store: VoiceStore, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    store.add(VOICE)
    whole = named(VOICE, "voice-2", latents=dataclasses.replace(LATENTS, payload=b"whole"))
    store.add(whole)
    path = next(path for path in (store.directory / "latents").iterdir() if path.read_bytes() == LATENTS.payload)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(LATENTS.payload[1:] if damage == "cut" else b"!" + LATENTS.payload[1:])
    for _ in range(2):
        assert store.voices("voxcpm2") == [whole]
    assert caplog.messages == ["the voice voice-1 is left out: its file of latents is missing or damaged"]
    store.add(named(VOICE, "voice-3"))  # the same recording again mends it
    assert {voice.voice_id for voice in store.voices("voxcpm2")} == {"voice-1", "voice-2", "voice-3"}


def test_files_that_no_voice_names_go_with_the_next_start_once_they_are_old(store: VoiceStore) -> None:
    store.add(VOICE)
    old, new = store.directory / "latents/.partial", store.directory / "latents/new"
    for path in (old, new):
        path.write_bytes(b"left by a crash")
    os.utime(old, (time.time() - 7200,) * 2)
    VoiceStore(store.directory).close()
    assert not old.exists()
    assert new.exists()  # perhaps of a process that is about to name it
    assert store.voices("voxcpm2") == [VOICE]


def test_others_see_what_one_process_has_done(store: VoiceStore) -> None:
    assert store.voices("voxcpm2") == []
    before = store.version()
    code = (
        "import sys; from pathlib import Path; from realtime_tts.speech.voice_store import *;"
        "VoiceStore(Path(sys.argv[1])).add(VoiceRecord('v', '', 'name', 'voxcpm2', 1.0, Latents(1, 0, 4, 8, b'x')))"
    )
    subprocess.run([sys.executable, "-c", code, str(store.directory)], check=True)
    assert (after := store.version()) != before
    assert [voice.name for voice in store.voices("voxcpm2")] == ["name"]
    store.remove("v")
    assert store.version() == after  # one's own doing


def test_threads_and_processes_may_add_at_once(store: VoiceStore) -> None:
    other = VoiceStore(store.directory)
    names = [f"voice-{number}" for number in range(40)]

    def add(where: VoiceStore, share: list[str]) -> None:
        for name in share:
            where.add(named(VOICE, name))
            if name.endswith("0"):
                where.remove(name)

    threads = [
        threading.Thread(target=add, args=(where, names[first::4]))
        for first, where in enumerate((store, other, store, other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {name for name in names if not name.endswith("0")}
    assert {voice.voice_id for voice in store.voices("voxcpm2")} == expected
    assert {voice.voice_id for voice in other.voices("voxcpm2")} == expected
    other.close()


def test_latents_that_another_process_gives_up_meanwhile_are_kept(
    store: VoiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one removes the last voice that has them, after they were found and before the new one is there."""
    other = VoiceStore(store.directory)
    store.add(named(VOICE, "old"))
    removing = threading.Thread(target=other.remove, args=("old",))
    write = store._write_latents

    def write_and_give_way(*args: object) -> object:
        written = write(*args)  # type: ignore[arg-type]
        removing.start()
        removing.join(0.5)  # it waits for the new one
        return written

    monkeypatch.setattr(store, "_write_latents", write_and_give_way)
    store.add(named(VOICE, "new"))
    removing.join()
    assert [voice.voice_id for voice in other.voices("voxcpm2")] == ["new"]
    other.close()


def test_a_directory_that_cannot_be_used_is_an_invalid_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        VoiceStore(tmp_path / "file")
    assert caught.value.field == "voices_dir"
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/voices.sqlite3").write_bytes(b"no database, whatever its name says" * 100)
    with pytest.raises(ConfigError):
        VoiceStore(tmp_path / "broken")
    newer = VoiceStore(tmp_path / "newer")
    newer._db.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(ConfigError, match="format 99"):
        VoiceStore(tmp_path / "newer")


def test_a_disk_that_refuses_is_told_and_leaves_nothing(store: VoiceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(InternalError):
            store.add(VOICE)
    assert (store.voices("voxcpm2"), files(store)) == ([], [])
    store.add(VOICE)
    store.close()
    for call in (
        lambda: store.voices("voxcpm2"),
        lambda: store.add(named(VOICE, "x")),
        lambda: store.remove("voice-1"),
    ):
        with pytest.raises(InternalError) as caught:
            call()
        assert isinstance(caught.value.__cause__, sqlite3.Error)


def test_a_change_that_cannot_be_committed_leaves_the_next_one_to_be_made(store: VoiceStore) -> None:
    class FullOnce:
        """The database, on a disk that is full when the first change is to be committed."""

        def __init__(self, db: sqlite3.Connection) -> None:
            self.db, self.num_commits = db, 0

        def __getattr__(self, name: str) -> object:
            return getattr(self.db, name)

        def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
            if statement == "COMMIT":
                self.num_commits += 1
                if self.num_commits == 1:
                    raise sqlite3.OperationalError("database or disk is full")
            return self.db.execute(statement, *values)

    store._db = FullOnce(store._db)  # type: ignore[assignment]
    with pytest.raises(InternalError):
        store.add(VOICE)
    assert store.voices("voxcpm2") == []
    store.add(VOICE)
    assert [voice.voice_id for voice in store.voices("voxcpm2")] == [VOICE.voice_id]


def test_servers_that_use_a_directory_at_a_time_ask_for_the_same_consent(tmp_path: Path) -> None:
    setting = str(tmp_path / "voices")
    first, second = (open_store(setting, "attested") for _ in range(2))
    assert first is not None
    assert second is not None
    first.close()
    with pytest.raises(
        ConfigError, match=r"keeps its voices in .*voices with --voice-consent attested, this one has off"
    ):
        open_store(setting, "off")
    second.close()
    third = open_store(setting, "off")
    assert third is not None
    with pytest.raises(ConfigError, match="--voice-consent off, this one has attested"):
        open_store(setting, "attested")
    third.close()


def test_a_name_that_a_voice_of_another_model_has_is_said_to_be_its(store: VoiceStore) -> None:
    store.add(VOICE)
    with pytest.raises(VoiceExists, match="there is a voice 'Anna' already, made with the model voxcpm2"):
        store.add(named(VOICE, "voice-2", name="Anna", model="another model"))
    with pytest.raises(VoiceExists, match=r"there is a voice 'Anna' already$"):
        store.add(named(VOICE, "voice-2", name="Anna"))
    assert store.ids() == ["voice-1"]


def test_voices_and_other_records_can_be_deleted_on_a_full_disk(store: VoiceStore) -> None:
    class Full:
        """The database, on a disk that is full but for the space that the store itself keeps free."""

        def __init__(self, db: sqlite3.Connection) -> None:
            self.db = db

        def __getattr__(self, name: str) -> object:
            return getattr(self.db, name)

        def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
            if statement == "COMMIT" and any(path.stat().st_size >= 256 * 1024 for path in files_in(store)):
                raise sqlite3.OperationalError("database or disk is full")
            return self.db.execute(statement, *values)

    def files_in(store: VoiceStore) -> list[Path]:
        return [path for path in store.directory.iterdir() if path.is_file() and "sqlite" not in path.name]

    store.add(VOICE)
    store.add(dataclasses.replace(VOICE, name="another", voice_id="voice-2", expires_at=0.0, ttl_s=10.0))
    store.insert("consent", {"record_id": "cons-1", "tenant": "key-a", "created_at": 1.0}, 1)
    store._db = Full(store._db)  # type: ignore[assignment]
    with pytest.raises(InternalError):
        store.add(dataclasses.replace(VOICE, name="third", voice_id="voice-3"))
    store.remove(VOICE.voice_id)
    store.remove_expired(1.0)
    assert store.voices("voxcpm2") == []
    store.delete("cons-1")
    assert store.find("consent", "key-a") == []
    assert sum(path.stat().st_size for path in files_in(store)) >= 256 * 1024  # there again for the next ones


def test_nothing_is_stored_in_a_directory_that_was_taken_away(store: VoiceStore) -> None:
    """SQLite goes on in a file that was deleted, and all of it is lost with the process."""
    store.add(VOICE)
    away = store.directory.with_name("away")
    store.directory.rename(away)
    for _ in ("removed", "replaced"):
        with pytest.raises(InternalError, match="removed or replaced: put it back, or restart"):
            store.add(named(VOICE, "voice-2"))
        with pytest.raises(InternalError, match="removed or replaced"):
            store.remove(VOICE.voice_id)
        with pytest.raises(InternalError, match="removed or replaced"):
            store.version()
        assert store.ids() == [VOICE.voice_id]
        VoiceStore(store.directory).close()
    shutil.rmtree(store.directory)
    away.rename(store.directory)
    store.version()
    store.add(named(VOICE, "voice-2"))
    assert store.voices("voxcpm2") == [VOICE, named(VOICE, "voice-2")]


def test_strangers_on_the_machine_cannot_read_it(store: VoiceStore) -> None:
    store.add(VOICE)
    assert (store.directory / "latents").stat().st_mode & 0o077 == 0
    assert store.directory.stat().st_mode & 0o777 == 0o700
    assert next((store.directory / "latents").iterdir()).stat().st_mode & 0o077 == 0
    assert (store.directory / "voices.sqlite3").stat().st_mode & 0o077 == 0
