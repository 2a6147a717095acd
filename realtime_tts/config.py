"""All settings of realtime-tts, each defined once: name, type, default, bounds and help.

A setting is a field with help of one of these classes. The field defines the command-line flag (``--max-queued``), the
environment variable (``REALTIME_TTS_MAX_QUEUED``) and the entry of the TOML file (``max_queued`` in the table
``[server.limits]``). `config_loader.load_settings` merges them. Fields without help are constants: an operator has no
reason to change them, and only tests do.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from realtime_tts.contract.engine_options import EngineOptions, setting
from realtime_tts.errors import ConfigError

ENV_PREFIX = "REALTIME_TTS_"

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class EngineConfig(EngineOptions):
    """Settings of the workers: the options of each engine, devices and adapters."""

    devices: tuple[str, ...] = setting(
        ("auto",),
        "Devices, comma separated, one worker each, e.g. cuda:0,cuda:1. 'auto': the first CUDA device, else the CPU.",
    )
    adapters: tuple[tuple[str, str], ...] = setting(
        (),
        "LoRA adapters to load at the start, as name=directory,other=directory; in the file a table [engine.adapters].",
    )
    adapters_dir: str = setting(
        "", "Directory with more adapters, each in a directory of its name: these can be loaded while the server runs."
    )

    def __post_init__(self) -> None:
        EngineOptions.__post_init__(self)
        if not self.devices:
            raise ConfigError("devices names none: give auto, cpu, cuda or cuda:N", field="devices")

    def options(self, device: str) -> EngineOptions:
        """Return the options of the worker for one device, with memory for the adapters."""
        max_adapters = self.max_adapters or max(len(self.adapters), self._num_in_adapters_dir())
        return build(EngineOptions, flatten(self) | {"device": device, "max_adapters": max_adapters})

    def _num_in_adapters_dir(self) -> int:
        """Return the number of directories there, with room for some that come later: 4 to 64."""
        if not self.adapters_dir:
            return 0
        return min(max(4, sum(path.is_dir() for path in Path(self.adapters_dir).expanduser().glob("*"))), 64)


@dataclasses.dataclass(frozen=True, slots=True)
class AccessConfig:
    """Keys, tokens and origins."""

    api_key_file: str = setting("", "File with one API key hash a line, as `realtime-tts keys create` prints them.")
    token_secret_file: str = setting(
        "", "File with the secret that signs tokens, 32 bytes or more. Without it, tokens end with the process."
    )
    allowed_origins: tuple[str, ...] = setting(
        (), "Origins of other sites whose pages may connect, comma separated. The playground's own is always allowed."
    )
    api_key_hashes: tuple[str, ...] = ()  # in addition to the file's; a file keeps them out of process lists
    max_token_ttl_s: int = 3600  # a page can ask its backend for a new token at any time


@dataclasses.dataclass(frozen=True, slots=True)
class SpeechConfig:
    """Defaults of speech. A client chooses language and pauses itself."""

    lexicon: str = setting("", 'File with a pronunciation lexicon: JSON, {"nginx": "engine x"}, or the W3C\'s PLS.')
    tenant_lexicons: tuple[tuple[str, str], ...] = setting(
        (),
        "Lexicons of tenants, applied before that one: the first 12 digits of an API key's hash and a file, as "
        "0a1b2c3d4e5f=names.json; in the file a table [server.speech.tenant_lexicons].",
    )
    openings: str = setting(
        "",
        "File of openings that contexts of the default voice begin with, one sentence a line; they are spoken ahead. "
        "With it (it may be empty) speech that began alike twice is kept in memory.",
    )
    stall_flush_s: float = setting(
        1.0,
        "Text that stops in mid-sentence for this long is spoken as it is; 0: wait for more (10 s if its speech has "
        "begun).",
        minimum=0,
    )
    mode: str = "auto"  # live if the model measures which word it speaks, else clause
    max_lead_s: float = 3.0  # audio sent ahead of playback bridges gaps of the network; more only wastes work


@dataclasses.dataclass(frozen=True, slots=True)
class VoicesConfig:
    """Added voices and names of voices."""

    voices_dir: str = setting(
        "auto",
        "Directory of added voices. auto: realtime-tts/voices in the user's data directory; none: they end with the "
        "process.",
    )
    voice_consent: str = setting(
        "attested",
        "What a cloned voice requires: off, nothing; attested, a statement that the speaker agrees; required, also the "
        "speaker's name and the permitted use.",
        choices=("off", "attested", "required"),
    )
    voice_aliases: tuple[tuple[str, str], ...] = setting(
        (), "Other names for voices, as rachel=heart,adam=michael; in the file a table [server.voices.voice_aliases]."
    )
    strict_ids: bool = setting(
        False, "Refuse unknown names of voices and models in the dialects of other services too."
    )
    model_aliases: tuple[str, ...] = setting((), "Other names for the model, comma separated; see --strict-ids.")
    max_voices_per_tenant: int = 100  # far more than one application uses; bounds the disk space of one key
    provenance: bool = True  # files are marked as synthetic speech, as the law of many countries requires


@dataclasses.dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Limits that keep one client or an overload from delaying others."""

    max_sessions_per_tenant: int = setting(0, "Sessions of one API key; 0: only the fair share limits them.", minimum=0)
    max_chars_per_minute: int = setting(0, "Text of one API key in a minute, characters; 0: no limit.", minimum=0)
    max_queued: int = setting(
        0,
        "Contexts of all sessions waiting for a stream beyond which new ones are refused; 0: as many as there are "
        "streams. New sessions are refused as soon as no stream is free.",
        minimum=0,
    )
    max_late_ms: float = setting(
        40.0,
        "Typical lateness of the gateway's own work above which no new speech is admitted; 0: no limit.",
        minimum=0,
    )
    max_sessions: int = 0  # 0: four for each stream that the engine advances at once; more would only wait
    fair_share_from: float = 0.75  # taken share of the sessions from which on a tenant gets no more than its fair share
    max_connections: int = 0  # 0: as many as the process may open files (`ulimit -n`), less a reserve
    max_contexts: int = 16  # unfinished contexts in one session
    max_text_chars: int = 20_000  # text of one context, about 20 minutes of speech
    max_message_bytes: int = 65_536  # one message of a client
    max_session_bytes: int = 524_288  # kept of one client: texts, unread messages, what it may request again
    max_bad_messages: int = 20  # in a row; then the socket is closed


@dataclasses.dataclass(frozen=True, slots=True)
class TimeoutsConfig:
    """Timeouts, seconds."""

    drain_timeout_s: float = setting(60.0, "Time for running speech to end after SIGTERM.", minimum=0)
    unload_after_s: float = setting(
        0.0,
        "Time without sessions after which the model gives back its memory; speech loads it again. 0: never.",
        minimum=0,
    )
    handshake_timeout_s: float = 10.0  # for a connection to send a whole request
    idle_timeout_s: float = 300.0  # for a session without messages and without speech
    ping_interval_s: float = 10.0  # proxies close sockets that are idle for 30 s and more
    ping_timeout_s: float = 10.0
    close_timeout_s: float = 2.0  # for a peer to answer a close
    resume_window_s: float = 10.0  # for a client to reconnect to its session; a lost session keeps its slot
    slow_consumer_timeout_s: float = 10.0  # for a peer that reads nothing


@dataclasses.dataclass(frozen=True, slots=True)
class ServerConfig:
    """Settings of the gateways."""

    host: str = setting("127.0.0.1", "Address to listen on. Any address except loopback requires an API key.")
    port: int = setting(8000, "Port to listen on; 0: any free one.", minimum=0, maximum=65535)
    gateways: int = setting(
        0,
        "Gateway processes that share the port and the workers, each for one core; 0: as many as the listeners of "
        "the devices need, 1 on a CPU.",
        minimum=0,
        maximum=256,
    )
    metrics_address: str = setting(
        "127.0.0.1:9464",
        "Address and port of /metrics when the server listens beyond loopback (else it is on the main port); port 0: "
        "any free one.",
    )
    log_level: str = setting(
        "info", "Least severe log records to print.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = setting("text", "Log records as text or as one JSON object a line.", choices=("text", "json"))
    access: AccessConfig = dataclasses.field(default_factory=AccessConfig)
    speech: SpeechConfig = dataclasses.field(default_factory=SpeechConfig)
    voices: VoicesConfig = dataclasses.field(default_factory=VoicesConfig)
    limits: LimitsConfig = dataclasses.field(default_factory=LimitsConfig)
    timeouts: TimeoutsConfig = dataclasses.field(default_factory=TimeoutsConfig)
    encoder_threads: int = 0  # 0: one per core, 8 at most; the host process divides the cores among its gateways

    def __post_init__(self) -> None:
        host, _, port = self.metrics_address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(
                f"metrics_address must be an address and a port, as 127.0.0.1:9464, got {self.metrics_address!r}",
                field="metrics_address",
            )

    @property
    def metrics_host(self) -> str:
        return self.metrics_address.rpartition(":")[0].strip("[]")

    @property
    def metrics_port(self) -> int:
        return int(self.metrics_address.rpartition(":")[2])


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one process."""

    engine: EngineConfig = dataclasses.field(default_factory=EngineConfig)
    server: ServerConfig = dataclasses.field(default_factory=ServerConfig)


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table, from which a flag, an environment variable and a file entry are made.

    section: table of the file, such as ``server.limits``.
    """

    section: str
    name: str
    type: Any
    default: Any
    help: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def settings_table(cls: type[Any] = Settings, section: str = "") -> Iterator[Setting]:
    """Yield the settings of a class at any depth, in the order of their definition. `section`: its table of the
    file."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from settings_table(hints[field.name], f"{section}.{field.name}".lstrip("."))
        elif field.metadata:
            yield Setting(section, field.name, hints[field.name], field.default, **field.metadata)


def build(cls: type[T], values: Mapping[str, Any]) -> T:
    """Return an instance of a class of settings with these values, by name at any depth. Unknown names are ignored."""
    hints = typing.get_type_hints(cls)
    fields = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if dataclasses.is_dataclass(hints[field.name]):
            fields[field.name] = build(hints[field.name], values)
        elif field.name in values:
            fields[field.name] = values[field.name]
    return cls(**fields)


def flatten(config: Any) -> dict[str, Any]:
    """Return all values of an instance by name; `build` makes an equal instance of them."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        values |= flatten(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return values
