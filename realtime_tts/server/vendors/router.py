"""Router of another service's dialect."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import HTTPConnection

from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.server.http.problems import SHAPE, ProblemHeaders, ProblemShape


class DialectRouter(APIRouter):
    """Router whose refusals have the dialect's shape.

    Args:
        shape: returns status and body of an error, see `ProblemShape`.
        keys: places where the dialect's clients put their API key.
        headers: returns further headers of an error; None: there are none.
    """

    def __init__(self, shape: ProblemShape, keys: KeyPlaces, headers: ProblemHeaders | None = None) -> None:
        async def set_shape(connection: HTTPConnection) -> None:
            connection.scope[SHAPE] = shape, headers

        # It runs before the other dependencies, so that their refusals have this shape too.
        super().__init__(dependencies=[Depends(set_shape)])
        self.keys = keys
