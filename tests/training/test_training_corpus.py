"""The corpus: texts the voice can spell, nothing held out in it, the same for the same seed."""

from __future__ import annotations

import os
import random

import pytest

from training.corpus import Corpus, is_held_out
from training.text_sources import CHARSET, SCOWL_DIR, WORDNET_DIR, clean
from training.text_templates import TEMPLATES, Grammar, number_words, ordinal_words

LEXICON = {"noun": ["apple", "box"], "verb": ["carry"], "adj": ["old"], "adv": ["slowly"]}
needs_sources = pytest.mark.skipif(
    not ((WORDNET_DIR.exists() and SCOWL_DIR.exists()) or os.environ.get("CI")),
    reason="needs texts: apt-get install wordnet-base scowl",
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (21, "twenty-one"),
        (100, "one hundred"),
        (999, "nine hundred and ninety-nine"),
        (1_005, "one thousand and five"),
        (12_345, "twelve thousand, three hundred and forty-five"),
    ],
)
def test_numbers_are_spelled_as_spoken(value: int, words: str) -> None:
    assert number_words(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(1, "first"), (9, "ninth"), (12, "twelfth"), (20, "twentieth"), (31, "thirty-first")]
)
def test_ordinals_are_spelled_as_spoken(value: int, words: str) -> None:
    assert ordinal_words(value) == words


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("The Weather improved; it cleared", "the weather improved, it cleared"),
        ("a dog (of any breed) barks", "a dog barks"),
        ("salt & pepper", "salt and pepper"),
        ("born in 1850", None),
        ("the U.S. army", None),
        ("NATO met", None),
        ("café", None),
    ],
)
def test_a_source_text_is_spelled_in_the_charset_or_dropped(raw: str, cleaned: str | None) -> None:
    assert clean(raw) == cleaned


def test_every_template_fills_to_speakable_text() -> None:
    grammar = Grammar(LEXICON, random.Random(0))
    for template in TEMPLATES:
        text = grammar.fill(template)
        assert set(text) <= CHARSET
        assert "{" not in text


def test_articles_agree_with_the_word_they_got() -> None:
    grammar = Grammar({**LEXICON, "noun": ["apple"]}, random.Random(0))
    assert grammar.fill("a {noun}") == "an apple"


@pytest.mark.slow
@needs_sources
def test_nothing_held_out_is_trained_on() -> None:
    corpus = Corpus(seed=3)
    texts = corpus.build(4000)
    sentences = set(corpus.held_out_sentences)
    assert len(sentences) >= 300
    assert not sentences & set(texts)
    alone = {text.strip(".?!") for text in texts if " " not in text}
    words = {text.strip(".") for text in corpus.held_out(120, 1)}
    assert len(words) == 120
    assert not alone & words
    assert all(is_held_out(text.split()[0]) for text in corpus.held_out(120, 2))


@pytest.mark.slow
@needs_sources
def test_common_words_stand_alone_before_rare_ones() -> None:
    corpus = Corpus(seed=0)
    common = set(corpus.common)
    texts = corpus.build(20_000)
    alone = [text.strip(".?!") for text in texts if " " not in text and text.strip(".?!").isalpha()]
    rare = [word for word in alone if word not in common]
    assert len(alone) > 0.1 * len(texts)
    assert len(rare) < 0.2 * len(alone), "names and numbers only"
    assert {"yes.", "yes!", "yes?", "yes", "four."} <= set(texts)


@pytest.mark.slow
@needs_sources
def test_the_same_seed_builds_the_same_corpus() -> None:
    first, second, other = (Corpus(seed).build(500) for seed in (1, 1, 2))
    assert first == second
    assert first != other


@pytest.mark.slow
@needs_sources
def test_the_corpus_holds_short_and_long_texts_within_the_limit() -> None:
    lengths = [len(text) for text in Corpus(seed=0).build(3000)]
    assert max(lengths) <= 250
    assert sum(length > 120 for length in lengths) > 200
    assert sum(length < 12 for length in lengths) > 100
