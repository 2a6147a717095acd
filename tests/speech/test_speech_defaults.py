"""What a context is spoken with: which choice counts, and what no client may request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.contract import frames
from realtime_tts.contract.speech_params import SpeechParams, with_defaults
from realtime_tts.errors import BadLexicon, ConfigError, InvalidRequest, UnsupportedLanguage, VoiceNotFound
from realtime_tts.session.settings import Choices, ContextSettings
from realtime_tts.speech.defaults import SpeechDefaults
from realtime_tts.speech.lexicons import Lexicons, read_lexicon

VOICES = {"slt": {}, "rms": {}}
POLICY = {"languages": ["en", "de"], "default_steps": 4, "default_cfg": 1.5, "voices": VOICES, "default_voice": "slt"}
OPEN = Choices()


@pytest.fixture
def make_defaults() -> Callable[..., SpeechDefaults]:
    def make(
        language: str = "en",
        lexicons: Lexicons | None = None,
        openings: bool = False,
        **fields: Any,
    ) -> SpeechDefaults:
        given = {"policy": POLICY, **fields}
        ready = frames.Ready("m", "cpu", "float32", "eager", 16_000, 2560, **given)
        names = [*given["policy"].get("voices", ()), "zero-shot"]
        return SpeechDefaults(
            ready,
            voices=lambda tenant: [*names, "mine"] if tenant == "owner" else names,
            language=language,
            lexicons=lexicons,
            openings=openings,
            stall_flush_s=None,
            draw_seed=lambda: 99,
            voice_aliases={"rachel": "rms", "slt": "rms", "gone": "none", "own": "mine"},
        )

    return make


@pytest.fixture
def defaults(make_defaults: Callable[..., SpeechDefaults]) -> SpeechDefaults:
    return make_defaults()


def test_settings_that_are_not_given_are_the_models(defaults: SpeechDefaults) -> None:
    params = SpeechParams(
        seed=99, cfg=1.5, steps=4, language="en", mode="clause", sentence_pause_ms=0.0, openings="off"
    )
    assert defaults.resolve(OPEN, OPEN) == ContextSettings("slt", AudioFormat(), with_defaults(params))


def test_a_message_goes_before_the_session_and_that_before_the_model(defaults: SpeechDefaults) -> None:
    pcm = AudioFormat("pcm_s16le", 16_000)
    session = Choices(
        "rms", pcm, SpeechParams(cfg=0.0, steps=9, seed=0, language="de", instructions="slow", mode="live")
    )
    message = Choices("slt", None, SpeechParams(steps=2))
    params = with_defaults(session.params | message.params | SpeechParams(sentence_pause_ms=0.0, openings="off"))
    assert defaults.resolve(session, message) == ContextSettings("slt", pcm, params)


def test_contexts_that_may_begin_from_memory_have_the_same_seed_unless_they_set_one(
    make_defaults: Callable[..., SpeechDefaults],
) -> None:
    on, off = make_defaults(openings=True), make_defaults()
    for defaults, params, seed in (
        (on, SpeechParams(), 0),
        (on, SpeechParams(seed=5), 5),
        (on, SpeechParams(openings="off"), 99),
        (off, SpeechParams(), 99),
        (off, SpeechParams(openings="on"), 0),
    ):
        assert defaults.resolve(OPEN, Choices(params=params)).params["seed"] == seed


def test_flow_steps_are_bounded(defaults: SpeechDefaults) -> None:
    assert defaults.resolve(OPEN, Choices(params=SpeechParams(steps=64))).params["steps"] == 64
    with pytest.raises(InvalidRequest, match="steps must be between 2 and 64, got 65"):
        defaults.resolve(OPEN, Choices(params=SpeechParams(steps=65)))


def test_a_model_without_voices_makes_one_up(make_defaults: Callable[..., SpeechDefaults]) -> None:
    defaults = make_defaults(policy={})
    assert defaults.resolve(OPEN, OPEN).voice == defaults.resolve(OPEN, Choices("zero-shot")).voice == "zero-shot"


def test_an_unknown_voice_is_refused_by_a_message_that_names_the_others(defaults: SpeechDefaults) -> None:
    with pytest.raises(VoiceNotFound, match="unknown voice 'alloy'; the voices are slt, rms, zero-shot") as caught:
        defaults.resolve(OPEN, Choices("alloy"))
    assert caught.value.field == "voice"


def test_a_tenants_voice_is_its_own(defaults: SpeechDefaults) -> None:
    assert defaults.resolve(OPEN, Choices("mine"), tenant="owner").voice == "mine"
    for tenant in ("", "other"):
        with pytest.raises(VoiceNotFound) as caught:
            defaults.resolve(OPEN, Choices("mine"), tenant=tenant)
        assert "mine" not in caught.value.message.removeprefix("unknown voice 'mine'")


def test_clients_of_other_services_get_the_default_voice_for_names_of_theirs(defaults: SpeechDefaults) -> None:
    assert defaults.resolve(OPEN, Choices("alloy"), permissive=True).voice == "slt"
    assert defaults.resolve(OPEN, Choices("rms"), permissive=True).voice == "rms"


@pytest.mark.parametrize("name", ["de", "DE", "de-AT", "de_CH"])
def test_a_language_may_name_its_region(defaults: SpeechDefaults, name: str) -> None:
    assert defaults.resolve(OPEN, Choices(params=SpeechParams(language=name))).params["language"] == "de"


def test_a_language_that_the_model_does_not_speak_is_refused(make_defaults: Callable[..., SpeechDefaults]) -> None:
    french = Choices(params=SpeechParams(language="fr"))
    with pytest.raises(UnsupportedLanguage, match="unsupported language 'fr'; the model speaks en, de") as caught:
        make_defaults().resolve(OPEN, french)
    assert caught.value.field == "params.language"
    assert make_defaults(policy={}).resolve(OPEN, french).params["language"] == "fr"  # the model does not say
    for nonsense in ("", "e", "en us", "english language", "-en", "en-", "én"):
        with pytest.raises(UnsupportedLanguage, match="BCP 47"):
            make_defaults(policy={}).resolve(OPEN, Choices(params=SpeechParams(language=nonsense)))


def test_the_servers_language_is_how_text_is_read(make_defaults: Callable[..., SpeechDefaults]) -> None:
    defaults = make_defaults(language="de-DE", policy={"charset": "abcdefghijklmnopqrstuvwxyz .,"})
    [segment] = defaults.make_planner(defaults.resolve(OPEN, OPEN)).push("Es sind 3 Hunde im Haus. Und", 0.0)
    assert "drei" in segment.text.lower()


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (SpeechParams(cfg=-0.1), "params.cfg"),
        (SpeechParams(cfg=float("nan")), "params.cfg"),
        (SpeechParams(cfg=11), "params.cfg"),
        (SpeechParams(steps=1), "params.steps"),
        (SpeechParams(steps=65), "params.steps"),
        (SpeechParams(seed=-1), "params.seed"),
        (SpeechParams(seed=2**53), "params.seed"),
        (SpeechParams(instructions="x" * 501), "params.instructions"),
        (SpeechParams(mode="auto"), "params.mode"),
    ],
)
def test_params_out_of_bounds_are_refused(defaults: SpeechDefaults, params: SpeechParams, field: str) -> None:
    for choices in ((Choices(params=params), OPEN), (OPEN, Choices(params=params))):
        with pytest.raises(InvalidRequest) as caught:
            defaults.resolve(*choices)
        assert caught.value.field == field


def test_the_bounds_themselves_are_within(defaults: SpeechDefaults) -> None:
    low, high = SpeechParams(cfg=0.0, steps=2, seed=0), SpeechParams(cfg=10.0, steps=64, seed=2**53 - 1)
    for params in (low, high, SpeechParams(instructions="x" * 500)):
        settled = defaults.resolve(OPEN, Choices(params=params))
        assert settled.params.items() >= params.items()


@pytest.mark.parametrize(("name", "voice"), [("rachel", "rms"), ("slt", "slt"), ("own", "mine")])
def test_an_alias_means_its_voice_and_hides_none(defaults: SpeechDefaults, name: str, voice: str) -> None:
    assert defaults.resolve(OPEN, Choices(name), tenant="owner").voice == voice


@pytest.mark.parametrize("name", ["gone", "own"])
def test_an_alias_of_a_voice_that_is_not_there_is_unknown(defaults: SpeechDefaults, name: str) -> None:
    with pytest.raises(VoiceNotFound):
        defaults.resolve(OPEN, Choices(name))
    assert defaults.resolve(OPEN, Choices(name), permissive=True).voice == "slt"


def test_an_alias_leads_to_no_voice_that_a_token_may_not_use(defaults: SpeechDefaults) -> None:
    with pytest.raises(VoiceNotFound):
        defaults.resolve(OPEN, Choices("rachel"), only_voices=("slt",))


def test_the_lexicon_of_a_context_goes_before_its_keys_and_that_before_the_servers(
    make_defaults: Callable[..., SpeechDefaults], tmp_path: Path
) -> None:
    common, of_key = tmp_path / "common.json", tmp_path / "key.json"
    common.write_text('{"alpha": "common", "beta": "common", "gamma": "common"}')
    of_key.write_text('{"alpha": "key", "beta": "key"}')
    defaults = make_defaults(lexicons=Lexicons(str(common), [("0123456789ab", str(of_key))]))

    def spoken(tenant: str, **params: Any) -> str:
        planner = defaults.make_planner(defaults.resolve(OPEN, Choices(params=SpeechParams(**params))), tenant)
        return "".join(segment.text for segment in [*planner.push("alpha beta gamma", 0.0), *planner.end(0.0)])

    assert spoken("0123456789ab", lexicon={"alpha": "own"}) == "own key common"
    assert spoken("0123456789ab") == "key key common"
    assert spoken("", lexicon={"alpha": "own"}) == "own common common"
    assert make_defaults().resolve(OPEN, OPEN).params.get("lexicon") is None


def test_an_invalid_lexicon_is_refused_before_anything_is_spoken(
    make_defaults: Callable[..., SpeechDefaults], tmp_path: Path
) -> None:
    with pytest.raises(BadLexicon) as caught:
        make_defaults().resolve(OPEN, Choices(params=SpeechParams(lexicon={"word": "!"})))
    assert caught.value.field == "params.lexicon"
    broken = tmp_path / "broken.json"
    broken.write_bytes(b"\xff")
    for path in (broken, tmp_path / "missing.json", tmp_path):
        with pytest.raises(ConfigError):
            Lexicons(path)
    broken.write_text("{")
    with pytest.raises(ConfigError, match="neither JSON"):
        read_lexicon(broken)
    with pytest.raises(ConfigError, match="12 digits"):
        Lexicons("", [("somebody", str(broken))])
