"""Settings: where they come from, and what is said about wrong ones."""

from __future__ import annotations

import dataclasses

import pytest

from realtime_tts.config import (
    AccessConfig,
    EngineConfig,
    LimitsConfig,
    ServerConfig,
    Settings,
    SpeechConfig,
    TimeoutsConfig,
    VoicesConfig,
    build,
    flatten,
    settings_table,
)
from realtime_tts.config_loader import load_settings
from realtime_tts.errors import ConfigError

CLASSES = (EngineConfig, ServerConfig, AccessConfig, SpeechConfig, VoicesConfig, LimitsConfig, TimeoutsConfig)
PARTS = {"access", "speech", "voices", "limits", "timeouts"}  # of the server's settings


def test_defaults_are_valid_settings() -> None:
    assert load_settings() == Settings()
    defaults = {row.name: row.default for row in settings_table()}
    assert load_settings(defaults) == Settings()


def test_flags_win_over_the_environment_over_the_file() -> None:
    toml = '[server]\nport = 1\nhost = "::1"\nlog_level = "debug"\n[engine]\nthreads = 3\n'
    settings = load_settings({"port": "3"}, {"REALTIME_TTS_PORT": "2", "REALTIME_TTS_HOST": "127.0.0.2"}, toml)
    assert (settings.server.port, settings.server.host, settings.server.log_level) == (3, "127.0.0.2", "debug")
    assert settings.engine.threads == 3


def test_values_that_were_not_given_are_left_alone() -> None:
    assert load_settings({"port": None}, {"REALTIME_TTS_PORT": "5"}).server.port == 5


def test_lists_come_as_lists_or_with_commas() -> None:
    expected = ("cuda:0", "cuda:1")
    for flags, toml in (({"devices": "cuda:0, cuda:1,"}, ""), ({}, '[engine]\ndevices = ["cuda:0", "cuda:1"]')):
        assert load_settings(flags, {}, toml).engine.devices == expected


@pytest.mark.parametrize(
    ("flags", "toml"),
    [
        ({"voice_aliases": "rachel=slt, adam = rms,"}, ""),
        ({}, '[server.voices.voice_aliases]\nrachel = "slt"\nadam = "rms"'),
        ({}, '[server.voices]\nvoice_aliases = ["rachel=slt", "adam=rms"]'),
    ],
)
def test_aliases_come_as_a_table_or_with_equal_signs(flags: dict[str, object], toml: str) -> None:
    assert load_settings(flags, {}, toml).server.voices.voice_aliases == (("rachel", "slt"), ("adam", "rms"))


def test_a_list_can_be_empty() -> None:
    assert load_settings({"model_aliases": ""}).server.voices.model_aliases == ()
    assert load_settings({"model_aliases": "tts-1,sonic"}).server.voices.model_aliases == ("tts-1", "sonic")


@pytest.mark.parametrize("word", ["1", "true", "YES", "on"])
def test_words_for_true(word: str) -> None:
    assert load_settings({}, {"REALTIME_TTS_STRICT_IDS": word}).server.voices.strict_ids is True


@pytest.mark.parametrize("word", ["0", "False", "no", "off"])
def test_words_for_false(word: str) -> None:
    toml = "[server.voices]\nstrict_ids = true"
    assert load_settings({}, {"REALTIME_TTS_STRICT_IDS": word}, toml).server.voices.strict_ids is False


def test_environment_names_of_others_are_ignored() -> None:
    load_settings({}, {"PORT": "x", "REALTIME_TTS_API_KEY": "k", "REALTIME_TTS_URL": "u", "REALTIME_TTS_CONFIG": "c"})


@pytest.mark.parametrize(
    ("flags", "env", "toml", "said"),
    [
        ({"prot": 1}, {}, "", "--prot is not a setting; did you mean port?"),
        ({}, {"REALTIME_TTS_PROT": "1"}, "", "environment variable REALTIME_TTS_PROT is not a setting"),
        ({}, {}, "[server]\nprot = 1", "'prot' in [server] of the config file is not a setting"),
        ({}, {}, "[server]\ndevices = ['cpu']", "'devices' belongs into [engine], not [server]"),
        ({}, {}, "port = 1", "not 'port'"),
        ({}, {}, "[gateway]\nport = 1", "not 'gateway'"),
        ({}, {}, "[server", "is not TOML"),
        ({"port": "many"}, {}, "", "--port: 'many' is not a whole number"),
        ({"port": True}, {}, "", "is not a whole number"),
        ({"port": 1.5}, {}, "", "is not a whole number"),
        ({"port": 70_000}, {}, "", "is above 65535"),
        ({"port": -1}, {}, "", "is below 0"),
        ({"max_queued": 2**64}, {}, "", "is above 1e+12"),
        ({"max_chars_per_minute": "1" + "0" * 400}, {}, "", "is above 1e+12"),
        ({"drain_timeout_s": "inf"}, {}, "", "is above 1e+12"),
        ({"drain_timeout_s": 10**400}, {}, "", "is not a number"),
        ({"stall_flush_s": "nan"}, {}, "", "is below 0"),
        ({"stall_flush_s": "soon"}, {}, "", "is not a number"),
        ({"stall_flush_s": False}, {}, "", "is not a number"),
        ({"host": 5}, {}, "", "is not text"),
        ({"devices": [5]}, {}, "", "is not a list of text"),
        ({"devices": 5}, {}, "", "is not a list of text"),
        ({}, {"REALTIME_TTS_DEVICES": ""}, "", "devices names none: give auto, cpu, cuda or cuda:N"),
        ({"strict_ids": "maybe"}, {}, "", "is not true or false"),
        ({"metrics_address": "9464"}, {}, "", "must be an address and a port, as 127.0.0.1:9464, got '9464'"),
        ({"metrics_address": "[::1]:70000"}, {}, "", "must be an address and a port"),
        ({}, {}, "[server]\nmax_queued = 5", "'max_queued' belongs into [server.limits], not [server]"),
        ({}, {}, "[server]\nlimits = 5", "not 'server.limits'"),
        ({"max_contexts": 5}, {}, "", "--max-contexts is not a setting"),
        ({"voice_aliases": "rachel"}, {}, "", "is not a list of different names with values"),
        ({"voice_aliases": "rachel=slt=rms"}, {}, "", "is not a list of different names with values"),
        ({"voice_aliases": "rachel=slt,rachel=rms"}, {}, "", "is not a list of different names with values"),
        ({"voice_aliases": "=slt"}, {}, "", "is not a list of different names with values"),
        ({"voice_aliases": 5}, {}, "", "is not a list of different names with values"),
        ({}, {}, "[server.voices.voice_aliases]\nrachel = 5", "is not a list of different names with values"),
        ({"log_level": "loud"}, {}, "", "is none of debug, info, warning, error"),
    ],
)
def test_a_wrong_setting_is_named(flags: dict[str, object], env: dict[str, str], toml: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(flags, env, toml)
    assert said in caught.value.message


def test_names_are_unique_so_that_one_environment_variable_means_one_thing() -> None:
    names = [row.name for row in settings_table()]
    assert len(names) == len(set(names))


def test_there_are_few_settings() -> None:
    assert len(list(settings_table())) <= 35


def test_values_by_name_make_equal_settings() -> None:
    assert build(Settings, flatten(Settings())) == Settings()
    assert set(flatten(Settings())) == {field.name for cls in CLASSES for field in dataclasses.fields(cls)} - PARTS


@pytest.mark.parametrize("row", list(settings_table()), ids=lambda row: row.name)
def test_every_setting_explains_itself(row: object) -> None:
    assert row.help.endswith(".")  # type: ignore[attr-defined]
    assert row.flag.startswith("--")  # type: ignore[attr-defined]
