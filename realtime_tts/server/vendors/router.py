"""Router of another service's dialect."""

from __future__ import annotations

from fastapi import APIRouter

from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.server.http.problems import ProblemHeaders, ProblemShape, answers_in


class DialectRouter(APIRouter):
    """Router whose refusals have the dialect's shape.

    Attributes:
        keys: places where the dialect's clients put their API key.
    """

    def __init__(self, shape: ProblemShape, keys: KeyPlaces, headers: ProblemHeaders | None = None) -> None:
        super().__init__(dependencies=[answers_in(shape, headers)])
        self.keys = keys
