"""``realtime-tts lexicon``"""

from __future__ import annotations

from pathlib import Path

import click

from realtime_tts.cli.options import FILE

_EPILOG = """\b
Examples:
  echo '{"nginx": "engine x", "SQL": "sequel"}' > names.json
  realtime-tts lexicon names.json "Ask nginx about SQL."
  realtime-tts say --lexicon names.json "Ask nginx about SQL."
  realtime-tts serve --lexicon names.json
An entry in lower case stands for the word in any case, one with capitals for itself as written. A file of PLS, the
W3C's Pronunciation Lexicon Specification, is read too: its <alias>, since models read letters and no phones.
"""


@click.command("lexicon", epilog=_EPILOG)
@click.argument("file", type=FILE)
@click.argument("text", required=False)
@click.option("--language", default="en", show_default=True, help="Language of the text.")
def command(file: Path, text: str | None, language: str) -> None:
    """Check FILE, and show TEXT as the model reads it with this lexicon."""
    from realtime_tts.speech.lexicons import read_lexicon
    from realtime_tts.text.planner import PlannerFactory

    lexicon = read_lexicon(file)
    if text is None:
        click.echo(f"{file}: {len(lexicon)} entries")
        return
    planner = PlannerFactory(None, 10_000, None).make(language, lexicons=[lexicon])
    for segment in [*planner.push(text, 0.0), *planner.end(0.0)]:
        click.echo(f"(silence of {segment.silence_ms:g} ms)" if segment.silence_ms else segment.text)
