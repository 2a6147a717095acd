"""Router of another service's dialect."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import HTTPConnection

from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.server.http.problems import SHAPE, ProblemHeaders, ProblemShape


class DialectRouter(APIRouter):
    """Router whose refusals have the dialect's shape.

    Attributes:
        keys: places where the dialect's clients put their API key.
    """

    def __init__(self, shape: ProblemShape, keys: KeyPlaces, headers: ProblemHeaders | None = None) -> None:
        async def choose(connection: HTTPConnection) -> None:
            connection.scope[SHAPE] = shape, headers

        super().__init__(dependencies=[Depends(choose)])  # the first one, so that later errors have the shape
        self.keys = keys
