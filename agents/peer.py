"""Answer to a WebRTC offer of a caller with a microphone and a data channel."""

from __future__ import annotations

from aiortc import RTCPeerConnection, RTCRtpSender, RTCSessionDescription
from speech_track import SpeechTrack

CONNECT_S = 20.0
MAX_OFFER_BYTES = 64 * 1024
MAX_SECTIONS = 2  # of an offer: audio and the data channel; each takes sockets and an agent for ICE
MAX_CANDIDATES = 64  # of an offer: a packet goes to each address, and a browser names about one for each network


def check_size(sdp: str) -> None:
    """Check an offer's size. Raises ValueError: it asks for more sockets or packet addresses than a browser does."""
    lines = sdp.splitlines()
    if sum(line.startswith("m=") for line in lines) > MAX_SECTIONS:
        raise ValueError(f"at most {MAX_SECTIONS} media sections")
    if sum(line.startswith("a=candidate:") for line in lines) > MAX_CANDIDATES:
        raise ValueError(f"at most {MAX_CANDIDATES} candidates")


async def answer_offer(
    connection: RTCPeerConnection, track: SpeechTrack, offer: RTCSessionDescription
) -> RTCSessionDescription:
    """Add the track to a new connection, and return the answer to an offer.

    Raises:
        ValueError: the offer is not of Opus in both directions.
    """
    track.sender = connection.addTrack(track)
    [transceiver] = connection.getTransceivers()
    codecs = RTCRtpSender.getCapabilities("audio").codecs
    transceiver.setCodecPreferences([codec for codec in codecs if codec.mimeType == "audio/opus"])
    try:
        await connection.setRemoteDescription(offer)
        await connection.setLocalDescription(await connection.createAnswer())
    except Exception as error:  # aiortc's parser has no error of its own
        raise ValueError(f"no offer that can be answered: {error!r}") from error
    if transceiver.currentDirection != "sendrecv" or connection.sctp is None:
        raise ValueError("an offer must have audio both ways and a data channel")
    return connection.localDescription
