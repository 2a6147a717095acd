"""An engine client over a fake worker as a process of its own, for tests that stop or kill it.

Prints the worker's process id; then, for each line on stdin, speaks and prints how that ended and the restarts so far.
"""

from __future__ import annotations

import asyncio
import json
import sys

from fake_worker import fake_worker_command
from processes import worker_pids

from realtime_tts.errors import EngineLost
from realtime_tts.workers import frames
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import SupervisorConfig, WorkerSpec


def say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


async def speak(client: EngineClient) -> str:
    try:
        stream = client.submit(frames.Generate("r", "c", "hello", "slt"))
    except EngineLost:
        return "lost"
    return [message.type async for message in stream][-1]


async def main() -> None:
    client = EngineClient([WorkerSpec(fake_worker_command())], SupervisorConfig(hang_s=float(sys.argv[1])))
    await client.start()
    say(worker=worker_pids(client)[0])
    while await asyncio.to_thread(sys.stdin.readline):
        say(ended=await speak(client), restarts=client.num_restarts)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
