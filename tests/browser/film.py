"""Film of the playground for the README, with the starter voice and a scripted language model. Needs an idle machine:
PYTHONPATH=.:tests/support python tests/browser/film.py docs/images/playground.webp
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
from chromium import running_chromium
from playground_page import PlaygroundPage
from selenium.webdriver import Keys

from realtime_tts.bench.server_process import running_server

SIZE = {"width": 1024, "height": 720, "deviceScaleFactor": 1, "mobile": False}
FLAGS = ("--hide-scrollbars", "--autoplay-policy=no-user-gesture-required")
MODEL = """
const { fetch } = window, answers = [
  'You have two meetings. The first is at ten with the architect, on the office. The second is lunch by the harbour.',
  'Of course. At ten you meet the architect, about the plans.',
];
async function start(body) {
  for (const content of answers.shift().match(/\\S+\\s*/g)) {
    body.enqueue(new TextEncoder().encode(`data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\\n\\n`));
    await new Promise((resolve) => setTimeout(resolve, 80));
  }
  body.close(body.enqueue(new TextEncoder().encode('data: [DONE]')));
}
window.fetch = async (...asked) =>
  `${asked[0]}`.includes(':11434') ? new Response(new ReadableStream({ start })) : fetch(...asked);
document.querySelector('[name=source][value=talk]').click();
document.getElementById('llm-url').value = 'http://localhost:11434';
"""


def converse(page: PlaygroundPage) -> Iterator[None]:
    """Ask, stop the answer, ask again, and hear the second answer to its end; yield where a frame may be taken."""
    message = page.driver.find_element("id", "message")
    for question in ("What is on today?", "Only the first one, please."):
        if page.script("return document.querySelector('.asked') !== null"):
            while len(page.lit_words()) < 13:
                yield
            message.send_keys(Keys.ESCAPE)
            yield from [None] * 18
        for start in range(0, len(question), 2):
            message.send_keys(question[start : start + 2])
            yield
        if page.script("return document.querySelector('.asked') !== null"):
            yield from [None] * 20  # a pause, in which the answer is begun
        message.send_keys(Keys.ENTER)
    while page.phase() != "finished":
        yield
    yield


with running_server() as server, running_chromium(Path(tempfile.mkdtemp()), *FLAGS) as driver:
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
    page = PlaygroundPage(driver, f"{server.url}/")
    page.open()
    page.script(MODEL)
    frames, begun = [], time.monotonic()
    for _ in converse(page):
        frames.append((time.monotonic() - begun, driver.get_screenshot_as_png()))
        time.sleep(0.03)
    print(f"{len(frames)} frames, {page.text_of('m-underruns')} underruns")

with av.open(sys.argv[1], "w", format="webp", options={"loop": "0"}) as file:
    stream = file.add_stream("libwebp_anim", rate=1000, options={"quality": "80", "compression_level": "6"})
    stream.width, stream.height, stream.pix_fmt = SIZE["width"], SIZE["height"], "bgra"
    for shown_s, png in [*frames, (frames[-1][0] + 2, frames[-1][1])]:
        frame = next(av.open(io.BytesIO(png)).decode(video=0)).reformat(format="bgra")
        frame.pts, frame.time_base = round(shown_s * 1000), Fraction(1, 1000)
        file.mux(stream.encode(frame))
    file.mux(stream.encode(None))
