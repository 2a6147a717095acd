"""Resolution of speech settings: the client's choices, else the server's, else the model's. Used by every dialect."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.contract import frames
from realtime_tts.contract.policy import ZERO_SHOT_VOICE, ServingPolicy
from realtime_tts.contract.speech_params import SPEECH_PARAMS, with_defaults
from realtime_tts.errors import AdapterNotFound, BadLexicon, UnsupportedLanguage, VoiceNotFound
from realtime_tts.session.settings import Choices, ContextSettings
from realtime_tts.speech.lexicons import Lexicons
from realtime_tts.text.folding import letters_within
from realtime_tts.text.language_data import words
from realtime_tts.text.lexicon import request_lexicon
from realtime_tts.text.normalizer import primary_subtag
from realtime_tts.text.planner import Planner, PlannerFactory
from realtime_tts.text.rules.table import compile_rules

_LANGUAGE_TAG = re.compile("[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,8}")


class SpeechDefaults:
    """Speech defaults of one loaded model; immutable. `params` is the table of speech parameters with its defaults,
    `letters` has the letters that the model reads, None for all.

    Args:
        ready: the worker's `Ready` message.
        voices: returns the names of the voices that a tenant can use.
        language: default language in which numbers, dates and the like are read.
        mode: default mode, one of `MODES`; None: live if the model measures which word it speaks, else by clauses.
        stall_flush_s: see `Planner`.
        lexicons: common lexicon and those of tenants.
        draw_seed: returns a seed for requests that set none.
        voice_aliases: other names for voices; a voice of that name comes first.
        adapters: names of the loaded adapters, as they change.
        name_of: returns the name of a tenant's voice by its id.
        openings: whether contexts begin with speech from memory by default.
    """

    def __init__(
        self,
        ready: frames.Ready,
        *,
        voices: Callable[[str], Sequence[str]],
        language: str = "en",
        mode: str | None = None,
        stall_flush_s: float | None,
        lexicons: Lexicons | None = None,
        draw_seed: Callable[[], int],
        voice_aliases: Mapping[str, str] | None = None,
        name_of: Callable[[str, str], str | None] = lambda voice_id, tenant: None,
        adapters: Collection[str] = (),
        openings: bool = False,
    ) -> None:
        self.policy = ServingPolicy.from_map(ready.policy)
        self.default_voice: str = self.policy.default_voice or ZERO_SHOT_VOICE
        self._voices = voices
        self._voice_aliases = voice_aliases or {}
        self._name_of = name_of
        self.adapters = adapters
        table = SPEECH_PARAMS
        mode = mode or ("live" if self.policy.text_head else "clause")
        self.params = table | {
            "steps": replace(table["steps"], default=self.policy.default_steps),
            "cfg": replace(table["cfg"], default=self.policy.default_cfg),
            "language": replace(table["language"], default=primary_subtag(language)),
            "mode": replace(table["mode"], default=mode),
            "openings": replace(table["openings"], default="on" if openings else "off"),
            "sentence_pause_ms": replace(table["sentence_pause_ms"], default=0.0),
        }
        self._lexicons = lexicons or Lexicons()
        self._request_lexicon = functools.lru_cache(maxsize=16)(request_lexicon)
        self._draw_seed = draw_seed
        charset = self.policy.charset
        self.letters = None if charset is None else letters_within(charset)
        makes_sounds = ready.takes_instructions  # VoxCPM2 has both
        self._planners = PlannerFactory(
            charset, self.policy.max_segment_chars, stall_flush_s, makes_sounds=makes_sounds
        )

    def resolve(
        self,
        defaults: Choices,
        overrides: Choices,
        *,
        tenant: str = "",
        permissive: bool = False,
        only_voices: Sequence[str] = (),
    ) -> ContextSettings:
        """Return the settings of a context: `overrides` first, then `defaults`, then the server's and the model's
        defaults.

        Args:
            permissive: replace an unknown voice by the default one, as clients of other services expect.
            only_voices: no others may be used, and the first is the default one; empty: all of the tenant's.

        Raises:
            VoiceNotFound, AdapterNotFound, UnsupportedLanguage, BadLexicon, InvalidRequest: an invalid choice;
                `field` names it.
        """
        chosen = defaults.params | overrides.params
        for name, value in chosen.items():
            self.params[name].check(name, value)
        params = with_defaults(chosen, self.params)
        if "seed" not in params:
            # The same noise, so that contexts that begin alike sound alike.
            params["seed"] = 0 if params["openings"] == "on" else self._draw_seed()
        if "language" in chosen:
            params["language"] = self.known_language(chosen["language"])
        if lexicon := chosen.get("lexicon"):
            try:
                self._request_lexicon(tuple(lexicon.items()))  # checks it
            except BadLexicon as error:
                raise BadLexicon(error.message, field="params.lexicon") from error
        if not params.get("adapter"):
            params.pop("adapter", None)
        elif params["adapter"] not in self.adapters:
            raise AdapterNotFound(f"unknown adapter {params['adapter'][:64]!r}", field="params.adapter")
        wanted = defaults.voice if overrides.voice is None else overrides.voice
        voice = self._voice(wanted, tenant, permissive, only_voices)
        return ContextSettings(voice, overrides.audio or defaults.audio or AudioFormat(), params)

    def make_planner(self, settings: ContextSettings, tenant: str = "", *, fill_empty: bool = False) -> Planner:
        """Return a planner of one context's text. The request's own lexicon comes first, then its key's, then the
        common one.

        fill_empty: see `Planner`.
        """
        params = settings.params
        own = (self._request_lexicon(tuple(lexicon.items())),) if (lexicon := params.get("lexicon")) else ()
        return self._planners.make(
            params["language"],
            live=params["mode"] == "live",
            sentence_pause_ms=params["sentence_pause_ms"],
            lexicons=(*own, *self._lexicons.of(tenant)),
            text_type=params["text_type"],
            fill_empty=fill_empty,
        )

    def _voice(self, name: str | None, tenant: str, permissive: bool, only: Sequence[str]) -> str:
        default = only[0] if only else self.default_voice
        if name is None:
            return default
        voices = [voice for voice in self._voices(tenant) if not only or voice in only]
        for known in (name, self._voice_aliases.get(name)):
            if known in voices:
                return known
        own = self._name_of(name, tenant)
        if own is not None and (not only or own in only):
            return own
        if permissive:
            return default
        raise VoiceNotFound(f"unknown voice {name[:64]!r}; the voices are {', '.join(voices)}", field="voice")

    def known_language(self, name: str) -> str:
        """Return the model's language for a language tag.

        Raises:
            UnsupportedLanguage: the model does not speak it, or it is not a language tag.
        """
        if not _LANGUAGE_TAG.fullmatch(name):
            raise UnsupportedLanguage("a language is a BCP 47 tag, as en or de-AT", field="params.language")
        language = primary_subtag(name)
        if self.policy.languages and language not in self.policy.languages:
            known = ", ".join(self.policy.languages)
            message = f"unsupported language {name[:64]!r}; the model speaks {known}"
            raise UnsupportedLanguage(message, field="params.language")
        return language


def sample_sentence(language: str) -> str:
    """Return the sentence for previews and designed voices in a language, or the English one where there is none."""
    return " ".join(words("sample_sentence", language) or words("sample_sentence"))


def load_reader() -> None:
    """Load number words and compile the rules. Takes 80 ms of processor time: run it in a thread while the model is
    loaded."""
    importlib.import_module("num2words")  # for numbers
    compile_rules()
