"""Table of the tags of all services with the effect of each, for the readers and the page on speaking.

Sources: Cartesia's tags, Deepgram's inline controls (only in `markup.py`), ElevenLabs' audio tags, LiveKit's expressive
markup and the forms it has for other services, Pipecat's expression tags, SSML, and the sounds that VoxCPM2 was trained
with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from realtime_tts.contract.speech_params import MAX_SPEED, MAX_VOLUME, MIN_SPEED

MAX_PAUSE_MS = 10_000.0
DEFAULT_PAUSE_MS = 500.0
STRENGTHS_MS = {"none": 0.0, "x-weak": 100.0, "weak": 250.0, "medium": 500.0, "strong": 750.0, "x-strong": 1000.0}


class Effect(Enum):
    """Effect of a tag, described for the page on speaking."""

    PAUSE = "silence: the given time, or 500 ms"
    MANNER = "speed and volume of the speech that follows, or of the content"
    SPELL = "the content is spelt out"
    SOUND = "a sound, if the model makes it; otherwise silent and reported"
    SILENT = "silent"
    UNSUPPORTED = "silent and reported"


_UNSUPPORTED = (
    "audio build-intensity decrease-intensity emotion emphasis expr expression higher-pitch lang laugh-speak loud "
    "lower-pitch mark phoneme sing-song singing soft voice whisper"
)
# Tags in angle brackets; SSML's structure and substitutions (p, s, sub, metadata …) are only in its own reader.
ELEMENTS = {
    "break": Effect.PAUSE,
    "speed": Effect.MANNER,
    "volume": Effect.MANNER,
    "prosody": Effect.MANNER,
    "spell": Effect.SPELL,
    "say-as": Effect.SPELL,
    "sound": Effect.SOUND,
    "speak": Effect.SILENT,
    **dict.fromkeys(_UNSUPPORTED.split(), Effect.UNSUPPORTED),
}
# LiveKit's `<expr type="break" label="1s"/>` is `<break time="1s"/>`: element and attribute by type.
TYPES = {"break": "time", "prosody": "label", "sound": "value", "spell": ""}
# Names in brackets, [name], [[name]] and <<name>>, with or without an adverb: "[laughs softly]", "[very sad]".
PAUSES_MS = {"pause": 500.0, "short pause": 250.0, "long pause": 1000.0, "break": 500.0, "long break": 1000.0}
# VoxCPM2's sounds, and other names for them.
SOUNDS = {
    "laughing": "laugh laughs laughter chuckle chuckles chuckling giggle giggles giggling",
    "sigh": "sighs sighing",
    **dict.fromkeys(("Uhm", "Shh", "Question-ah", "Question-ei", "Question-en", "Question-oh"), ""),
    **dict.fromkeys(("Surprise-wa", "Surprise-yo", "Dissatisfaction-hnn"), ""),
}
MODEL_SOUNDS = {name.lower(): sound for sound, names in SOUNDS.items() for name in (sound, *names.split())}
# Manners of speaking, and sounds that no supported model makes.
_DIRECTIONS = (
    "affectionate|angrily|angry|annoyed|anxious|apologetic|appalled|applause|argh|breath|breathe|breathes|calm|calmly|"
    "cheerful|cheerfully|clapping|clear throat|clears throat|confident|confused|cough|coughs|cry|crying|curious|"
    "curiously|delighted|determined|disappointed|disgusted|dramatic|dramatically|empathetic|excited|excitedly|exhale|"
    "exhales|exhales sharply|explosion|fearful|frustrated|gasp|gasping|gasps|gentle|gently|grateful|groan|groaning|"
    "groans|gulps|gunshot|happily|happy|hesitant|hopeful|hum-tune|hurried|inhale|inhales|inhales deeply|laughs harder|"
    "lip-smack|melancholic|mischievously|muttering|mutters|nervous|nervously|playful|playfully|proud|quiet|quietly|"
    "regretful|reassuring|sad|sadly|sarcastic|sarcastically|scared|serious|shout|shouting|shouts|sing|singing|sings|"
    "sniff|sniffs|snorts|sob|sobbing|sobs|soft|softly|starts laughing|surprised|swallows|sympathetic|thoughtful|"
    "tongue-click|tsk|warm|warmly|wheezing|whisper|whispering|whispers|woo|worried|yawn|yawning|yawns"
)
DIRECTIONS = tuple(_DIRECTIONS.split("|"))
RATES = {"x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.25, "x-fast": 1.5}
VOLUMES = {"silent": 0.0, "x-soft": 0.25, "soft": 0.5, "medium": 1.0, "default": 1.0, "loud": 1.4, "x-loud": 2.0}

_DURATION = re.compile(r"\+?(\d{1,6}(?:\.\d*)?|\.\d+)\s{0,2}(ms|s)", re.ASCII | re.IGNORECASE)
_PERCENT = re.compile(r"([+-]?)(\d{1,4}(?:\.\d{1,3})?)%", re.ASCII)
_NUMBER = re.compile(r"\d{1,3}(?:\.\d{0,6})?|\.\d{1,6}", re.ASCII)
_DECIBELS = re.compile(r"([+-]?\d{1,3}(?:\.\d{1,3})?)dB", re.ASCII | re.IGNORECASE)


def duration_ms(time: str | None, strength: str | None = None) -> float | None:
    """Return the duration of a pause with these attributes, at most `MAX_PAUSE_MS`; None if one is invalid."""
    if time is not None:
        found = _DURATION.fullmatch(time.strip())
        if found is None:
            return None
        return min(MAX_PAUSE_MS, float(found.group(1)) * (1.0 if found.group(2).lower() == "ms" else 1000.0))
    return DEFAULT_PAUSE_MS if strength is None else STRENGTHS_MS.get(strength)


def manner(name: str, attributes: Mapping[str, str]) -> tuple[float | None, float | None, bool]:
    """Return the speed and the volume that a tag sets, None for unchanged, and whether all of it is supported."""
    if name == "prosody":
        if (label := attributes.get("label")) is not None:
            attributes = {"rate" if label in RATES else "volume": label}
        found = {"rate": rate(attributes.get("rate", "")), "volume": loudness(attributes.get("volume", ""))}
    else:
        ratio = attributes.get("ratio", attributes.get("level", ""))
        attributes = {"rate" if name == "speed" else "volume": ratio}
        found = dict.fromkeys(attributes, float(ratio) if _NUMBER.fullmatch(ratio) else None)
    speed, volume = found.get("rate"), found.get("volume")
    return (
        None if speed is None else min(max(speed, MIN_SPEED), MAX_SPEED),
        None if volume is None else min(volume, MAX_VOLUME),
        bool(attributes) and all(found.get(each) is not None for each in attributes),
    )


def rate(value: str) -> float | None:
    """Return the factor of SSML's `rate`: a name, a percentage, a change in percent, a number; None if it is none."""
    if value in RATES:
        return RATES[value]
    if (percent := _PERCENT.fullmatch(value)) is not None:
        change = float(percent.group(2)) / 100
        return 1 + change if percent.group(1) == "+" else 1 - change if percent.group(1) == "-" else change
    return float(value) if _NUMBER.fullmatch(value) else None


def loudness(value: str) -> float | None:
    """Return the factor of SSML's `volume`: a name or decibels; None if it is neither."""
    if value in VOLUMES:
        return VOLUMES[value]
    decibels = _DECIBELS.fullmatch(value)
    return None if decibels is None else min(MAX_VOLUME, float(10 ** (float(decibels.group(1)) / 20)))
