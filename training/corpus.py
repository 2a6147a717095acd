"""Builds the text corpus: balanced sentences for the teacher to speak, and texts held out for the evaluation.

    python -m training.corpus --out build/corpus --seed 0

writes train.txt (one text a line, shuffled), and eval_sentences.txt, eval_words.txt, eval_pairs.txt. No evaluation text
occurs in train.txt, and no held-out word or pair occurs there in the same position (as a text of its own).
"""

from __future__ import annotations

import argparse
import hashlib
import random
from collections.abc import Callable, Iterable
from pathlib import Path

from training.text_sources import clean, scowl_words, wordnet_glosses, wordnet_lemmas
from training.text_templates import FIRST_NAMES, LAST_NAMES, LETTERS, POLITE, Grammar, number_words

EVALUATION_SENTENCES = Path(__file__).parent / "texts" / "evaluation_sentences.txt"
MAX_CHARS = 250
# Share of each kind of text. Sentences from WordNet carry natural syntax and most of the vocabulary; templates are
# what agents say. Words alone and in pairs are a quarter of the texts: they are short, every named voice says each of
# them, and lengths are learned from them.
MIX = {
    "example": 0.2,
    "definition": 0.15,
    "template": 0.2,
    "long": 0.13,
    "word_list": 0.04,
    "word": 0.15,
    "pair": 0.08,
    "spelled": 0.03,
    "name": 0.02,
}

SAID_ALONE = (*POLITE, *(number_words(value) for value in range(21)))


def is_held_out(word: str) -> bool:
    """One word in twenty never stands alone, and never begins a pair, in training; none that is often said alone."""
    if word in SAID_ALONE:
        return False
    return hashlib.sha256(word.encode()).digest()[0] < 13


def stands_alone(text: str) -> bool:
    """Return whether a text is a held-out word, or a pair of words that begins with one."""
    words = text.strip(".,?!").split()
    return len(words) <= 2 and is_held_out(words[0].strip(",."))


class Corpus:
    """Draws texts of each kind. One seeded generator decides everything."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.held_out_sentences = EVALUATION_SENTENCES.read_text().splitlines()
        self.common = [word.lower() for word in scowl_words(35)]
        self.vocabulary = [word.lower() for word in scowl_words(70)]
        names = {word.lower() for word in scowl_words(60, "proper-names") if "'" not in word}
        self.names = sorted(names | set(FIRST_NAMES) | set(LAST_NAMES))
        self.grammar = Grammar(self._lexicon(), self.rng)
        self.examples, self.definitions = self._wordnet_sentences()

    def _lexicon(self) -> dict[str, list[str]]:
        lexicon = {}
        for part in ("noun", "verb", "adj", "adv"):
            lemmas = wordnet_lemmas(part)
            lexicon[part] = [
                word for word in dict.fromkeys(self.common + self.vocabulary) if word in lemmas and len(word) > 2
            ]
        return lexicon

    def _wordnet_sentences(self) -> tuple[list[str], list[str]]:
        """Cleaned example sentences and definitions, shuffled."""
        examples: dict[str, None] = {}
        definitions: dict[str, None] = {}
        for definition, sentences in wordnet_glosses():
            for bucket, raw in [(definitions, definition), *((examples, sentence) for sentence in sentences)]:
                text = clean(raw)
                if text is not None and 8 <= len(text) <= MAX_CHARS - 1:
                    bucket[text] = None
        result = []
        for bucket in (examples, definitions):
            texts = list(bucket)
            self.rng.shuffle(texts)
            result.append(texts)
        return result[0], result[1]

    def punctuated(self, text: str) -> str:
        """With a final mark, nearly always: live text mostly ends in one, but not every piece does."""
        if text[-1] in ".?!":
            return text
        return text + self.rng.choices([".", "!", "?", ""], [0.8, 0.07, 0.05, 0.08])[0]

    def short(self) -> str:
        """A sentence of any of the natural kinds."""
        draw = self.rng.random()
        source = self.examples if draw < 0.45 else self.definitions
        return self.grammar.sentence() if draw > 0.7 else self.punctuated(self.rng.choice(source))

    def long(self) -> str:
        """Several sentences in one text, 80 to 250 characters."""
        target, text = self.rng.randint(80, MAX_CHARS), ""
        for _ in range(12):
            sentence = self.short()
            if len(text) + len(sentence) + 1 <= MAX_CHARS:
                text = f"{text} {sentence}".strip()
            if len(text) >= target:
                break
            if text[-1:] not in ".?!":
                text += "."
        return text

    def word_list(self, words: list[str]) -> str:
        separator = self.rng.choice([", ", ", ", " ", ". "])
        return self.punctuated(separator.join(words))

    def alone(self, words: Callable[[], str], count: int) -> str:
        """Words that stand alone as a text; held-out ones are drawn again."""
        while True:
            drawn = [words() for _ in range(count)]
            if not is_held_out(drawn[0]):
                return self.punctuated(" ".join(drawn))

    def shuffled(self, words: list[str]) -> list[str]:
        return self.rng.sample(words, len(words))

    def any_word(self) -> str:
        draw = self.rng.random()
        return self.rng.choice(self.common if draw < 0.6 else self.vocabulary if draw < 0.9 else POLITE)

    def spelled(self) -> str:
        if self.rng.random() < 0.4:
            return self.punctuated(number_words(int(10 ** self.rng.uniform(0, 6)) - 1))
        letters = [self.rng.choice(LETTERS) for _ in range(self.rng.randint(1, 8))]
        return self.punctuated(self.rng.choice([" ", ", "]).join(letters))

    def build(self, num_texts: int) -> list[str]:
        """`num_texts` distinct texts in the proportions of `MIX`, shuffled."""
        count = {kind: round(share * num_texts) for kind, share in MIX.items()}
        queue = self.vocabulary.copy()
        self.rng.shuffle(queue)
        lists = (queue[start : start + self.rng.randint(3, 8)] for start in range(0, len(queue), 5))
        word_lists = [self.word_list(words) for words in lists][: count["word_list"]]
        natural = [
            self.punctuated(text)
            for text in self.examples[: count["example"]] + self.definitions[: count["definition"]]
        ]
        # each word once, the common ones surely; what agents answer with, in every way
        alone = dict.fromkeys(self.shuffled(self.common) + self.shuffled(self.vocabulary))
        words = [f"{word}{mark}" for word in SAID_ALONE for mark in (".", "!", "?", "")]
        words += [self.punctuated(word) for word in alone if not is_held_out(word)]
        texts = dict.fromkeys(natural + word_lists + words[: count["word"]])
        makers: list[tuple[str, Callable[[], str]]] = [
            ("template", self.grammar.sentence),
            ("long", self.long),
            ("pair", lambda: self.alone(self.any_word, 2)),
            ("spelled", self.spelled),
            ("name", lambda: self.alone(lambda: self.rng.choice(self.names), self.rng.randint(1, 2))),
        ]
        for kind, make in makers:
            texts.update(dict.fromkeys(make() for _ in range(count[kind])))
        sentences = set(self.held_out_sentences)
        kept = [text for text in texts if text not in sentences and not stands_alone(text) and len(text) <= MAX_CHARS]
        self.rng.shuffle(kept)
        return kept

    def held_out(self, count: int, words_each: int) -> list[str]:
        """Texts of one or two common words whose first word never stood there in training. A word's place depends on
        nothing but itself and the seed, so that the texts stay when words come or go."""

        def place(word: str) -> str:
            return hashlib.sha256(f"{self.seed} {words_each} {word}".encode()).hexdigest()

        candidates = [word for word in scowl_words(20) if is_held_out(word) and len(word) > 2 and word.islower()]
        firsts = sorted(candidates, key=place)[:count]
        seconds = sorted((word for word in scowl_words(10) if len(word) > 2 and word.islower()), key=place)
        return [" ".join([first, *seconds[n::count][: words_each - 1]]) + "." for n, first in enumerate(firsts)]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/corpus"))
    parser.add_argument("--num-texts", type=int, default=140_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(args.seed)
    texts = corpus.build(args.num_texts)
    write_lines(args.out / "train.txt", texts)
    write_lines(args.out / "eval_sentences.txt", corpus.held_out_sentences)
    write_lines(args.out / "eval_words.txt", corpus.held_out(150, 1))
    write_lines(args.out / "eval_pairs.txt", corpus.held_out(150, 2))
    print(f"{len(texts)} texts, {sum(map(len, texts)) / len(texts):.1f} characters on average, in {args.out}")


if __name__ == "__main__":
    main()
