"""URLs, e-mail addresses, host and file names, paths, handles, hashtags and other tokens of code."""

from __future__ import annotations

import re

from realtime_tts.text.language_data import word_set, word_table
from realtime_tts.text.rules.base import Rule, Scan
from realtime_tts.text.rules.numbers import END
from realtime_tts.text.rules.verbalize import cardinal, digits
from realtime_tts.text.rules.words import read_caps, spell
from realtime_tts.text.spelling import SIGNS

_MAX_PATH_WORDS = 12  # of a URL's path; a listener gains nothing from more
_TLDS = word_set("top_level_domains")
_HOST_LIKE_WORDS = word_set("host_like_words")
_EXTENSIONS = word_table("file_extensions")
_NAMED = frozenset("./-_@:~+#=&%?\\")  # other signs in names are silent
_PIECE = re.compile(r"[^\W\d_]+|\d+|[\W_]")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LABEL = r"[A-Za-z0-9_-]{1,63}"
_NAME_CHAR = r"[A-Za-z0-9_.+%-]"
_TRAILING = ".,;:!?)]}*_"


def read_name(text: str, scan: Scan) -> str:
    """Return the letters, digits and symbols of a name in words: "my_app-2" → "my underscore app dash two"."""
    return " ".join(filter(None, (_read_piece(piece, scan) for piece in _PIECE.findall(text))))


def _read_piece(piece: str, scan: Scan) -> str:
    if piece.isdecimal():
        return cardinal(piece) if len(piece) <= 4 else digits(piece)
    if piece.isalpha():
        return " ".join(_read_letters(part, scan) for part in _CAMEL.split(piece))
    return SIGNS[piece] if piece in _NAMED else ""


def _read_letters(word: str, scan: Scan) -> str:
    if word.lower() == "www":
        return "W W W"
    return read_caps(word, scan) if scan.spell else word


def _read_host(host: str, scan: Scan) -> str:
    *labels, last = host.split(".")
    ending = spell(last.upper()) if len(last) == 2 and last not in ("me", "so", "to", "in", "us", "it") else last
    return " dot ".join([*(read_name(label, scan) for label in labels), ending])


def _read_path(path: str, scan: Scan) -> str:
    """Return the words of a URL after the host: no query, no fragment, at most `_MAX_PATH_WORDS` words."""
    plain = re.split(r"[?#]", path, maxsplit=1)[0].rstrip("/")
    return " " + " ".join(read_name(plain, scan).split()[:_MAX_PATH_WORDS])


def _url(match: re.Match[str], scan: Scan) -> str | None:
    host, port_and_path = match.group(1), match.group(2)
    return _read_host(host.removeprefix("www."), scan) + _read_path(port_and_path, scan)


def _host(match: re.Match[str], scan: Scan) -> str | None:
    """ "example.com/help", only with a known ending: "end.Start" is a missing space."""
    host, path = match.groups()
    ending = host.rsplit(".", 1)[1]
    if ending not in _TLDS or (ending in _HOST_LIKE_WORDS and not path and host.count(".") < 2):
        return None
    return _read_host(host, scan) + _read_path(path, scan)


def _email(match: re.Match[str], scan: Scan) -> str | None:
    return f"{read_name(match.group(1), scan)} at {_read_host(match.group(2), scan)}"


def _file(match: re.Match[str], scan: Scan) -> str | None:
    stem, extension = match.groups()
    spoken = _EXTENSIONS.get(extension.lower())
    return f"{read_name(stem, scan)} dot {spoken}" if spoken else None


def _dotted(match: re.Match[str], scan: Scan) -> str | None:
    """ "os.path.join": lower-case names with dots; capitals after the dot mean a missing space."""
    names = match.group(1).split(".")
    if any(len(name) == 1 for name in names) and len(names) == 2 and "_" not in match.group(1):
        return None
    return " dot ".join(read_name(name.replace("_", " "), scan) for name in names)


def _snake(match: re.Match[str], scan: Scan) -> str:
    return read_name(match.group(1).replace("_", " "), scan)


def _camel(match: re.Match[str], scan: Scan) -> str | None:
    word = match.group(1)
    if len(word) < 6 or len(_CAMEL.split(word)[0]) < 2:
        return None  # iPhone, eBay, macOS are said as written
    return read_name(word, scan)


def _path(match: re.Match[str], scan: Scan) -> str | None:
    text = match.group().rstrip(_TRAILING)
    return read_name(text, scan) if any(char.isalnum() for char in text) else None


def _hashtag(match: re.Match[str], scan: Scan) -> str | None:
    name = _snake(match, scan)
    return name if name.lower().startswith("hashtag") else f"hashtag {name}"


_URL_BODY = rf"({_LABEL}(?:\.{_LABEL}){{0,8}})((?::\d{{1,5}})?(?:[/?#][^\s<>\"'`|]{{0,2000}})?(?<![.,;:!?)\]}}*_]))"
LETTER_RULES = (
    Rule(rf"(?:https?|ftp|wss?)://{_URL_BODY}", _url, any_case=True),
    Rule(rf"({_NAME_CHAR}{{1,64}})@({_LABEL}(?:\.[A-Za-z0-9-]{{1,63}}){{1,5}})" + END, _email),
    Rule(rf"({_LABEL}(?:\.{_LABEL}){{1,5}})((?:/[^\s<>\"'`|]{{0,2000}}(?<![.,;:!?)\]}}*_]))?)(?![\w@])(?!\.\w)", _host),
    Rule(rf"({_LABEL}(?:\.{_LABEL}){{0,3}})\.([A-Za-z][A-Za-z0-9]{{0,5}})(?![\w@])(?!\.\w)", _file),
    Rule(r"([a-z_][a-z0-9_]{0,40}(?:\.[a-z_][a-z0-9_]{0,40}){1,5})(?:\(\))?(?![\w.]\w)(?!\w)", _dotted),
    Rule(r"([A-Za-z][A-Za-z0-9]{0,40}(?:_[A-Za-z0-9]{1,40}){1,8})(?:\(\))?(?!\w)", _snake),
    Rule(r"([A-Za-z]{2,20}(?<=[a-z])[A-Z][A-Za-z]{1,40})(?:\(\))?(?!\w)", _camel),
)
DIGIT_RULES = (LETTER_RULES[1], LETTER_RULES[3])
MARKUP_RULES = (Rule(r"\]\([^()\s]{1,2000}\)", ""),)
SYMBOL_RULES = (
    *MARKUP_RULES,
    Rule(r"(?<![\w/.])(?:~|\.{1,2})?(?:/[A-Za-z0-9_.+-]{1,64}){1,20}/?", _path),
    Rule(r"(?<!\w)@([A-Za-z_]\w{1,40})", lambda match, scan: f"at {_snake(match, scan)}"),
    Rule(r"(?<![\w&])#([A-Za-z_]\w{1,40}|\d{1,4}(?!st|nd|rd|th)[A-Za-z][a-z]\w{0,38})", _hashtag),
    Rule(
        r"(?<![\w-])--([a-z][a-z0-9-]{1,40})",
        lambda match, scan: f"dash dash {read_name(match[1].replace('-', ' '), scan)}",
    ),
    Rule(r"(?<!\w)__?([A-Za-z][A-Za-z0-9]{0,40}(?:_[A-Za-z0-9]{1,40}){0,8})__?(?!\w)", _snake),
)
