"""A Ray cluster of one node with `deploy.ray.app` on it, as a process of its own in Ray's environment.

Argument: `Options` as JSON. Says {"ready": true} when it can speak. Then each line of stdin is a version to deploy
anew, answered with {"deployed": version}; at the end of stdin all ends.
"""

from __future__ import annotations

import json
import sys
import tempfile

import ray
from ray import serve

from deploy.ray.app import Options, front, speech


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    given = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        ray.init(
            num_cpus=8,  # of which none is used while nobody speaks
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            log_to_driver=False,
            _temp_dir=directory,
        )
        serve.start(proxy_location="Disabled")
        serve.run(front(Options(**given)), name="front", route_prefix=None)
        serve.run(speech(Options(**given)), name="speech", route_prefix=None)
        say(ready=True)
        for line in sys.stdin:
            serve.run(speech(Options(**given, version=line.strip())), name="speech", route_prefix=None)
            say(deployed=line.strip())
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
