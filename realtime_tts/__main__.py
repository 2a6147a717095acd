"""``python -m realtime_tts``: the command line without its entry point on the PATH."""

from realtime_tts.cli.main import main

main()
