"""An engine client over a fake worker as a process of its own, for tests that stop or kill it.

Arguments: the hang time in seconds, and the worker's options as JSON. Prints the worker's process id. Then it speaks
each line of stdin, and prints when that begins, and how it ended with the restarts so far.
"""

from __future__ import annotations

import asyncio
import json
import sys

from fake_worker import fake_worker_command
from processes import worker_pids

from realtime_tts.contract import frames
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import WorkerSpec


def say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


async def speak(client: EngineClient, text: str) -> str:
    stream = client.submit(frames.Generate("r", "c", text, voice="slt", paced=False))
    say(begun=(await anext(stream)).type)
    return [message.type async for message in stream][-1]


async def main() -> None:
    command = fake_worker_command(**json.loads(sys.argv[2]))
    client = EngineClient([WorkerSpec(command=command, hang_s=float(sys.argv[1]))])
    await client.start()
    say(worker=worker_pids(client)[0])
    while text := (await asyncio.to_thread(sys.stdin.readline)).strip():
        ended = await speak(client, text)
        say(ended=ended, restarts=client.keeper.num_restarts)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
