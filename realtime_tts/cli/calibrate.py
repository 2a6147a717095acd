"""``realtime-tts calibrate``"""

from __future__ import annotations

import json
from typing import Any

import click

_EPILOG = """\b
Examples:
  realtime-tts calibrate openbmb/VoxCPM2
  realtime-tts calibrate ./my-checkpoint --write
"""
_NUM_ROWS = 8


@click.command("calibrate", epilog=_EPILOG)
@click.argument("model", default="starter-voice")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--write", is_flag=True, help="Write the result to the checkpoint's serving.json.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(model: str, device: str, write: bool, as_json: bool) -> None:
    """Find the attention head that shows which word MODEL is speaking.

    The model speaks a few sentences without playback. Each head is scored by the agreement of its attention with the
    audio. The result is kept in the user's cache, where servers read it; only --write changes files of the model.
    """
    from realtime_tts.engine.calibrate import calibrate_and_keep

    if not as_json:
        click.echo("Speaking and measuring …", err=True)
    report = calibrate_and_keep(model, device, write)
    if as_json:
        click.echo(json.dumps(report))
    else:
        print_report(report)


def print_report(report: dict[str, Any]) -> None:
    head = report["text_head"]
    click.secho(f"{report['model']}, {report['num_sentences']} sentences", bold=True)
    click.echo("  layer  head  agreement   lag ms  on text  backward")
    for score in report["scores"][:_NUM_ROWS]:
        is_chosen = head is not None and (head["layer"], head["head"]) == (score["layer"], score["head"])
        verdict = "← chosen" if is_chosen else "qualifies" if score["qualifies"] else ""
        click.echo(
            f"  {score['layer']:5d} {score['head']:5d} {score['agreement']:10.2f} {score['lag_ms']:8.0f} "
            f"{score['mass']:8.2f} {score['backward']:9.2f}  {verdict}"
        )
    click.echo("Word times are measured." if head else "No head qualifies: word times are estimated.")
