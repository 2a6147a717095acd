"""State of a gateway: whether it can make speech now."""

from __future__ import annotations

import enum

from realtime_tts.errors import Draining, EngineLost, RealtimeTTSError
from realtime_tts.workers.client import EngineClient

# A handshake or request waits this long for an unloaded model. Many clients give up a handshake after 10 s, and would
# then miss the answer that says when to retry.
_MAX_LOAD_WAIT_S = 9.0


class GatewayState(enum.Enum):
    """STARTING → RUNNING → DRAINING, until the end."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"


class Availability:
    """State of a gateway and of its engine. `start_error`: why the engine did not start."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self.state = GatewayState.STARTING
        self.start_error: RealtimeTTSError | None = None

    def check(self) -> None:
        """Raises:
        Draining, EngineLost: speech cannot be made now.
        """
        if self.state is GatewayState.DRAINING:
            raise Draining("the server is shutting down")
        if self.state is not GatewayState.RUNNING:
            raise self.start_error or EngineLost("the model is still being loaded")
        if not self._engine.num_ready and not self._engine.is_unloaded:
            raise EngineLost("no engine worker is ready; one is being started")

    async def load(self) -> None:
        """Load the model if it is unloaded.

        Raises:
            Draining, EngineLost: speech cannot be made now, or not yet.
        """
        self.check()
        await self._engine.load(_MAX_LOAD_WAIT_S)
        self.check()
        if self._engine.is_unloaded:
            raise EngineLost("the model is still being loaded")
