/**
 * Speech from text that is still being written, in a page.
 *
 *     const tts = await RealtimeTTS.connect('wss://example.org/v1/stream');
 *     const context = tts.open();
 *     for await (const delta of llm) context.send(delta);
 *     context.end();
 *     // the listener talks over it:
 *     const { spokenText } = await context.cancel();
 */

import { AudioPath } from './audio-path.js';
import { SpeechContext } from './context.js';
import { negotiateFormat } from './decoder.js';
import { ConnectionLost, ProtocolError, RealtimeTTSError, ServerError } from './errors.js';
import { Player } from './player.js';
import * as protocol from './protocol.js';
import { SessionLink } from './session-link.js';

export * from './errors.js';
export { SpeechContext } from './context.js';
export { Player } from './player.js';
export { ServerHttp } from './server-http.js';

const VOICE_TTL_S = 3600; // after its last use, if a page ends without deleting it

/** State of a context that the server does not know. */
const UNKNOWN = { state: 'unknown', received_chars: 0, num_flushes: 0, ended: false };

/** Codes that refuse a hold or a release, and never more text for a context. */
const REFUSALS_OF_HOLDS = ['context_closed', 'invalid_request'];

/** @typedef {import('./session-link.js').LinkState} ConnectionState */
/**
 * Recordings from which the server makes a voice for one session: `reference`, or `prompt` with `promptText`, or both.
 * @typedef {object} OwnVoice
 * @property {Blob} [reference] a file to sound like: 2 to 60 s of one speaker, of any usual format
 * @property {Blob} [prompt] a file to go on from, in which `promptText` is said
 * @property {string} [promptText]
 * @property {boolean} [consent] the speaker agrees; `consentBy` states this, for the use `consentScope`
 * @property {string} [consentBy]
 * @property {string} [consentScope]
 */
/**
 * @typedef {object} Options
 * @property {string} [apiKey] where the server wants one
 * @property {string | OwnVoice} [voice] default voice of the session: a name or an id, or recordings to make one of
 * @property {protocol.SpeechParams} [params] of the native protocol: seed, speed, volume, lexicon …
 * @property {Partial<protocol.AudioFormat> & {codec?: 'auto' | 'opus' | 'pcm_s16le'}} [audio] `auto`: Opus where the
 *   browser decodes it, else PCM
 * @property {boolean} [playback] false: no AudioContext; take samples from the contexts' `audio` events
 * @property {Omit<import('./player.js').PlayerOptions, 'sampleRate'>} [player] jitter buffer, destination node, tap
 */

/**
 * Events: `state` (detail: ConnectionState), `error` (detail: RealtimeTTSError; the session goes on unless `state` says
 * `closed`), `session` (a new session began; detail: its `session.started`).
 */
export class RealtimeTTS extends EventTarget {
  /**
   * @param {string | URL} url of the server: ws(s), http(s), `host:port`, or a path relative to the page
   * @param {Options} [options]
   * @returns {Promise<RealtimeTTS>}
   * @throws {ConnectionLost | HandshakeRefused | ServerError | ProtocolError | AudioUnsupported}
   */
  static async connect(url, options = {}) {
    const tts = new RealtimeTTS(url, options);
    await tts.#start();
    return tts;
  }

  /** Use `RealtimeTTS.connect`. @param {string | URL} url @param {Options} options */
  constructor(url, options) {
    super();
    this.options = options;
    /** @type {Map<string, SpeechContext>} */
    this.contexts = new Map();
    this.nextId = 1;
    this.closing = false;
    /** The server's `session.started`: session_id, model, voice, audio, params, limits. */
    this.session = null;
    /** Voices that go with the session. @type {string[]} */
    this.lentVoices = [];
    this.path = new AudioPath({ error: (error) => this.#emit('error', error) });
    this.link = new SessionLink(url, options.apiKey, () => this.#hello(), {
      frame: (frame) => this.#frame(frame),
      state: (state) => this.#emit('state', state),
      started: (session) => this.#started(session),
      lastSequences: () => this.#lastSequences(),
      resumed: (contexts) => this.#resumed(contexts),
      lost: (error) => this.#sessionLost(error),
    });
  }

  /** The player, unless `playback: false`. @returns {import('./player.js').Player | null} */
  get player() {
    return this.path.player;
  }

  /** @returns {ConnectionState} */
  get state() {
    return this.link.state;
  }

  /**
   * A new context: one utterance, e.g. one answer of the assistant. Contexts are played in the order of their opening.
   * Nothing is sent before its first text. Call it (or `resumeAudio`) from a click or key press the first time.
   * @param {{contextId?: string, voice?: string, params?: protocol.SpeechParams, draft?: boolean}} [settings] `draft`:
   *   nothing is heard before `commit`, but the server may make the beginning ahead; its turn to be played begins there
   * @returns {SpeechContext}
   */
  open({ contextId = `c${this.nextId++}-${crypto.randomUUID?.() ?? Math.random().toString(36).slice(2)}`, ...settings } = {}) {
    if (this.state === 'closed') throw new ConnectionLost('The session is closed');
    if (this.contexts.has(contextId)) throw new TypeError(`Context ${contextId} exists already`);
    this.resumeAudio().catch(() => {}); // refused without a user gesture: silent until the next one
    const context = new SpeechContext(contextId, settings, {
      send: (frame) => this.link.send(frame), // not sent while reconnecting: `resend` sends it later
      heardMs: (each) => this.path.heardMs(each),
      silence: (each) => this.path.silence(each),
      playedMs: (each) => this.path.playedMs(each),
      begin: (each) => this.path.open(each, each.audio ?? this.format),
      hold: (each, ms) => this.path.hold(each, ms),
      release: (each, ms) => this.path.release(each, ms),
      maxChars: () => this.session?.limits?.max_text_chars ?? Infinity,
    });
    this.contexts.set(contextId, context);
    context.addEventListener('finished', () => this.#forget(context)); // also one that never had a text
    return context;
  }

  /**
   * Speak a whole text.
   * @param {string} text @param {Parameters<RealtimeTTS['open']>[0]} [settings]
   * @throws {ServerError} `text_too_long`
   */
  speak(text, settings) {
    const context = this.open(settings);
    try {
      context.send(text);
    } finally {
      context.end();
    }
    return context;
  }

  /**
   * Make a voice from recordings on the server, for the duration of this session.
   * @param {OwnVoice} voice @returns {Promise<string>} its id, a `voice` for `open` and `speak`
   * @throws {ServerError | ConnectionLost} `recording_too_short`, `invalid_request` (no consent) …
   */
  async lendVoice({ reference, prompt, promptText, consent, consentBy, consentScope }) {
    const { id } = await this.link.http.addVoice({
      ttl_s: VOICE_TTL_S,
      reference,
      prompt,
      prompt_text: promptText,
      consent,
      consent_by: consentBy,
      consent_scope: consentScope,
    });
    this.lentVoices.push(id);
    return id;
  }

  /** Barge-in on everything. @returns {Promise<import('./context.js').Spoken[]>} in order of opening */
  async cancelAll() {
    return Promise.all([...this.contexts.values()].map((context) => context.cancel()));
  }

  /** Allow the page to play audio; browsers require a call from a user gesture. */
  async resumeAudio() {
    await this.player?.resume();
  }

  /** End the session; open contexts fail with ConnectionLost. */
  async close() {
    this.closing = true;
    this.link.close(new ConnectionLost('The session was closed'));
    const returned = this.#returnVoices();
    await this.path.close();
    await returned;
  }

  async #start() {
    if (this.options.playback !== false) Player.requireSupport();
    this.format = await negotiateFormat(this.options.audio);
    const { voice } = this.options;
    this.voice = voice && typeof voice === 'object' ? await this.lendVoice(voice) : voice;
    try {
      await this.link.start();
    } catch (error) {
      await this.#returnVoices();
      throw error;
    }
    if (this.options.playback === false) return;
    const options = { ...this.options.player, sampleRate: this.format.sample_rate };
    await this.path.startPlayer(options).catch((error) => this.#abandon(error));
  }

  #hello() {
    return protocol.startSession({ voice: this.voice, params: this.options.params, audio: this.format });
  }

  #started(session) {
    this.session = session;
    this.format = session.audio;
    this.path.renumber();
    for (const context of [...this.contexts.values()]) this.#beginAgain(context);
    this.#emit('session', session);
  }

  /** Delete a voice; if that fails, it expires by itself. */
  async #returnVoices() {
    await Promise.all(this.lentVoices.splice(0).map((id) => this.link.http.deleteVoice(id).catch(() => {})));
  }

  async #abandon(error) {
    await this.close();
    throw error;
  }

  // ---- from the server ----------------------------------------------------------------------------------------

  #frame(frame) {
    try {
      if (typeof frame === 'string') this.#message(protocol.parseMessage(frame));
      else this.#audio(protocol.parseAudioFrame(frame));
    } catch (error) {
      if (!(error instanceof RealtimeTTSError)) throw error;
      this.#emit('error', error);
    }
  }

  #message(message) {
    const context = this.contexts.get(message.context_id);
    if (message.type === 'error') return this.#errorMessage(message, context);
    if (!context || !this.#inOrder(context, message.sequence)) return undefined;
    context.receive(message);
    if (message.type === 'context.started') this.#accepted(context, message.audio);
    else if (message.type === 'context.done') this.path.end(context);
    else if (message.type === 'context.cancelled') this.path.silence(context);
    else if (message.type === 'context.failed') this.#failed(context);
    return undefined;
  }

  #accepted(context, audio) {
    context.audio = audio;
    if (!context.isDraft) this.path.open(context, audio ?? this.format);
  }

  #audio(packet) {
    const context = packet && this.path.contextOf(packet.number);
    if (context && this.#inOrder(context, packet.sequence)) this.path.decode(packet);
  }

  /** Return false for a message that was already received before the connection broke. */
  #inOrder(context, sequence) {
    if (sequence === undefined) return true;
    if (sequence <= context.lastSequence) return false;
    if (sequence > context.lastSequence + 1 && !context.silenced) {
      this.#emit('error', new ProtocolError(`Messages ${context.lastSequence + 1} to ${sequence - 1} of a context are missing`));
    }
    context.lastSequence = sequence;
    return true;
  }

  #errorMessage(message, context) {
    const error = ServerError.fromWire(message);
    if (context?.asked && context.number !== null && REFUSALS_OF_HOLDS.includes(error.code)) return context.refused(error);
    // The context is over: our text crossed its end on the wire, or the error follows from one already reported.
    if (error.contextId !== null && context?.state !== 'open') return;
    if (context && message.span) context.refusedText(message.span);
    this.#emit('error', error);
    // Refused at its opening: no terminal message will follow. Later errors do not change the context.
    if (context && context.number === null) this.#failed(context, error);
  }

  #failed(context, error = null) {
    if (error) context.fail(error);
    this.path.end(context); // received audio is still played
  }

  async #forget(context) {
    if (context.state === 'open') await context.done.catch(() => {}); // cancelled, not yet confirmed
    this.contexts.delete(context.contextId);
    this.path.forget(context);
  }

  // ---- reconnecting ----------------------------------------------------------------------------------------------

  #lastSequences() {
    const open = [...this.contexts.values()].filter((context) => context.state === 'open' && context.text !== '');
    return Object.fromEntries(open.map((context) => [context.contextId, context.lastSequence]));
  }

  #resumed(contexts) {
    const known = new Map(contexts.map((each) => [each.context_id, each]));
    for (const context of this.contexts.values()) {
      if (context.state === 'done') context.askAgain();
      if (context.state !== 'open' || context.text === '') continue;
      const there = known.get(context.contextId) ?? UNKNOWN;
      const forgotten = there.state === 'unknown' && context.number !== null; // its start would be heard twice
      if (forgotten || there.state === 'lost') this.#failed(context, new ConnectionLost('Part of the answer was lost with the connection'));
      else if (there.state !== 'finished') context.resend(there);
    }
  }

  /** Continue a context in a new session. */
  #beginAgain(context) {
    const error = new ConnectionLost('The session was lost before it could answer');
    if (context.state !== 'open') context.fail(error); // it is done; a cancel of it may wait for an answer
    else if (context.silenced) this.#failed(context, error);
    else context.beginAgain(this.path.receivedMs(context), this.options.params?.text_type);
  }

  #sessionLost(error) {
    const closed = this.state === 'closed';
    // A context that has not begun is not affected: the next session speaks it.
    const survives = (context) => !closed && context.track === null && !context.silenced;
    const lost = [...this.contexts.values()].filter((context) => !survives(context));
    // An idle session that the server ended is replaced without an error.
    const interrupted = lost.some((context) => context.state === 'open');
    if (!this.closing && (interrupted || closed)) this.#emit('error', error);
    for (const context of lost) {
      if (context.state === 'open') this.#failed(context, error);
      else context.fail(error); // it is done; a cancel of it may wait for an answer
    }
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
