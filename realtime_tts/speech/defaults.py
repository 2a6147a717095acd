"""Resolution of speech settings: the client's choices, else the server's, else the model's. Used by every dialect."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.contract import frames
from realtime_tts.contract.policy import (
    MAX_CFG,
    MAX_INSTRUCTION_CHARS,
    MAX_SEED,
    MAX_SPEED,
    MAX_STEPS,
    MAX_VOLUME,
    MIN_SPEED,
    MIN_STEPS,
    ZERO_SHOT_VOICE,
    ServingPolicy,
)
from realtime_tts.errors import AdapterNotFound, InvalidRequest, UnsupportedLanguage, VoiceNotFound
from realtime_tts.session.settings import (
    MAX_SENTENCE_PAUSE_MS,
    MODES,
    TEXT_TYPES,
    Choices,
    ContextSettings,
    SpeechParams,
)
from realtime_tts.speech.lexicons import Lexicons
from realtime_tts.text.lexicon import request_lexicon
from realtime_tts.text.pause_planner import PausePlanner, PlannerFactory

_LANGUAGE_TAG = re.compile("[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,8}")


class SpeechDefaults:
    """Speech defaults of one loaded model; immutable.

    Args:
        ready: the worker's `Ready` message.
        voices: returns the names of the voices that a tenant can use.
        language: default language in which numbers, dates and the like are read.
        mode: default mode, one of `MODES`; None: live if the model measures which word it speaks, else by clauses.
        stall_flush_s: see `PausePlanner`.
        sentence_pause_ms: default silence between sentences, ms.
        lexicons: common lexicon and those of tenants.
        draw_seed: returns a seed for requests that set none.
        voice_aliases: other names for voices; a voice of that name comes first.
        adapters: returns the names of the loaded adapters.
        name_of: returns the name of a tenant's voice by its id.
    """

    def __init__(
        self,
        ready: frames.Ready,
        *,
        voices: Callable[[str], Sequence[str]],
        language: str,
        mode: str | None = None,
        stall_flush_s: float | None,
        sentence_pause_ms: float = 0.0,
        lexicons: Lexicons | None = None,
        draw_seed: Callable[[], int],
        voice_aliases: Mapping[str, str] | None = None,
        name_of: Callable[[str, str], str | None] = lambda voice_id, tenant: None,
        adapters: Callable[[], Sequence[str]] = tuple,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.policy = ServingPolicy.from_map(ready.policy)
        self.max_steps = max(max_steps, self.policy.default_steps)
        self.default_voice: str = ready.default_voice or ZERO_SHOT_VOICE
        self._voices = voices
        self._voice_aliases = voice_aliases or {}
        self._name_of = name_of
        self._adapters = adapters
        self._language = _base_of(language)
        self.default_mode = mode or ("live" if ready.text_timing == "measured" else "clause")
        self.sentence_pause_ms = sentence_pause_ms
        self._lexicons = lexicons or Lexicons()
        self._request_lexicon = functools.lru_cache(maxsize=16)(request_lexicon)
        self._draw_seed = draw_seed
        self._planners = PlannerFactory(self.policy.charset, self.policy.max_segment_chars, stall_flush_s)

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
            VoiceNotFound, AdapterNotFound, UnsupportedLanguage, BadLexicon, InvalidRequest: a choice that cannot be;
                `field` names it.
        """
        params = _merge(overrides.params, defaults.params)
        _check(params, self.max_steps)
        return ContextSettings(
            voice=self._voice(
                defaults.voice if overrides.voice is None else overrides.voice, tenant, permissive, only_voices
            ),
            audio=overrides.audio or defaults.audio or AudioFormat(),
            seed=self._draw_seed() if params.seed is None else params.seed,
            cfg=self.policy.default_cfg if params.cfg is None else params.cfg,
            steps=self.policy.default_steps if params.steps is None else params.steps,
            language=self._language if params.language is None else self.known_language(params.language),
            mode=self.default_mode if params.mode is None else params.mode,
            instructions=params.instructions,
            speed=1.0 if params.speed is None else params.speed,
            volume=1.0 if params.volume is None else params.volume,
            sentence_pause_ms=(
                self.sentence_pause_ms if params.sentence_pause_ms is None else params.sentence_pause_ms
            ),
            lexicon=self._checked_lexicon(params.lexicon or ()),
            adapter=self._known_adapter(params.adapter) if params.adapter else None,
            text_type=params.text_type or "auto",
        )

    @property
    def adapters(self) -> list[str]:
        """Return the names of the loaded adapters."""
        return list(self._adapters())

    def make_planner(self, settings: ContextSettings, tenant: str = "", *, fill_empty: bool = False) -> PausePlanner:
        """Return a planner of one context's text. The request's own lexicon comes first, then its key's, then the
        common one.

        fill_empty: see `PausePlanner`.
        """
        own = (self._request_lexicon(settings.lexicon),) if settings.lexicon else ()
        return self._planners.make(
            settings.language,
            live=settings.mode == "live",
            sentence_pause_ms=settings.sentence_pause_ms,
            lexicons=(*own, *self._lexicons.of(tenant)),
            text_type=settings.text_type,
            fill_empty=fill_empty,
        )

    def _checked_lexicon(self, entries: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        if entries:
            self._request_lexicon(entries)
        return entries

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
        raise VoiceNotFound(f"there is no such voice; the voices are {', '.join(voices)}", field="voice")

    def _known_adapter(self, name: str) -> str:
        if name not in self._adapters():
            raise AdapterNotFound("there is no such adapter", field="params.adapter")
        return name

    def known_language(self, name: str) -> str:
        """Return the model's language for a language tag.

        Raises:
            UnsupportedLanguage: the model does not speak it, or it is no tag of a language.
        """
        if not _LANGUAGE_TAG.fullmatch(name):
            raise UnsupportedLanguage("a language is a BCP 47 tag, as en or de-AT", field="params.language")
        language = _base_of(name)
        if self.policy.languages and language not in self.policy.languages:
            known = ", ".join(self.policy.languages)
            raise UnsupportedLanguage(f"the model speaks {known}", field="params.language")
        return language


def _base_of(language: str) -> str:
    """Return the primary subtag: ``de`` for ``de-AT``."""
    return language.lower().replace("_", "-").split("-")[0]


def _merge(over: SpeechParams, under: SpeechParams) -> SpeechParams:
    """Return `over` with its unset parameters taken from `under`."""
    return SpeechParams(
        cfg=under.cfg if over.cfg is None else over.cfg,
        steps=under.steps if over.steps is None else over.steps,
        seed=under.seed if over.seed is None else over.seed,
        language=under.language if over.language is None else over.language,
        instructions=under.instructions if over.instructions is None else over.instructions,
        mode=under.mode if over.mode is None else over.mode,
        speed=under.speed if over.speed is None else over.speed,
        volume=under.volume if over.volume is None else over.volume,
        sentence_pause_ms=under.sentence_pause_ms if over.sentence_pause_ms is None else over.sentence_pause_ms,
        lexicon=under.lexicon if over.lexicon is None else over.lexicon,
        adapter=under.adapter if over.adapter is None else over.adapter,
        text_type=under.text_type if over.text_type is None else over.text_type,
    )


def _check(params: SpeechParams, max_steps: int) -> None:
    if params.cfg is not None and not (math.isfinite(params.cfg) and 0.0 <= params.cfg <= MAX_CFG):
        raise InvalidRequest(f"cfg must be within 0 and {MAX_CFG:g}", field="params.cfg")
    if params.steps is not None and not MIN_STEPS <= params.steps <= max_steps:
        raise InvalidRequest(f"steps must be within {MIN_STEPS} and {max_steps}", field="params.steps")
    if params.seed is not None and not 0 <= params.seed <= MAX_SEED:
        raise InvalidRequest(f"seed must be within 0 and {MAX_SEED}", field="params.seed")
    if params.speed is not None and not MIN_SPEED <= params.speed <= MAX_SPEED:
        raise InvalidRequest(f"speed must be within {MIN_SPEED:g} and {MAX_SPEED:g}", field="params.speed")
    if params.volume is not None and not 0.0 <= params.volume <= MAX_VOLUME:
        raise InvalidRequest(f"volume must be within 0 and {MAX_VOLUME:g}", field="params.volume")
    if params.sentence_pause_ms is not None and not 0.0 <= params.sentence_pause_ms <= MAX_SENTENCE_PAUSE_MS:
        raise InvalidRequest(
            f"sentence_pause_ms must be within 0 and {MAX_SENTENCE_PAUSE_MS:g}", field="params.sentence_pause_ms"
        )
    if params.mode is not None and params.mode not in MODES:
        raise InvalidRequest(f"mode must be {' or '.join(MODES)}", field="params.mode")
    if params.text_type is not None and params.text_type not in TEXT_TYPES:
        raise InvalidRequest(f"text_type must be one of {', '.join(TEXT_TYPES)}", field="params.text_type")
    if params.instructions is not None and len(params.instructions) > MAX_INSTRUCTION_CHARS:
        raise InvalidRequest(f"instructions may have {MAX_INSTRUCTION_CHARS} characters", field="params.instructions")
