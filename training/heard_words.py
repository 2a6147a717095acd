"""Words of a text and of a transcript in one form, so that a comparison counts what was said and not how it is written.

"8" and "eight", "we've" and "we have", "ok" and "okay" are the same words.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

import jiwer

from benchmarks.recognition import plain_words
from realtime_tts.text.normalizer import Normalizer

_NORMALIZER = Normalizer("en", frozenset(string.ascii_lowercase + " ,.?!'-"))
_NUMBER = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty|sixty|seventy"
    r"|eighty|ninety)"
)
# Long forms first. "'s" is "is" or "has" and "'d" is "would" or "had": there the long form becomes the short one.
_REWRITES = tuple(
    (re.compile(rf"\b{pattern}\b"), replacement)
    for pattern, replacement in (
        (r"ok", "okay"),
        (r"(?:cannot|can't)", "can not"),
        (r"won't", "will not"),
        (r"shan't", "shall not"),
        (r"(\w+)n't", r"\1 not"),
        (r"let's", "let us"),
        (r"i'm", "i am"),
        (r"(\w+)'re", r"\1 are"),
        (r"(\w+)'ve", r"\1 have"),
        (r"(\w+)'ll", r"\1 will"),
        (r"(i|you|he|she|it|we|they|who|that|there) (?:would|had)", r"\1'd"),
        (r"(he|she|it|that|there|here|what|who|where|how) (?:is|has)", r"\1's"),
        (rf"(hundred|thousand|million) and (?={_NUMBER})", r"\1 "),
    )
)


def comparable_words(text: str) -> str:
    """Return the words of `text` in lower case, divided by single spaces: numbers spelt, contractions in one form."""
    words = plain_words(_NORMALIZER.normalize(text.replace("’", "'")).text)
    for pattern, replacement in _REWRITES:
        words = pattern.sub(replacement, words)
    return words


def skipped_and_repeated(text: str, heard: str) -> tuple[int, int]:
    """Return the number of words of `text` that are missing in `heard`, and of words that `heard` has twice in a row.

    Both arguments are `comparable_words`. A repeated row of words counts each of its words once.
    """
    output = jiwer.process_words(text, heard)
    words = output.hypotheses[0]
    skipped = repeated = 0
    for chunk in output.alignments[0]:
        if chunk.type == "delete":
            skipped += chunk.ref_end_idx - chunk.ref_start_idx
        elif chunk.type == "insert":
            repeated += _repeats(words, chunk.hyp_start_idx, chunk.hyp_end_idx)
    return skipped, repeated


def _repeats(words: Sequence[str], start: int, end: int) -> int:
    """Return how many of words[start:end] repeat what stands beside them, as a row or singly."""
    row, size = list(words[start:end]), end - start
    if row in (list(words[max(0, start - size) : start]), list(words[end : end + size])):
        return size
    return sum(words[n] in (words[n - 1 : n] + words[n + 1 : n + 2]) for n in range(start, end))
