"""Every way in which a voice can be given, through both Python APIs: what the worker is asked to speak with."""

from __future__ import annotations

import asyncio
import json
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_worker import fake_worker_command

from realtime_tts import TTS, AsyncTTS
from realtime_tts.workers.supervisor import WorkerSpec

RATE_HZ, PATCH_S = 48_000, 0.16
DESIGN = "an old man, slow and warm"
Frames = list[dict[str, Any]]


def tone(num_patches: int, pitch: float) -> np.ndarray[Any, Any]:
    """Return a recording of so many of the fake's patches, at the rate at which recordings are sent unchanged."""
    return (8000 * np.sin(np.arange(round(num_patches * PATCH_S * RATE_HZ)) * pitch)).astype(np.int16)


REFERENCE, PROMPT, SAID = tone(4, 0.01), tone(3, 0.02), "what is said in it"
REFERENCE_WAY = {"reference_audio": (REFERENCE, RATE_HZ)}
PROMPT_WAY = {"prompt_audio": (PROMPT, RATE_HZ), "prompt_text": SAID}
# name → (arguments, named voice, reference, prompt, instructions) that the worker must be asked for
WAYS: dict[str, tuple[dict[str, Any], Any, Any, Any, str | None]] = {
    "zero-shot": ({"voice": "zero-shot"}, None, None, None, None),
    "named": ({"voice": "rms"}, "rms", None, None, None),
    "reference": (REFERENCE_WAY, None, REFERENCE, None, None),
    "prompt": (PROMPT_WAY, None, None, PROMPT, None),
    "both": (REFERENCE_WAY | PROMPT_WAY, None, REFERENCE, PROMPT, None),
    "design": ({"voice": "zero-shot", "instructions": DESIGN}, None, None, None, DESIGN),
    "design and reference": (REFERENCE_WAY | {"instructions": DESIGN}, None, REFERENCE, None, DESIGN),
    "one recording as both, and a design": (
        REFERENCE_WAY | {"prompt_audio": (REFERENCE, RATE_HZ), "prompt_text": SAID, "instructions": DESIGN},
        None, REFERENCE, REFERENCE, DESIGN,
    ),
}  # fmt: skip


class Caller:
    """A TTS of either kind, and what its worker was asked since the last look."""

    def __init__(
        self, asked: Path, speak: Callable[..., int], add: Callable[..., None], remove: Callable[[str], None]
    ) -> None:
        self._asked, self._num_seen = asked, 0
        self.speak, self.add, self.remove = speak, add, remove

    def asked(self, **counts: int) -> Frames:
        """The frames up to so many of each of these types, which may still be under way."""
        deadline = time.monotonic() + 20
        while True:
            whole = self._asked.read_text(encoding="utf-8") if self._asked.exists() else ""
            frames = [json.loads(line) for line in whole.splitlines(keepends=True) if line.endswith("\n")]
            found = frames[self._num_seen :]
            if all(len(of_type(found, kind)) >= count for kind, count in counts.items()):
                self._num_seen = len(frames)
                return found
            assert time.monotonic() < deadline, f"no {counts} among {[frame['type'] for frame in found]}"
            time.sleep(0.01)


def workers(asked: Path) -> list[WorkerSpec]:
    return [WorkerSpec(command=fake_worker_command(patch_delay_s=0.0, takes_instructions=True, asked=asked))]


@pytest.fixture(scope="module", params=["blocking", "asynchronous"])
def caller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    asked = tmp_path_factory.mktemp("asked") / "frames.jsonl"
    if request.param == "blocking":
        with TTS(workers=workers(asked)) as tts:
            yield Caller(
                asked,
                lambda **options: sum(map(len, tts.generate("Hello.", **options))),
                tts.add_voice,
                tts.remove_voice,
            )
        return
    loop = asyncio.new_event_loop()

    async def speak(**options: Any) -> int:
        return sum([len(chunk) async for chunk in speaking.generate("Hello.", **options)])

    async def remove(name: str) -> None:
        speaking.remove_voice(name)

    speaking = loop.run_until_complete(AsyncTTS(workers=workers(asked)).__aenter__())
    yield Caller(
        asked,
        lambda **options: loop.run_until_complete(speak(**options)),
        lambda *args, **options: loop.run_until_complete(speaking.add_voice(*args, **options)),
        lambda name: loop.run_until_complete(remove(name)),
    )
    loop.run_until_complete(speaking.close())
    loop.close()


def of_type(frames: Frames, kind: str) -> Frames:
    return [frame for frame in frames if frame["type"] == kind]


def check_recordings(frames: Frames, reference: Any, prompt: Any) -> str:
    """What was encoded and kept is of these recordings, each in its part; the voice's id."""
    parts = [b"" if samples is None else samples.tobytes() for samples in (reference, prompt)]
    [encoding], [adding] = of_type(frames, "encode_voice"), of_type(frames, "add_voice")
    heard = np.frombuffer(bytes.fromhex(encoding["payload"]), "<i2").astype(int)
    sent = np.frombuffer(b"".join(parts), "<i2").astype(int)
    assert heard.shape == sent.shape
    assert np.abs(heard - sent).max() <= 1, "other samples than those of the recordings, in their order"
    assert (encoding["sample_rate"], encoding["num_reference_bytes"]) == (RATE_HZ, len(parts[0]))
    counts = [round(len(part) / 2 / RATE_HZ / PATCH_S) for part in parts]
    assert [adding["num_reference_patches"], adding["num_prompt_patches"]] == counts
    assert adding["payload"] == array("f", range(sum(counts))).tobytes().hex(), "the latents that it was given"
    assert adding["prompt_text"] == (SAID if parts[1] else None)
    return str(adding["voice_id"])


@pytest.mark.parametrize("way", WAYS)
def test_the_worker_is_asked_for_the_voice_that_was_given(caller: Caller, way: str) -> None:
    options, named, reference, prompt, instructions = WAYS[way]
    is_lent = reference is not None or prompt is not None
    assert caller.speak(**options) > 0
    frames = caller.asked(close_context=1, remove_voice=is_lent)
    [wanted] = of_type(frames, "generate")
    assert wanted["instructions"] == instructions
    if not is_lent:
        assert wanted["voice"] == named
        assert not of_type(frames, "encode_voice") + of_type(frames, "add_voice")
        return
    voice_id = check_recordings(frames, reference, prompt)
    assert wanted["voice"] == voice_id
    assert [frame["voice_id"] for frame in of_type(frames, "remove_voice")] == [voice_id], "lent for one call"


def test_a_voice_that_is_kept_is_encoded_once_and_spoken_with_by_its_name(caller: Caller) -> None:
    caller.add("mine", **REFERENCE_WAY, **PROMPT_WAY)
    assert caller.speak(voice="mine") > 0
    assert caller.speak(voice="mine", instructions=DESIGN) > 0
    caller.remove("mine")
    frames = caller.asked(close_context=2, remove_voice=1)
    voice_id = check_recordings(frames, REFERENCE, PROMPT)
    wanted = [(frame["voice"], frame["instructions"]) for frame in of_type(frames, "generate")]
    assert wanted == [(voice_id, None), (voice_id, DESIGN)]
