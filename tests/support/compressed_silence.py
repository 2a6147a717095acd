"""A recording that is small as a file and long when it is played: a decompression bomb."""

from __future__ import annotations

import io

import av


def silent_flac(seconds: int) -> bytes:
    """Zeros at 8 kHz; half an hour takes a third of a megabyte."""
    file = io.BytesIO()
    with av.open(file, "w", format="flac") as output:
        stream = output.add_stream("flac", rate=8_000)
        stream.codec_context.layout, stream.codec_context.format = "mono", "s16"
        stream.codec_context.open()
        size = stream.codec_context.frame_size
        for index in range(8_000 * seconds // size):
            frame = av.AudioFrame(format="s16", layout="mono", samples=size)
            frame.planes[0].update(bytes(2 * size))
            frame.sample_rate, frame.pts = 8_000, index * size
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()
