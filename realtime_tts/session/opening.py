"""How a context comes to be: the session's defaults, the message's overrides, the server's preferences."""

from __future__ import annotations

from collections.abc import Callable

from realtime_tts.session.context import Context
from realtime_tts.session.messages import ContextStarted, SessionStarted, StartSession, Text
from realtime_tts.session.planning import Planner
from realtime_tts.session.settings import Choices, ContextSettings, SessionConfig, SpeechParams


class ContextFactory:
    """Makes contexts.

    Args:
        resolve: settles what a context is spoken with, from the session's defaults and the message's overrides;
            raises for a choice that cannot be.
        make_planner: a text planner for a new context.
    """

    def __init__(
        self,
        session_id: str,
        config: SessionConfig,
        resolve: Callable[[Choices, Choices], ContextSettings],
        make_planner: Callable[[ContextSettings], Planner],
    ) -> None:
        self._session_id = session_id
        self._config = config
        self._resolve = resolve
        self._make_planner = make_planner
        self._defaults = Choices()

    def configure(self, message: StartSession) -> None:
        """Take a client's defaults, if all of them hold.

        Raises:
            InvalidRequest, VoiceNotFound, UnsupportedLanguage: the old defaults stay.
        """
        defaults = Choices(message.voice, message.audio, message.params)
        self._resolve(defaults, Choices())
        self._defaults = defaults

    def session_started(self) -> SessionStarted:
        """What the defaults amount to."""
        settled = self._resolve(self._defaults, Choices())
        return SessionStarted(
            session_id=self._session_id,
            model=self._config.model,
            voice=settled.voice,
            audio=settled.audio,
            params=SpeechParams(
                cfg=settled.cfg,
                steps=settled.steps,
                seed=self._defaults.params.seed,
                language=settled.language,
                instructions=settled.instructions,
            ),
            limits=self._config.limits,
        )

    def make(self, message: Text, take_number: Callable[[], int]) -> Context:
        """A context for its opening message, which it has not taken in yet.

        Raises:
            InvalidRequest: an override that does not hold; no number was taken.
        """
        settings = self._resolve(self._defaults, Choices(message.voice, message.audio, message.params))
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
