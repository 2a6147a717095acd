"""All settings of realtime-tts, each defined once: name, type, default, bounds and help.

A setting is a field of `EngineConfig` or `ServerConfig`. The field defines the command-line flag
(``--max-lead-s``), the environment variable (``REALTIME_TTS_MAX_LEAD_S``) and the entry of the TOML file
(``max_lead_s`` in the table ``[engine]`` or ``[server]``). `config_loader.load_settings` merges them.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.contract.setting import setting

ENV_PREFIX = "REALTIME_TTS_"

# Supported wire formats of other services.
DIALECTS = ("openai", "cartesia", "elevenlabs", "deepgram")


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
    worker_start_timeout_s: float = setting(600.0, "A worker that is not ready after this is started anew.", minimum=1)
    worker_hang_timeout_s: float = setting(
        5.0, "A worker that stands still for this long with work to do is ended.", minimum=0.5
    )

    def options(self, device: str) -> EngineOptions:
        """Return the options of the worker for one device, with memory for the adapters."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(EngineOptions)}
        own["max_adapters"] = self.max_adapters or max(len(self.adapters), 4 if self.adapters_dir else 0)
        return EngineOptions(**(own | {"device": device}))


@dataclasses.dataclass(frozen=True, slots=True)
class ServerConfig:
    """Settings of the gateways: addresses, authentication, defaults of speech, and limits."""

    host: str = setting("127.0.0.1", "Address to listen on. Anything but loopback needs an API key.")
    port: int = setting(8000, "Port to listen on; 0: any free one.", minimum=0, maximum=65535)
    gateways: int = setting(
        0,
        "Gateway processes that share the port and the workers, each good for a core; 0: as many as the listeners of "
        "the devices need, 1 on a CPU.",
        minimum=0,
        maximum=256,
    )
    metrics_host: str = setting("127.0.0.1", "Address of the metrics port.")
    metrics_port: int = setting(
        9464,
        "Port of /metrics when the server listens beyond loopback (else it is on the main port); 0: any free one.",
        minimum=0,
        maximum=65535,
    )
    api_key_file: str = setting("", "File with one API key hash a line, as `realtime-tts keys create` prints them.")
    api_key_hashes: tuple[str, ...] = setting((), "API key hashes, comma separated, beside those of the file.")
    token_secret_file: str = setting(
        "", "File with the secret that tokens are signed with, 32 bytes or more; none: tokens end with the process."
    )
    max_token_ttl_s: int = setting(3600, "Longest life of a token, seconds.", minimum=1, maximum=86_400)
    allowed_origins: tuple[str, ...] = setting(
        (), "Origins of other sites whose pages may connect, comma separated; the playground's own always may."
    )
    language: str = setting("en", "Language that numbers, dates and the like are read in.")
    mode: str = setting(
        "auto",
        "How text is spoken while it is being written: from its first words on (live), or clause by clause. auto: live "
        "if the model tells which word it speaks.",
        choices=("auto", "live", "clause"),
    )
    sentence_pause_ms: float = setting(
        0.0,
        "Silence between sentences, beside what the voice makes of their ends, for a client that does not say.",
        minimum=0,
        maximum=3000,
    )
    lexicon: str = setting("", 'File with a pronunciation lexicon: JSON, {"nginx": "engine x"}, or the W3C\'s PLS.')
    key_lexicons: tuple[tuple[str, str], ...] = setting(
        (),
        "Lexicons of API keys, before that one: the first 12 digits of a key's hash and a file, as "
        "0a1b2c3d4e5f=names.json; in the file a table [server.key_lexicons].",
    )
    dialects: tuple[str, ...] = setting(
        DIALECTS, "Dialects of other services that are spoken beside the native one, comma separated.", choices=DIALECTS
    )
    strict_ids: bool = setting(
        False, "Refuse unknown names of voices and models in the dialects of other services too."
    )
    voice_aliases: tuple[tuple[str, str], ...] = setting(
        (), "Other names for voices, as rachel=slt,adam=rms; in the file a table [server.voice_aliases]."
    )
    model_aliases: tuple[str, ...] = setting((), "Other names for the model, comma separated; see --strict-ids.")

    voices_dir: str = setting(
        "auto",
        "Where added voices are kept. auto: realtime-tts/voices in the user's data directory; none: they end with the "
        "process.",
    )
    voice_consent: str = setting(
        "attested",
        "What a cloned voice needs: off, nothing; attested, a statement that the speaker agrees; required, who says so "
        "and for what use.",
        choices=("off", "attested", "required"),
    )
    provenance: bool = setting(
        True, "Files that are made say that they are synthetic speech, by which model and in which voice."
    )
    max_voices_per_key: int = setting(100, "Voices that one API key may add.", minimum=0)

    max_connections: int = setting(
        0, "Open connections in all; 0: as many as the process has descriptors for, less a reserve.", minimum=0
    )
    max_sessions: int = setting(0, "Sessions in all; 0: four for each stream the engine advances at once.", minimum=0)
    max_sessions_per_key: int = setting(0, "Sessions of one API key; 0: no limit of its own.", minimum=0)
    fair_share_from: float = setting(
        0.75,
        "Taken share of the sessions from which on an API key gets no more than its fair share; 1: never.",
        minimum=0,
        maximum=1,
    )
    max_chars_per_minute: int = setting(0, "Text of one API key in a minute, characters; 0: no limit.", minimum=0)
    max_steps: int = setting(
        64,
        "Flow steps that a client may ask for; the default number always may. More than the default hold others up.",
        minimum=2,
        maximum=64,
    )
    max_contexts: int = setting(16, "Unfinished contexts in one session.", minimum=1, maximum=1024)
    max_text_chars: int = setting(20_000, "Text of one context, characters.", minimum=1)
    max_message_bytes: int = setting(65_536, "One message of a client, bytes.", minimum=1024, maximum=16 * 1024 * 1024)
    max_session_bytes: int = setting(
        524_288,
        "Memory held for one client: its texts, what it has not read, what it may ask for again. Bytes, roughly.",
        minimum=65_536,
    )
    max_bad_messages: int = setting(20, "Bad messages in a row that close a socket.", minimum=1)
    max_queued: int = setting(
        0,
        "Contexts of all sessions waiting for a stream beyond which new ones are refused; 0: as many as there are "
        "streams. New sessions are refused as soon as no stream is free.",
        minimum=0,
    )
    max_late_ms: float = setting(
        40.0, "Typical lateness of the gateway's own work beyond which nobody new may speak; 0: any.", minimum=0
    )

    handshake_timeout_s: float = setting(10.0, "Time for a connection to send a whole request.", minimum=0.1)
    idle_timeout_s: float = setting(300.0, "A session without messages and without speech is closed.", minimum=0.1)
    ping_interval_s: float = setting(10.0, "Time between two pings.", minimum=0.1)
    ping_timeout_s: float = setting(10.0, "Time for the answer to a ping.", minimum=0.1)
    close_timeout_s: float = setting(2.0, "Time for a peer to answer a close.", minimum=0.05)
    resume_window_s: float = setting(10.0, "How long a session waits for its client to come back.", minimum=0)
    max_lead_s: float = setting(
        3.0, "How far audio is sent ahead of the listener, seconds; a barge-in takes it back.", minimum=0.2, maximum=60
    )
    slow_consumer_timeout_s: float = setting(10.0, "A peer that takes nothing for this long is closed.", minimum=0.1)
    stall_flush_s: float = setting(
        1.0,
        "Text that stops in mid-sentence for this long is spoken as it stands; 0: wait for more (10 s if it is being "
        "spoken already).",
        minimum=0,
    )
    drain_timeout_s: float = setting(60.0, "Time for running speech to end after SIGTERM.", minimum=0)
    opus_complexity: int = setting(
        5, "How hard Opus tries, 0 to 10: quality against processor time.", minimum=0, maximum=10
    )
    encoder_threads: int = setting(0, "Threads that encode audio; 0: one per core, 8 at most.", minimum=0, maximum=256)

    log_level: str = setting(
        "info", "Least severe log records to print.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = setting("text", "Log records as text or as one JSON object a line.", choices=("text", "json"))


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one process."""

    engine: EngineConfig = dataclasses.field(default_factory=EngineConfig)
    server: ServerConfig = dataclasses.field(default_factory=ServerConfig)


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table, from which a flag, an environment variable and a file entry are made."""

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

    @property
    def env_name(self) -> str:
        return ENV_PREFIX + self.name.upper()


SECTIONS: dict[str, type[Any]] = {"engine": EngineConfig, "server": ServerConfig}


def settings_table(*sections: str) -> Iterator[Setting]:
    """Yield the settings of the named sections, or all, in the order of their definition."""
    for section in sections or tuple(SECTIONS):
        cls = SECTIONS[section]
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if field.metadata:
                yield Setting(section, field.name, hints[field.name], field.default, **field.metadata)
