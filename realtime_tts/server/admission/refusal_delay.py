"""Delay of the answers to refused requests, so that refusals cost a bounded share of the gateway. Pure."""

from __future__ import annotations

from realtime_tts.server.admission.token_bucket import TokenBuckets

PER_S = 20.0  # refusals of one key from one address; each costs about a millisecond of the event loop
BURST = 20  # refusals that are answered without a delay, after a time without refusals
MAX_DELAY_S = 10.0


class RefusalDelay:
    """Spreads the refusals of one API key from one address over time.

    Answers beyond `BURST` are delayed until the rate is `PER_S` again. A client waits for an answer before its next
    request, so the rate stays near the bound for up to PER_S * MAX_DELAY_S connections.
    """

    def __init__(self) -> None:
        self._buckets = TokenBuckets()  # by key and address

    def delay_s(self, tenant: str, address: str, now: float) -> float:
        """Count a refusal; return the time in seconds that its answer waits."""
        bucket = self._buckets.of((tenant, address), BURST, PER_S, now)
        bucket.take(1, now, max_debt=MAX_DELAY_S * PER_S)
        return bucket.wait_s(0, now)
