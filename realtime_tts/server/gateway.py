"""Lifecycle of one gateway, and the objects that its routes and sockets use. No globals."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from realtime_tts import __version__
from realtime_tts.audio.provenance import Provenance
from realtime_tts.config import Settings
from realtime_tts.contract import frames
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.contract.watch import end_tasks, until, watch
from realtime_tts.errors import DictionaryNotFound, EngineLost, ModelNotFound, RealtimeTTSError
from realtime_tts.server.admission.admission import Admission
from realtime_tts.server.admission.availability import Availability, GatewayState
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.peers import Peers
from realtime_tts.server.host.heap import keep_heap_small, settle_heap
from realtime_tts.server.host.prefetch import prefetch
from realtime_tts.server.http.catalogue import Catalogue
from realtime_tts.server.logs import log_event
from realtime_tts.server.metrics import Metrics
from realtime_tts.server.stream.sessions import Sessions
from realtime_tts.server.upkeep import follow_adapters, follow_voices, probe_lateness, watch_use
from realtime_tts.server.voices.limits import VoiceMaking
from realtime_tts.server.voices.previews import Previews
from realtime_tts.session.connection import GOING_AWAY
from realtime_tts.speech.adapters import AdapterRegistry
from realtime_tts.speech.defaults import SpeechDefaults
from realtime_tts.speech.encoders import Encoders
from realtime_tts.speech.lexicons import Lexicons
from realtime_tts.speech.openings import plan_openings, read_openings
from realtime_tts.speech.records import Consents, Dictionaries, RecordStore
from realtime_tts.speech.voice_store import open_store
from realtime_tts.speech.voices import VoiceRegistry
from realtime_tts.workers.client import EngineClient


class Gateway:
    """One gateway: starts and ends the engine, the sessions and the upkeep.

    Args:
        engine: engine client that is not started yet; `start` starts it and `close` closes it.
        peers: the other gateways of the host.

    Attributes:
        store: where the added voices are kept; None if they are in memory only.
    """

    def __init__(self, settings: Settings, engine: EngineClient, peers: Peers | None = None) -> None:
        self.settings, self.engine = settings, engine
        self.peers = peers or Peers()
        self.store = open_store(settings.server.voices.voices_dir, settings.server.voices.voice_consent)
        self.voices = VoiceRegistry(engine, self.store)
        self.voices.on_removed = self._voice_removed
        self.voices.on_stored = self.peers.voices_changed
        adapters_dir = settings.engine.adapters_dir
        self.adapters = AdapterRegistry(engine, Path(adapters_dir).expanduser() if adapters_dir else None)
        self.adapters.on_changed = self.peers.adapter_changed
        self._records = self.store or RecordStore()
        self.consents, self.dictionaries = Consents(self._records), Dictionaries(self._records)
        self.voice_making = VoiceMaking()
        self.preview_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by engine id of a voice
        self.previews = Previews(None if self.store is None else self.store.directory / "previews")
        self.voices.on_language_changed = self.previews.forget  # its sample sentence is another one
        speech = settings.server.speech
        self._lexicons = Lexicons(speech.lexicon, speech.tenant_lexicons)
        self._openings = read_openings(speech.openings) if speech.openings else []
        self.metrics = Metrics()
        self.encoders = Encoders(settings.server.encoder_threads)
        self.availability = Availability(engine)
        self.admission = Admission(settings.server, engine, self.availability, self.peers, self.metrics)
        self.sessions = Sessions(self)
        self.started = asyncio.Event()  # or has failed to start
        self.has_failed = False  # a required part has ended
        self.on_failed: Callable[[], None] = lambda: None
        engine.on_failed = self.fail
        self._tasks: list[asyncio.Task[None]] = []  # the gateway fails if one ends with an exception
        self._catalogue: Catalogue | None = None

    def start(self) -> None:
        """Start the engine in the background, so that the server answers health checks meanwhile."""
        self._watch(self._start(), "start engine")
        self._watch(probe_lateness(self), "probe lateness")
        self._watch(keep_heap_small(self.encoders.run), "keep heap small")

    def _watch(self, work: Coroutine[object, None, None], name: str) -> None:
        self._tasks.append(watch(work, name, self.fail))

    def fail(self) -> None:
        """Mark the gateway as unhealthy, since a required task has ended, and shut down unless that has begun."""
        if not self.has_failed:
            self.has_failed = True
            if self.availability.state is not GatewayState.DRAINING:
                self.on_failed()

    async def _start(self) -> None:
        begun = time.monotonic()
        try:
            await asyncio.gather(self.engine.start(), self.encoders.warm_up(), prefetch())
            assert self.engine.ready is not None
            await self.voices.refresh()
            self._check_aliases()
            if self.store is not None:
                kept = await asyncio.to_thread(self.store.ids)  # also of other models: another server may use them
                await asyncio.to_thread(self.previews.drop_others, set(kept))
            await self.adapters.load_all(dict(self.settings.engine.adapters))
            while not self.peers.adapter_changes.empty():  # those that peers have loaded so far
                await self.adapters.follow(*self.peers.adapter_changes.get_nowait())
            self._watch(follow_adapters(self), "follow adapters")
            self._watch(follow_voices(self), "follow voices")
            self._watch(watch_use(self), "watch use")
            self._catalogue = self._make_catalogue(self.engine.ready)
        except RealtimeTTSError as error:
            self.availability.start_error = error
        settle_heap()  # blocks the event loop, before there are clients
        if self.availability.state is GatewayState.STARTING and self.availability.start_error is None:
            self.availability.state = GatewayState.RUNNING
        self.started.set()
        if ready := self.engine.ready:
            seconds = time.monotonic() - begun
            log_event("ready", model=ready.model, device=ready.device, seconds=seconds)

    def _check_aliases(self) -> None:
        """Warn of aliases of voices that do not exist, or not yet: one may be added later."""
        known = {*self.voices.names(), *(record.name for record in self.voices.all_added())}
        for alias, voice in self.settings.server.voices.voice_aliases:
            if voice not in known:
                log_event("unknown_voice_of_alias", logging.WARNING, alias=alias, voice=voice)

    async def drain(self, timeout_s: float) -> None:
        """Admit no session, let running speech end, then close all sessions; after `timeout_s` speech is cut off."""
        self.availability.state = GatewayState.DRAINING
        log_event("draining", sessions=len(self.sessions))
        self.sessions.close_pending()
        for owner in list(self.admission.slots.owners):
            owner.drain()
        await until(lambda: not self.admission.slots.owners, timeout_s)
        self.sessions.close_pending()
        self._close_owners()

    def _close_owners(self) -> None:
        for owner in list(self.admission.slots.owners):
            owner.close(GOING_AWAY, "draining")

    async def close(self) -> None:
        """Close the engine, all sessions and all tasks. Idempotent."""
        self.availability.state = GatewayState.DRAINING
        self._close_owners()
        await end_tasks(*self._tasks)
        await self.engine.close()
        self.encoders.close()
        self._records.close()

    def _voice_removed(self, voice_id: str) -> None:
        log_event("voice_removed", voice=voice_id)
        self.previews.forget(voice_id)
        self.voice_making.forget(voice_id)
        for owner in list(self.admission.slots.owners):
            owner.voice_removed(voice_id)

    # ---- questions -----------------------------------------------------------------------------------------------

    @property
    def catalogue(self) -> Catalogue:
        """Raises:
        EngineLost: no worker has become ready yet.
        """
        if self._catalogue is None:
            raise EngineLost("the model is still being loaded")
        return self._catalogue

    def adapter_of(self, model: str | None) -> str | None:
        """Return the adapter that a client's model name ends with, if any. The name may be another service's model.

        Raises:
            ModelNotFound: the model is not the loaded one, and the setting `strict_ids` is on.
            EngineLost: no worker has been ready yet.
        """
        config = self.settings.server.voices
        name, adapter = self.adapters.split(model)
        if config.strict_ids and name not in (None, known := self.catalogue.ready.model, *config.model_aliases):
            raise ModelNotFound(f"unknown model {str(name)[:64]!r}; the model is {known}", field="model")
        return adapter

    async def with_dictionaries(
        self, client: Client, params: SpeechParams, dictionary_ids: Sequence[str]
    ) -> tuple[SpeechParams, bool]:
        """Return the parameters with the entries of stored dictionaries, and whether all of the ids are known.

        Raises:
            DictionaryNotFound: an id is unknown, and the setting `strict_ids` is on.
        """
        entries, all_known = await self.dictionaries.entries_of(dictionary_ids, client.tenant)
        if not all_known and self.settings.server.voices.strict_ids:
            raise DictionaryNotFound("there is no such pronunciation dictionary", field="pronunciation_dictionary_id")
        lexicon = dict(params.get("lexicon", {}))
        for word, respelling in entries:  # in this order: of equal words, perhaps in another form, the first counts
            lexicon.setdefault(word, respelling)
        return {**params, "lexicon": lexicon}, all_known

    def provenance(self, voice_id: str) -> Provenance | None:
        """Return the provenance to write into an audio file; None if it is off. `voice_id`: the engine's id."""
        if not self.settings.server.voices.provenance:
            return None
        return Provenance(f"realtime-tts {__version__}", self.catalogue.ready.model, voice_id)

    def _make_catalogue(self, ready: frames.Ready) -> Catalogue:
        config = self.settings.server
        speech = config.speech
        defaults = SpeechDefaults(
            ready,
            voices=self.voices.names,
            mode=None if speech.mode == "auto" else speech.mode,
            stall_flush_s=speech.stall_flush_s or None,
            lexicons=self._lexicons,
            draw_seed=functools.partial(secrets.randbelow, 2**31),
            voice_aliases=dict(config.voices.voice_aliases),
            name_of=self.voices.name_of,
            adapters=self.adapters.loaded,
            openings=bool(speech.openings),
        )
        self.engine.speak_ahead(plan_openings(self._openings, defaults))
        return Catalogue(ready, defaults, config.limits.max_text_chars, config.voices.voice_consent)
