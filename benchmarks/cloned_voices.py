"""Similarity of cloned voices to their recordings, through the whole server: upload, check, encoding, speech, socket.

    python -m benchmarks.cloned_voices --speakers 12

The recordings are of pseudo-speakers that the bundled voice's training never heard: Flite's voices with pitch, formants
and rate changed (`training/flite.py`). Each is sent to `POST /v1/voices`, and the voice speaks three texts through the
native protocol. What counts is the rank correlation, over the speakers, between the pitch (and the formants) of the
speaker and of the clone on the same texts; "ceiling" compares the speaker with the same speaker on other texts. It is
the evaluation of docs/starter-voice.md, which tests the model without a server. Needs libflite.
"""

from __future__ import annotations

import argparse
import asyncio
import json

import httpx
import numpy as np
import realtime_tts_client as client
import soxr
from tqdm import tqdm

from realtime_tts.audio.containers import wav_header
from realtime_tts.bench.server_process import running_server
from training.evaluation_measures import measure_speaker
from training.flite import NAMED_SPEAKERS, SAMPLE_RATE_HZ, Flite, Speaker, pseudo_speakers
from training.speech_metrics import rank_correlation
from training.teacher import PSEUDO_SPEAKERS_SEED, utterance

TEXTS = (
    "The harbour was quiet when the first boats came in.",
    "She counted the crates twice and wrote a number down.",
    "It would rain before noon, but the market would not wait.",
)
OTHER_TEXTS = (
    "Someone laughed behind the wall, and a dog barked.",
    "He had never seen so many people in one small room.",
    "The train was late again, so they walked along the river.",
)
RECORDED = "Two boats came in this morning, and a third one waited outside for the tide."
UPLOAD_HZ = 48_000


def recording(flite: Flite, speaker: Speaker) -> bytes:
    """Return a speaker's recording as a WAV file for the upload."""
    samples = soxr.resample(np.asarray(flite.speak(RECORDED, speaker), np.float64), SAMPLE_RATE_HZ, UPLOAD_HZ)
    pcm = np.rint(0.5 * 32_767 * samples / np.abs(samples).max()).astype("<i2").tobytes()
    return wav_header(UPLOAD_HZ, num_samples=len(pcm) // 2) + pcm


def said(flite: Flite, speaker: Speaker, texts: tuple[str, ...]) -> list[np.ndarray]:
    return [utterance(flite, text, speaker) for text in texts]


async def cloned(url: str, name: str, wav: bytes) -> list[np.ndarray]:
    """Make a voice, speak each of `TEXTS`, delete the voice. Return samples [n] at 16 kHz for each text."""
    async with httpx.AsyncClient(base_url=url, timeout=300) as http:
        form = {"name": name, "consent": "true"}
        made = await http.post("/v1/voices", data=form, files={"reference": ("r.wav", wav)})
        made.raise_for_status()
        voice = made.json()["id"]
        audio = client.AudioFormat("pcm_s16le", sample_rate=SAMPLE_RATE_HZ)
        spoken = []
        async with client.connect(url, voice=voice, audio=audio, params={"seed": 0}, playback="consumed") as session:
            for text in TEXTS:
                parts = [part async for part in session.speak(text).pcm("int16")]
                spoken.append(np.concatenate(parts))
        (await http.delete(f"/v1/voices/{voice}")).raise_for_status()
    return spoken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speakers", type=int, default=12)
    given = parser.parse_args()
    flite = Flite()
    speakers = pseudo_speakers(given.speakers, PSEUDO_SPEAKERS_SEED + 1000, prefix="unseen")
    with running_server("--voices-dir", "none") as server:
        url = server.url
        clones = [
            asyncio.run(cloned(url, speaker.name, recording(flite, speaker)))
            for speaker in tqdm(speakers, unit="speaker")
        ]
    bases, other_bases = ([said(flite, base, texts) for base in NAMED_SPEAKERS] for texts in (TEXTS, OTHER_TEXTS))
    true = measured([(said(flite, speaker, TEXTS), bases) for speaker in speakers])
    other = measured([(said(flite, speaker, OTHER_TEXTS), other_bases) for speaker in speakers])
    made = measured([(clone, bases) for clone in clones])
    print(
        json.dumps(
            {
                "speakers": len(speakers),
                "pitch_rho": rank_correlation(true[0], made[0]),
                "formants_rho": rank_correlation(true[1], made[1]),
                "ceiling": {
                    "pitch_rho": rank_correlation(true[0], other[0]),
                    "formants_rho": rank_correlation(true[1], other[1]),
                },
                "pitch_error_percent": 100 * float(np.nanmedian(np.abs(made[0] / true[0] - 1))),
                "formants_error_percent": 100 * float(np.median(np.abs(np.expm1(made[1] - true[1])))),
            },
            indent=2,
        )
    )


def measured(jobs: list[tuple[list[np.ndarray], list[list[np.ndarray]]]]) -> np.ndarray:
    """[pitch and formants, speaker]"""
    return np.array([measure_speaker(None, job) for job in jobs]).T  # type: ignore[arg-type]  # works without


if __name__ == "__main__":
    main()
