"""The table of tags: nothing of it is ever read aloud, what has no effect is reported, and the page lists all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from realtime_tts.text.planner import PlannerFactory, Segment
from realtime_tts.text.tags import DIRECTIONS, ELEMENTS, MODEL_SOUNDS, PAUSES_MS, SOUNDS, TYPES, Effect

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/speaking.md"
LETTERS = "abcdefghijklmnopqrstuvwxyz ,.?!'-"
ATTRIBUTES = {
    "break": ' time="250ms"', "speed": ' ratio="1.5"', "volume": ' ratio="0.5"',
    "prosody": ' rate="slow" volume="+3dB"',
    "say-as": ' interpret-as="date"', "sound": ' value="laugh"', "emotion": ' value="sad"',
    "expr": ' type="expression" label="say it really playfully, as if it were nothing, and do not rush"',
}  # fmt: skip
SPELLING = ("spell",)  # its content is read differently
OPENING = {name: f"<{name}{ATTRIBUTES.get(name, '')}>" for name in ELEMENTS if name not in SPELLING}
TYPED = [f'<expr type="{kind}" label="laugh"/>' for kind in TYPES if kind != "spell"]
NAMES = [*PAUSES_MS, *MODEL_SOUNDS, *DIRECTIONS]
TAGS = [
    *OPENING.values(), *(f"</{name}>" for name in OPENING), *(tag.replace(">", "/>") for tag in OPENING.values()),
    *TYPED, r"\{pause:1s\}", r"\{ pause : 500 ms \}",
    *(f"{opener}{name}{closer}" for name in NAMES for opener, closer in (("[", "]"), ("[[", "]]"), ("<<", ">>"))),
]  # fmt: skip
SILENT_ONES = [
    tag for name, tag in OPENING.items() if ELEMENTS[name] in (Effect.UNSUPPORTED, Effect.SOUND)
] + [f"[{name}]" for name in (*MODEL_SOUNDS, *DIRECTIONS)]  # fmt: skip


def plan(*deltas: str, live: bool = False, charset: str | None = LETTERS, text_type: str = "text") -> list[Segment]:
    planner = PlannerFactory(charset, 200, None, makes_sounds=charset is None).make(
        "en", live=live, text_type=text_type
    )
    made = [segment for number, delta in enumerate(deltas) for segment in planner.push(delta, number / 100)]
    return [*made, *planner.end(len(deltas) / 100)]


def spoken(segments: list[Segment]) -> str:
    return " ".join(segment.text for segment in segments if segment.final)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("case", [str.lower, str.upper, str.title])
def test_no_tag_is_read_aloud_in_any_casing_letter_by_letter(case: object, live: bool) -> None:
    assert callable(case)
    for first in range(0, len(TAGS), 12):
        text = "".join(f"{case(tag)} zebra {case(tag)}" for tag in TAGS[first : first + 12])
        words = spoken(plan(*text, live=live)).replace(",", " ").replace(".", " ").split()
        assert words == ["zebra"] * len(TAGS[first : first + 12]), text


@pytest.mark.parametrize("language", ["de", "zh"])
@pytest.mark.parametrize("charset", [LETTERS, None])
def test_nor_in_another_language(language: str, charset: str | None) -> None:
    planner = PlannerFactory(charset, 200, None).make(language)
    for tag in TAGS:
        planner.push(f"{tag} zebra ", 0.0)
    segments = [*planner.end(0.0)]
    assert set(re.findall(r"\w+", spoken(segments))) <= {"zebra"}


def test_nor_within_ssml() -> None:
    names = " ".join(f"[{name}] zebra [[{name}]]" for name in (*MODEL_SOUNDS, *DIRECTIONS))
    words = spoken(plan(*f"<speak>{names}</speak>", text_type="auto")).replace(",", " ").split()
    assert set(words) == {"zebra"}


@pytest.mark.parametrize("tag", SILENT_ONES)
def test_a_tag_without_effect_is_reported(tag: str) -> None:
    planner = PlannerFactory(LETTERS, 200, None).make("en")
    for char in f"Ha {tag} ha.":
        planner.push(char, 0.0)
    planner.end(0.0)
    assert list(planner.take_ignored()) == [(3, 3 + len(tag))]
    assert list(planner.take_skipped()) == []


@pytest.mark.parametrize(
    "control", [r'\{"word": "zebra", "pronounce": "ˈzɛbrə"\}', r'\{"word":"zebra","pronounce":""\}']
)
@pytest.mark.parametrize("live", [False, True])
def test_a_word_is_read_as_written_and_its_phonemes_are_reported(control: str, live: bool) -> None:
    """The word has its own position, whatever the control adds to it."""
    text = f"The {control} here."
    at = text.index("zebra")
    for deltas in ((text,), tuple(text)):
        planner = PlannerFactory(LETTERS, 200, None).make("en", live=live)
        made = [segment for number, delta in enumerate(deltas) for segment in planner.push(delta, number / 100)]
        made = [each for each in [*made, *planner.end(10.0)] if each.final]
        assert spoken(made) == "The zebra here."
        assert [(word.text, word.start) for each in made for word in each.words][1] == ("zebra", at)
        assert list(planner.take_ignored()) == [(at + len("zebra"), text.index(" here"))]


@pytest.mark.parametrize("text", [r"C:\{word}", r'\{"word": "zebra"\}', r"\{pause\}", "\\", r"a \ b"])
def test_other_backslashes_are_text(text: str) -> None:
    assert "backslash" in spoken(plan(*text))


@pytest.mark.parametrize(("name", "sound"), MODEL_SOUNDS.items())
def test_a_model_that_makes_sounds_receives_its_own_names(name: str, sound: str) -> None:
    for tag in (f"[{name.upper()}]", f"[[{name}]]", f"<sound value='{name}'/>", f'<expr type="sound" label="{name}"/>'):
        for deltas in ((f"Ha {tag} ha.",), tuple(f"Ha {tag} ha.")):
            assert spoken(plan(*deltas, charset=None)) == f"Ha [{sound}] ha."
    planner = PlannerFactory(None, 200, None, makes_sounds=True).make("zh")
    assert [each.text for each in [*planner.push(f"好[{name}]。", 0.0), *planner.end(0.0)]] == [f"好 [{sound}]。"]
    assert list(planner.take_ignored()) == []


def test_the_page_lists_the_table() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Tags in plain text")[1].split("\n## ")[0]
    rows = dict(re.findall(r"(?m)^\| (.+?) \| (.+?) \|", section))
    for effect in Effect:
        names = [name for name, found in ELEMENTS.items() if found is effect]
        listed = {
            name
            for row, told in rows.items()
            if told.startswith(effect.value)
            for name in re.findall(r"`<([\w-]+)", row)
        }
        assert set(names) <= listed, effect
    for sound, others in SOUNDS.items():
        assert all(f"`[{name}]`" in section for name in (sound, *others.split()))
    assert all(f"`[{name}]`" in section for name in PAUSES_MS)
    listed = {name for row in rows if row.startswith("`[affectionate]`") for name in re.findall(r"\[([^]]+)\]", row)}
    assert listed == set(DIRECTIONS)
