"""Items of a conversation: what was heard of them, and as messages for a language model. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from realtime_tts_client import Word
from realtime_tts_client.playback import PlaybackClock

from realtime_server.events import Fields, Refusal

MAX_ITEMS = 500  # older ones are deleted


class Spoken(Protocol):
    """Text being spoken, with the words of which the times are known; a context of the client is one."""

    @property
    def words(self) -> list[Word]: ...

    @property
    def text(self) -> str: ...


@dataclass
class Speech:
    """Audio of one assistant message.

    Attributes:
        clock: estimate of the listener's playback.
        sent_ms: audio sent.
        is_whole: all of the text was sent as audio.
        cut_ms: the listener heard it up to here, and no further.
    """

    source: Spoken
    response_id: str
    clock: PlaybackClock = field(default_factory=lambda: PlaybackClock("realtime"))
    sent_ms: float = 0.0
    is_whole: bool = False
    cut_ms: float | None = None
    num_words_told: int = 0
    num_chars_told: int = 0

    def text_until(self, position_ms: float) -> str:
        """Return the text up to the last word that was heard completely at a position."""
        words = self.source.words
        num_heard = sum(word.end_ms <= position_ms + 0.5 for word in words)
        if num_heard == len(words) and self.is_whole:
            return self.source.text
        return self.source.text[: words[num_heard - 1].end] if num_heard else ""

    @property
    def heard(self) -> str:
        """Text that the conversation keeps."""
        return self.source.text if self.cut_ms is None else self.text_until(self.cut_ms)

    def new_text(self) -> str:
        """Return the text of words that begin in the audio sent since the last call."""
        words = self.source.words
        while self.num_words_told < len(words) and words[self.num_words_told].start_ms < self.sent_ms:
            self.num_words_told += 1
        until = words[self.num_words_told - 1].end if self.num_words_told else 0
        return self._tell(until)

    def rest_of_text(self) -> str:
        return self._tell(len(self.source.text))

    def _tell(self, until: int) -> str:
        told = self.source.text[self.num_chars_told : until]
        self.num_chars_told = max(self.num_chars_told, until)
        return told

    def word_end_ms(self) -> float:
        """Return the end of the word in which the audio sent ends."""
        ends = (word.end_ms for word in self.source.words if word.start_ms < self.sent_ms < word.end_ms)
        return next(ends, self.sent_ms)


class Items(list[Fields]):
    """Items of a conversation. `speeches`: audio of assistant messages, by item."""

    def __init__(self) -> None:
        super().__init__()
        self.speeches: dict[str, Speech] = {}

    def add(self, item: Fields, after: str | None = None) -> str | None:
        """Add an item at the end, after another one, or with `root` as the first one. Return the id of the item before.

        Items beyond `MAX_ITEMS` are dropped, the first ones first.
        """
        place = len(self)
        if after is not None:
            place = 0 if after == "root" else 1 + next(i for i, one in enumerate(self) if one["id"] == after)
        self.insert(place, item)
        before = self.id_before(item)
        while len(self) > MAX_ITEMS:
            self.drop(self[0])
        return before

    def drop(self, item: Fields) -> None:
        self[:] = [one for one in self if one is not item]
        self.speeches.pop(item["id"], None)

    def find(self, item_id: str) -> Fields | None:
        return next((item for item in self if item["id"] == item_id), None)

    def existing(self, item_id: str, change: str) -> Fields:
        """Return an item that is to be changed. Raises Refusal: there is none."""
        if (item := self.find(item_id)) is None:
            raise Refusal(f"item_{change}_invalid_item_id", f"no item {item_id[:80]!r}", "item_id")
        return item

    def id_before(self, item: Fields) -> str | None:
        place = next((index for index, one in enumerate(self) if one is item), 0)
        return self[place - 1]["id"] if place > 0 else None


def text_of(item: Fields) -> str:
    """Return the text of a message, whether written or spoken."""
    parts: Sequence[Fields] = item.get("content", ())
    return "".join(part.get("text") or part.get("transcript") or "" for part in parts)


def chat_messages(instructions: str, items: Iterable[Fields]) -> list[Any]:
    """Return messages for chat completions. A function call without its output is left out, as are empty messages."""
    items = list(items)
    outputs = {item["call_id"]: item["output"] for item in items if item["type"] == "function_call_output"}
    messages: list[Fields] = [{"role": "system", "content": instructions}] if instructions else []
    for item in items:
        if item["type"] == "message" and (text := text_of(item).strip()):
            messages.append({"role": item["role"], "content": text})
        elif item["type"] == "function_call" and item["call_id"] in outputs:
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": outputs[item["call_id"]]})
    return messages
