"""How a context comes to be: the session's defaults, the message's overrides, the server's preferences."""

from __future__ import annotations

from collections.abc import Callable

from realtime_tts.session.context import Context
from realtime_tts.session.messages import ContextStarted, SessionStarted, StartSession, Text
from realtime_tts.session.planning import Planner
from realtime_tts.session.settings import ContextSettings, SessionConfig, check_params, merge_params


class ContextFactory:
    """Makes contexts.

    Args:
        make_planner: a text planner for a new context; may raise `UnsupportedLanguage`.
        resolve_voice: a voice id for what the client asked for (None: nothing); raises `VoiceNotFound`.
        seed_source: a seed for a context whose client left it open.
    """

    def __init__(
        self,
        session_id: str,
        config: SessionConfig,
        make_planner: Callable[[ContextSettings], Planner],
        resolve_voice: Callable[[str | None], str],
        seed_source: Callable[[], int],
    ) -> None:
        self._session_id = session_id
        self._config = config
        self._make_planner = make_planner
        self._resolve_voice = resolve_voice
        self._seed_source = seed_source
        self._defaults = StartSession()

    def configure(self, defaults: StartSession) -> None:
        """Take a client's defaults, if all of them hold.

        Raises:
            InvalidRequest, VoiceNotFound: the old defaults stay.
        """
        check_params(defaults.params, self._config)
        self._resolve_voice(defaults.voice)
        self._defaults = defaults

    def session_started(self) -> SessionStarted:
        """What the defaults amount to."""
        return SessionStarted(
            session_id=self._session_id,
            model=self._config.model,
            voice=self._resolve_voice(self._defaults.voice),
            audio=self._defaults.audio or self._config.audio,
            params=merge_params(self._defaults.params, self._config.params),
            limits=self._config.limits,
        )

    def make(self, message: Text, take_number: Callable[[], int]) -> Context:
        """A context for its opening message, which it has not taken in yet.

        Raises:
            InvalidRequest: an override that does not hold; no number was taken.
        """
        settings = self._settings(message)
        planner = self._make_planner(settings)
        started = ContextStarted(
            context_id=message.context_id,
            sequence=0,
            number=take_number(),
            voice=settings.voice,
            seed=settings.seed,
            audio=settings.audio,
        )
        return Context(started, settings, planner)

    def _settings(self, message: Text) -> ContextSettings:
        check_params(message.params, self._config)
        params = merge_params(merge_params(message.params, self._defaults.params), self._config.params)
        return ContextSettings(
            voice=self._resolve_voice(self._defaults.voice if message.voice is None else message.voice),
            audio=message.audio or self._defaults.audio or self._config.audio,
            seed=self._seed_source() if params.seed is None else params.seed,
            cfg=params.cfg,
            steps=params.steps,
            language=params.language,
            instructions=params.instructions,
        )
