"""Pronunciation dictionaries through the services' own Python packages: stored, listed, spoken with, deleted."""

from __future__ import annotations

import httpx
from cartesia import Cartesia
from elevenlabs import PronunciationDictionaryVersionLocator
from elevenlabs.client import ElevenLabs

TEXT = "Ask nginx."
SAID = "engine x " * 6  # much longer than its word, so that it is seen in the audio


def test_elevenlabs(fake_gateway: str) -> None:
    with httpx.Client(timeout=60) as http:
        client = ElevenLabs(api_key="any", base_url=fake_gateway, httpx_client=http)
        dictionaries = client.pronunciation_dictionaries
        rule = {"type": "alias", "string_to_replace": "nginx", "alias": SAID}
        made = dictionaries.create_from_rules(name="Names", rules=[rule])  # type: ignore[list-item]
        assert [each.id for each in dictionaries.list().pronunciation_dictionaries] == [made.id]
        locator = PronunciationDictionaryVersionLocator(pronunciation_dictionary_id=made.id, version_id=made.version_id)

        def spoken(**options: object) -> int:
            audio = client.text_to_speech.convert("rms", text=TEXT, output_format="pcm_16000", **options)  # type: ignore[arg-type]
            return len(b"".join(audio))

        assert spoken(pronunciation_dictionary_locators=[locator]) > 2 * spoken()
        assert dictionaries.rules.remove(made.id, rule_strings=["nginx"]).version_rules_num == 0
        dictionaries.update(made.id, archived=True)
        assert dictionaries.list().pronunciation_dictionaries == []


def test_cartesia(fake_gateway: str) -> None:
    with Cartesia(api_key="any", base_url=fake_gateway) as client:
        made = client.pronunciation_dicts.create(name="Names", items=[{"text": "nginx", "alias": SAID}])
        assert made.id in [each.id for each in client.pronunciation_dicts.list()]

        def spoken(**options: str) -> int:
            answer = client.tts.generate(
                model_id="sonic-3",
                transcript=TEXT,
                voice={"mode": "id", "id": "rms"},
                output_format={"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000},
                **options,  # type: ignore[arg-type]
            )
            return len(answer.read())

        assert spoken(pronunciation_dict_id=made.id) > 2 * spoken()
        assert client.pronunciation_dicts.update(made.id, name="Other").name == "Other"
        client.pronunciation_dicts.delete(made.id)
        assert made.id not in [each.id for each in client.pronunciation_dicts.list()]
