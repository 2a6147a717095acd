"""Times of characters: each once and in order, none before the one in front, words where they are heard."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.dialects.elevenlabs.characters import CharacterTimes, TimedCharacter
from realtime_tts.session.messages import TimedWord


@st.composite
def spoken_texts(draw: st.DrawFn) -> tuple[str, list[TimedWord], list[int], list[int], float]:
    """A text, its words with their times, how both are cut, and the length of the audio."""
    blanks = st.text(" \n🙂…", max_size=3)
    words: list[TimedWord] = []
    text, cursor_ms = draw(blanks), 0.0
    for _ in range(draw(st.integers(0, 8))):
        word = draw(st.text("aé.字", min_size=1, max_size=6))
        # As measured, a word may begin before the one in front of it has ended, but not before that began.
        floor_ms = words[-1].start_ms if words else 0.0
        start_ms = max(floor_ms, cursor_ms + draw(st.floats(-80, 300)))
        end_ms = max(start_ms + draw(st.floats(0, 500)), cursor_ms)
        words.append(TimedWord(word, len(text), len(text) + len(word), start_ms, end_ms))
        text, cursor_ms = text + word + draw(blanks), end_ms
    text_cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    word_cuts = sorted(draw(st.lists(st.integers(0, len(words)), max_size=4)))
    return text, words, text_cuts, word_cuts, cursor_ms + draw(st.floats(-50, 400))


def placed(spoken: tuple[str, list[TimedWord], list[int], list[int], float]) -> list[TimedCharacter]:
    """What comes out where text and words arrive in pieces, a word never before its text."""
    text, words, text_cuts, word_cuts, audio_ms = spoken
    times, num_pushed = CharacterTimes(), 0
    found: list[TimedCharacter] = []
    for first, last in zip([0, *word_cuts], [*word_cuts, len(words)], strict=True):
        wanted = max([w.end for w in words[first:last]], default=0)
        for cut in [*text_cuts, len(text)]:
            if num_pushed < wanted and cut > num_pushed:
                times.push(text[num_pushed:cut])
                num_pushed = cut
        found.extend(times.place(words[first:last]))
    times.push(text[num_pushed:])
    found.extend(times.finish(audio_ms))
    return found


@given(spoken_texts())
def test_every_character_comes_once_and_in_order(spoken) -> None:
    assert "".join(each.char for each in placed(spoken)) == spoken[0]


@given(spoken_texts())
def test_time_never_goes_back(spoken) -> None:
    last_ms = 0
    for _, start_ms, end_ms in placed(spoken):
        assert last_ms <= start_ms <= end_ms
        last_ms = end_ms


@given(spoken_texts())
def test_a_word_begins_and_ends_when_it_is_heard(spoken) -> None:
    found = placed(spoken)
    cursor_ms = 0.0
    for word in spoken[1]:
        start_ms = max(cursor_ms, word.start_ms)
        cursor_ms = max(start_ms, word.end_ms)
        assert found[word.start].start_ms == round(start_ms)
        assert found[word.end - 1].end_ms == round(cursor_ms)
        assert "".join(each.char for each in found[word.start : word.end]) == word.text


def test_a_words_characters_share_its_time() -> None:
    times = CharacterTimes()
    times.push("Hi you ")
    found = times.place([TimedWord("Hi", 0, 2, 100, 300), TimedWord("you", 3, 6, 400, 700)])
    edges = [100, 200, 300, 400, 500, 600, 700, 700]
    assert found == list(zip("Hi you ", edges, edges[1:], strict=False))


def test_what_nothing_speaks_has_the_time_up_to_the_next_word() -> None:
    times = CharacterTimes()
    times.push("A 🙂 b")
    assert times.place([TimedWord("A", 0, 1, 0, 100)]) == [("A", 0, 100), (" ", 100, 100)]
    assert times.place([TimedWord("b", 4, 5, 300, 400)]) == [
        ("🙂", 100, 200),
        (" ", 200, 300),
        ("b", 300, 400),
    ]


def test_the_end_of_the_audio_ends_the_text() -> None:
    times = CharacterTimes()
    times.push("Well…")
    times.place([TimedWord("Well", 0, 4, 0, 400)])
    assert times.finish(600.4) == [("…", 400, 600)]
    assert times.finish(900) == []
