"""h11's parser with limits on the headers of a request and on the CPU time of parsing.

Parsing runs on the event loop that also sends speech. Costs are nominal, not measured: the same input always costs the
same, whatever else the machine does.
"""

from __future__ import annotations

import re
from http import HTTPStatus

import h11

MAX_HEADERS = 100
MAX_HEAD_BYTES = 16 * 1024
_BLANK_LINE = re.compile(rb"\n\r?\n")

# Measured with h11 0.16 and CPython 3.11; a request includes its way to the handler that answers it.
REQUEST_US, HEADER_US, CHUNK_US = 1000, 4, 20
_LARGE_CHUNK_BYTES = 4096  # chunks of this size or more have no extra cost

FREE_US_PER_S = 10_000.0  # cost of one connection without a pause: 1 % of a CPU, or some 10 requests a second
_FIRST_US = 4_000.0  # initial credit of a connection: a page loads a few files over each
_SLICE_US = 1_500.0  # cost before other connections have their turn: any request, or 75 small chunks
_EXCESS_SHARE = 0.1  # of a CPU, for all connections together that exceed `FREE_US_PER_S`


class BoundedConnection(h11.Connection):
    """The server's side of one HTTP/1.1 connection.

    Attributes:
        error_status: status of the answer to a request for which `next_event` raises RemoteProtocolError.
        is_cut: parsing has stopped before the end of the data, until `take_cost_us` is called.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self.error_status = HTTPStatus.BAD_REQUEST
        self.is_cut = False
        self._cost_us = 0.0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event, as h11 does; also NEED_DATA after about a millisecond of parsing, see `is_cut`.

        Raises:
            RemoteProtocolError: also for more than `MAX_HEADERS` headers, which are not parsed then.
        """
        if self._cost_us >= _SLICE_US:
            self.is_cut = True
            return h11.NEED_DATA
        try:
            if self.their_state is h11.IDLE:
                self._check_lines(MAX_HEADERS + 1)  # and the request line
            event = super().next_event()
            if event is h11.NEED_DATA and self.their_state is h11.SEND_BODY:
                self._check_lines(MAX_HEADERS)  # unfinished: a part of one chunk, or trailers
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                self.error_status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise
        self._cost_us += _cost_us(event)
        return event

    def take_cost_us(self) -> float:
        """Return the cost of what was parsed since the last call, microseconds."""
        cost_us, self._cost_us, self.is_cut = self._cost_us, 0.0, False
        return cost_us

    def _check_lines(self, max_lines: int) -> None:
        data = self.trailing_data[0]
        end = _BLANK_LINE.search(data)
        if data.count(b"\n", 0, end.start() + 1 if end else len(data)) > max_lines:
            raise h11.RemoteProtocolError(
                f"more than {MAX_HEADERS} headers", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            )


def _cost_us(event: object) -> float:
    if isinstance(event, h11.Request):
        return REQUEST_US + HEADER_US * len(event.headers)
    if isinstance(event, h11.Data):
        return CHUNK_US * max(0.0, 1 - len(event.data) / _LARGE_CHUNK_BYTES)
    return HEADER_US * len(event.headers) if isinstance(event, h11.EndOfMessage) else 0.0


class ParseBudget:
    """Cost of parsing one connection's requests, and the pauses that pay for it.

    A connection may use `FREE_US_PER_S`. Cost beyond that leads to a pause, so that all paused connections together use
    a fixed share of one CPU.
    """

    def __init__(self, now: float) -> None:
        self._level_us, self._at = _FIRST_US, now

    def pause_s(self, cost_us: float, num_paused: int, now: float) -> float:
        """Add a cost in microseconds; return how long to pause parsing, in seconds.

        Args:
            num_paused: number of other connections that are paused now.
        """
        self._level_us = min(FREE_US_PER_S, self._level_us + FREE_US_PER_S * (now - self._at)) - cost_us
        self._at = now
        excess_us, self._level_us = max(0.0, -self._level_us), max(0.0, self._level_us)
        return excess_us * (num_paused + 1) / _EXCESS_SHARE / 1e6
