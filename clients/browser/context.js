/** One turn of speech: text goes in piece by piece, audio comes out, the listener hears or interrupts it. */

import { ConnectionLost, ServerError } from './errors.js';
import { isSSML, openTags } from './markup.js';
import * as protocol from './protocol.js';
import { SourceText } from './source-text.js';

/** A message may have 64 KiB; a character takes up to 6 bytes as JSON, and no surrogate pair is cut (`u`). */
const MESSAGE_PART = /.{1,8000}/gsu;

/** @typedef {{text: string, start: number, end: number, startMs: number, endMs: number, timing: 'measured' | 'estimated'}} Word offsets into `context.text` */
/** @typedef {{playedMs: number, spokenText: string, spokenChars: number, wordShare: number}} Spoken what the listener heard, as text; and how much of the next word, 0 to 1 */
/**
 * @typedef {object} Outcome
 * @property {'done' | 'cancelled'} outcome
 * @property {number} audioMs audio made (done) or heard (cancelled)
 * @property {number | null} ttfaMs the server's own measure, first text or commit received → first packet ready
 * @property {boolean} [draftUsed] of a draft that is done: speech began with what was made of it
 * @property {boolean} [openingUsed] with `openings`: speech began with an opening from memory
 * @property {number} [mended] number of skips, repeats and stuck sounds that were cut and said again before they were sent
 */

/**
 * Events: `started`, `words` (detail: Word[]), `restarted` (detail: {ms}: the session was lost, another one goes on with
 * the word that was being heard then; words that began at `ms` or later come again), `audio` (detail: {samples, position, sampleRate}), `warning` (detail:
 * {code, message, spans: [start, end][]}, offsets into `text`), `finished` (heard to the end), and once one of `done`, `cancelled` (detail: Spoken), `failed` (detail: RealtimeTTSError).
 */
export class SpeechContext extends EventTarget {
  /**
   * Made by `RealtimeTTS.open`.
   * @param {string} contextId
   * @param {object} settings of the opening message
   * @param {{send: (frame: string) => boolean, heardMs: (context: SpeechContext) => number,
   *          silence: (context: SpeechContext) => Promise<void>, maxChars: () => number, playedMs: (context: SpeechContext) => number,
   *          begin: (context: SpeechContext) => void, hold: (context: SpeechContext, ms: number) => void, release: (context: SpeechContext, ms: number) => void}} session
   */
  constructor(contextId, settings, session) {
    super();
    this.contextId = contextId;
    this.settings = settings;
    this.session = session;
    /** @type {'open' | 'done' | 'cancelled' | 'failed'} what the server is doing with it */
    this.state = 'open';
    /** Context number, once the server has given one. @type {number | null} */
    this.number = null;
    /** Track number in the player, once audio is expected. @type {number | null} */
    this.track = null;
    this.source = new SourceText();
    /** @type {Word[]} */
    this.words = [];
    /** Part made by earlier sessions, from which this session's figures count: UTF-16 offset, flushes, time; and the
     * markup that this one's text begins with, since it was open there. */
    this.base = { chars: 0, flushes: 0, ms: 0, reopened: '' };
    /** The voice and the seed that the server speaks it with. @type {{voice?: string, seed?: number}} */
    this.chosen = {};
    /** `performance.now()` of the first text sent, first sample decoded, first audible sample heard */
    this.timing = { sentAt: null, decodedAt: null, audibleAt: null };
    this.lastSequence = -1;
    this.audioMs = 0;
    this.finalHeardMs = null;
    this.toldMs = 0; // playback position given by `acknowledge`
    this.over = false;
    this.ended = false;
    this.silenced = false; // cancelled here: audio that still arrives is dropped
    /** @type {number[]} UTF-16 offset of every flush, for sending again after a lost connection */
    this.flushes = [];
    /** @type {Promise<Outcome>} rejects with a ServerError or ConnectionLost if the context fails */
    this.done = new Promise((resolve, reject) => Object.assign(this, { resolveDone: resolve, rejectDone: reject }));
    this.done.catch(() => {}); // code that listens to `failed` does not have to await this
    /** Settled when the listener has heard it to the end, or it was cut. @type {Promise<void>} */
    this.finished = new Promise((resolve) => Object.assign(this, { resolveFinished: resolve }));
    /** @type {((spoken: Spoken) => void)[]} */
    this.cancelWaiters = [];
    /** Where it is held, ms. @type {number | null} */
    this.heldMs = null;
    /** The hold or release that has no answer yet. @type {{frame: () => string, resolve: Function, reject: Function} | null} */
    this.asked = null;
    /** @type {Spoken | null} the server's report of what was heard, after a cancel */
    this.spoken = null;
  }

  /** Nothing of it is heard before `commit`. */
  get isDraft() {
    return this.settings.draft === true;
  }

  /** Everything sent so far, without what the server refused. */
  get text() {
    return this.source.text;
  }

  /** Playback position, ms; 0 without a player until `acknowledge` is called. */
  get heardMs() {
    if (this.finalHeardMs !== null) return this.finalHeardMs;
    return this.session.heardMs(this);
  }

  /**
   * @param {string} delta more text, in any split
   * @throws {ServerError} `text_too_long`: with it the text would be longer than the server allows; nothing of it is sent
   */
  send(delta) {
    if (this.ended) throw new TypeError('send() after end()');
    this.#checkLength(this.source.numCodePoints + [...delta].length);
    const opening = this.source.text === '' ? this.settings : undefined;
    const ready = this.source.append(delta);
    if (ready === '' || this.state !== 'open') return;
    this.timing.sentAt ??= performance.now();
    this.#sendText(ready, opening);
  }

  /**
   * Speak a draft. Speech begins within milliseconds if its first clause is the same and the server had time to make it.
   * @param {string} [text] in place of what was sent; complete if that was, otherwise more may be sent
   * @throws {ServerError} `text_too_long`; the draft is unchanged
   */
  commit(text) {
    if (!this.isDraft) throw new TypeError('commit() of a context that is not a draft');
    if (text !== undefined) this.#checkLength([...text].length);
    const wasSent = this.text !== '';
    this.settings = { ...this.settings, draft: undefined };
    if (text !== undefined) {
      this.source = new SourceText();
      this.source.append(text);
    }
    if (this.state !== 'open') return;
    this.timing.sentAt = performance.now();
    if (!wasSent && this.text !== '') this.#sendText(this.text, this.settings);
    else if (wasSent) this.#sendCommit(text);
    if (this.number !== null) this.session.begin(this);
  }

  /** Speak what is buffered now, sentence or not. */
  flush() {
    if (this.ended || this.state !== 'open' || this.text === '') return;
    if (!this.isDraft) this.flushes.push(this.text.length);
    this.session.send(protocol.flush(this.contextId));
  }

  /** No more text will come. */
  end() {
    if (this.ended) return;
    this.ended = true;
    if (this.text === '') this.#settleEmpty();
    else if (this.state === 'open') this.session.send(protocol.end(this.contextId));
  }

  /**
   * Barge-in: silent within a few milliseconds, whatever the network does.
   * @returns {Promise<Spoken>} what the listener heard: the text a conversation's history should keep
   */
  async cancel() {
    this.ended = this.silenced = true;
    this.refused(new ServerError('The context was cancelled', { code: 'context_closed', contextId: this.contextId }));
    await this.session.silence(this);
    if (this.finalHeardMs === null) this.finalHeardMs = this.heardMs;
    if (this.text === '' || this.state === 'failed' || this.state === 'cancelled') {
      if (this.text === '') this.#settleEmpty();
      return this.spoken ?? this.spokenByClock();
    }
    const answer = new Promise((resolve) => this.cancelWaiters.push(resolve));
    if (this.number !== null) this.#tellHeard(this.finalHeardMs);
    const sent = this.session.send(protocol.cancel(this.contextId));
    // While reconnecting, `resend` repeats the cancel of an open context; for a finished one this is the only record.
    if (!sent && this.state !== 'open') this.#resolveCancel(this.spokenByClock());
    return answer;
  }

  /**
   * Hold the speech: it stops at the end of the word that is being played, at once with `at: 'now'`. For an interruption
   * that may be none; `release` goes on, `cancel` ends it. The server cancels a context that is held for 30 s.
   * @param {{at?: 'word' | 'now'}} [options]
   * @returns {Promise<Spoken>} what the listener hears until there
   * @throws {ServerError | ConnectionLost} the server has ended the context
   */
  async hold({ at = 'word' } = {}) {
    if (this.over || this.text === '' || this.state === 'failed' || this.state === 'cancelled') return this.spokenByClock();
    if (this.heldMs === null) {
      const playedMs = this.session.playedMs(this);
      const word = this.words.find(({ startMs, endMs }) => startMs < playedMs && playedMs < endMs);
      this.heldMs = at === 'word' && word ? word.endMs : playedMs;
      this.session.hold(this, this.heldMs);
    }
    return this.#ask(() => protocol.hold(this.contextId, Math.max(0, this.heldMs - this.base.ms)));
  }

  /**
   * Go on with the next word, or with the beginning of its clause if the hold lasted `clauseAfterMs` (2000).
   * @param {{clauseAfterMs?: number}} [options]
   * @returns {Promise<number>} where it goes on, ms
   * @throws {ServerError | ConnectionLost} the server has ended the context
   */
  async release({ clauseAfterMs } = {}) {
    if (this.heldMs === null) return this.heardMs;
    return this.#ask(() => protocol.release(this.contextId, clauseAfterMs));
  }

  /** The hold or release that has no answer yet fails, and a held player goes on. @param {ServerError | ConnectionLost} error */
  refused(error) {
    this.asked?.reject(error);
    if (this.heldMs !== null && !this.silenced) this.session.release(this, this.heldMs); // or what is behind it waits too
    this.asked = this.heldMs = null;
  }

  /** The server refused a piece of the text. @param {[number, number]} span as this session's server counts */
  refusedText(span) {
    const [start, end] = span.map((offset) => this.#toUtf16(offset));
    const { text, heldSurrogate } = this.source;
    this.source = new SourceText();
    this.source.append(text.slice(0, start) + text.slice(end) + heldSurrogate);
    this.flushes = this.flushes.map((position) => (position < start ? position : Math.max(start, position - (end - start))));
  }

  /** Send the hold or release again that has no answer yet. */
  askAgain() {
    if (this.asked) this.session.send(this.asked.frame());
  }

  /** Without a player: report the playback position of your own output. @param {number} playedMs */
  acknowledge(playedMs) {
    this.toldMs = playedMs;
    if (this.state === 'open' || this.state === 'done') this.#tellHeard(playedMs);
  }

  /** The client's own estimate of what was heard, for when the server cannot be asked. @returns {Spoken} */
  spokenByClock() {
    const playedMs = this.heardMs;
    const heard = this.words.filter((word) => word.startMs < playedMs);
    const spokenText = this.text.slice(0, heard.at(-1)?.end ?? 0);
    return { playedMs, spokenText, spokenChars: spokenText.length, wordShare: 0 };
  }

  /** A server message about this context. @param {{type: string, [field: string]: any}} message */
  receive(message) {
    if (message.type === 'context.held') return this.#answer(this.#spoken(message));
    if (message.type === 'context.released') return this.#released(message);
    if (this.state !== 'open' && message.type !== 'cancel.acknowledged') return;
    if (message.type === 'context.started') this.#started(message);
    else if (message.type === 'words') this.#words(message);
    else if (message.type === 'context.done') this.#doneMessage(message);
    else if (message.type === 'context.cancelled') this.#cancelled(message);
    else if (message.type === 'cancel.acknowledged') this.#resolveCancel(this.#spoken(message));
    else if (message.type === 'warning') this.#warning(message);
    else if (message.type === 'context.failed') this.fail(ServerError.fromWire(message));
  }

  /** @param {ServerError | ConnectionLost} error */
  fail(error) {
    this.#resolveCancel(this.spokenByClock()); // no answer of the server will come
    this.refused(error);
    if (this.state !== 'open') return;
    this.state = 'failed';
    this.rejectDone(error);
    this.#emit('failed', error);
  }

  /** The listener has heard everything there is. */
  heardToTheEnd() {
    if (this.over) return;
    this.over = true;
    this.finalHeardMs ??= this.state === 'done' ? this.audioMs : this.heardMs;
    this.resolveFinished();
    this.#emit('finished');
  }

  /**
   * Continue in a new session, in the same voice, from the word that was being heard when the session was lost. That
   * word is heard twice if its end had arrived. No word is lost, because words arrive before their audio.
   * @param {number} receivedMs how much of its audio has come
   * @param {'auto' | 'text' | 'ssml'} [textType] the session's
   */
  beginAgain(receivedMs, textType = 'auto') {
    if (this.number !== null) {
      this.words = this.words.filter((word) => word.startMs < receivedMs);
      const chars = Math.max(this.base.chars, this.words.at(-1)?.start ?? 0);
      const flushes = this.flushes.filter((position) => position <= chars).length;
      const isMarkup = isSSML(this.text, this.settings.params?.text_type ?? textType);
      this.base = { chars, flushes, ms: receivedMs, reopened: isMarkup ? openTags(this.text.slice(0, chars)) : '' };
      [this.number, this.lastSequence] = [null, -1];
      if (this.heldMs !== null) this.asked ??= { frame: () => protocol.hold(this.contextId, 0), resolve() {}, reject() {} };
      this.#emit('restarted', { ms: receivedMs });
    }
    this.resend({ received_chars: 0, num_flushes: 0, ended: false });
  }

  /**
   * Send again, after a reconnect, the messages that the server has not received, in their order.
   * @param {{received_chars: number, num_flushes: number, ended: boolean}} known
   */
  resend(known) {
    if (known.draft && !this.isDraft && this.cancelWaiters.length === 0) { // the commit was lost
      const [head] = this.text.slice(0, this.flushes[0]).match(MESSAGE_PART) ?? [''];
      this.session.send(protocol.commit(this.contextId, head));
      known = { received_chars: [...head].length, num_flushes: 0, ended: false };
    }
    const { chars, reopened } = this.base;
    const text = reopened + this.text.slice(chars); // this session's
    let offset = [...text].slice(0, known.received_chars).join('').length;
    let settings = known.received_chars === 0 ? this.#opening() : undefined;
    const sendUpTo = (end) => {
      if (end <= offset) return;
      this.#sendText(text.slice(offset, end), settings);
      settings = undefined;
      offset = end;
    };
    for (const position of this.flushes.slice(this.base.flushes + known.num_flushes)) {
      sendUpTo(position - chars + reopened.length);
      this.session.send(protocol.flush(this.contextId));
    }
    sendUpTo(text.length);
    if (this.cancelWaiters.length > 0) this.session.send(protocol.cancel(this.contextId));
    else {
      if (this.ended && !known.ended) this.session.send(protocol.end(this.contextId));
      this.askAgain();
    }
  }

  /** @param {Float32Array} samples @param {number} position @param {number} sampleRate */
  decoded(samples, position, sampleRate) {
    this.timing.decodedAt ??= performance.now();
    this.#emit('audio', { samples, position, sampleRate });
  }

  #checkLength(numChars) {
    const maxChars = this.session.maxChars();
    if (numChars <= maxChars) return;
    const message = `A context may have up to ${maxChars} characters`;
    throw new ServerError(message, { code: 'text_too_long', field: 'text', contextId: this.contextId });
  }

  /** @param {string} [text] without it: the draft's own */
  #sendCommit(text) {
    const [head, ...rest] = text?.match(MESSAGE_PART) ?? [text];
    this.session.send(protocol.commit(this.contextId, head));
    for (const part of rest) this.session.send(protocol.text(this.contextId, part));
    if (this.ended && text !== undefined) this.session.send(protocol.end(this.contextId));
  }

  #sendText(text, settings) {
    for (const part of text.match(MESSAGE_PART)) {
      this.session.send(protocol.text(this.contextId, part, settings));
      settings = undefined;
    }
  }

  /** Settings of the context's first message to a session. */
  #opening() {
    const { voice, seed } = this.chosen;
    if (voice === undefined && seed === undefined) return this.settings;
    return { ...this.settings, voice: voice ?? this.settings.voice, params: { ...this.settings.params, seed } };
  }

  #ask(frame) {
    return new Promise((resolve, reject) => {
      this.asked?.reject(new TypeError('hold() or release() was called again before it had its answer'));
      this.asked = { frame, resolve, reject };
      this.askAgain();
    });
  }

  #answer(value) {
    this.asked?.resolve(value);
    this.asked = null;
  }

  #released(message) {
    const begunAgain = this.heldMs !== null && this.heldMs < this.base.ms; // it stopped in an earlier session's speech
    const fromMs = begunAgain ? this.heldMs : this.base.ms + message.from_ms;
    this.heldMs = null;
    this.session.release(this, fromMs);
    this.#answer(fromMs);
  }

  #tellHeard(playedMs) {
    this.session.send(protocol.playback(this.contextId, Math.max(0, playedMs - this.base.ms)));
  }

  #started({ number, voice, seed }) {
    this.number = number;
    this.chosen = { voice, seed };
    if (this.track === null) this.#emit('started'); // not again in another session
  }

  /** @param {number} codePoints an offset as this session's server counts @returns {number} offset into `text` */
  #toUtf16(codePoints) {
    const { chars, reopened } = this.base;
    return Math.max(chars, this.source.toUtf16(this.source.toCodePoints(chars) - [...reopened].length + codePoints));
  }

  #words({ words, timing, previous_end_ms: previousEndMs = null }) {
    if (previousEndMs !== null && this.words.length > 0) this.words.at(-1).endMs = this.base.ms + previousEndMs;
    const added = words.map((word) => ({
      text: word.text,
      start: this.#toUtf16(word.start),
      end: this.#toUtf16(word.end),
      startMs: this.base.ms + word.start_ms,
      endMs: this.base.ms + word.end_ms,
      timing,
    }));
    this.words.push(...added);
    if (added.length > 0) this.#emit('words', added);
  }

  #warning({ code, message, spans = [] }) {
    const inText = spans.map((span) => span.map((offset) => this.#toUtf16(offset)));
    this.#emit('warning', { code, message, spans: inText });
  }

  #doneMessage(message) {
    this.state = 'done';
    this.audioMs = this.base.ms + message.audio_ms;
    const outcome = { outcome: 'done', audioMs: this.audioMs, ttfaMs: message.ttfa_ms ?? null };
    const { draft_used: draftUsed, opening_used: openingUsed, mended } = message;
    for (const [name, value] of Object.entries({ draftUsed, openingUsed, mended })) if (value !== undefined) outcome[name] = value;
    this.resolveDone(outcome);
    this.#emit('done', outcome);
  }

  #cancelled(message) {
    this.state = 'cancelled';
    this.ended = this.silenced = true;
    const spoken = this.#spoken(message);
    this.finalHeardMs = spoken.playedMs;
    this.resolveDone({ outcome: 'cancelled', audioMs: spoken.playedMs, ttfaMs: null });
    this.refused(new ServerError('The context was cancelled', { code: 'context_closed', contextId: this.contextId }));
    this.#emit('cancelled', spoken);
    this.#resolveCancel(spoken);
  }

  #spoken(message) {
    if (message.state === 'unknown' || typeof message.spoken_text !== 'string') return this.spokenByClock();
    if (this.heardMs < this.base.ms) return this.spokenByClock(); // the server has no record of an earlier session's speech
    const spokenChars = this.#toUtf16(message.spoken_chars ?? 0);
    const spokenText = this.base.chars ? this.text.slice(0, spokenChars) : message.spoken_text;
    const playedMs = message.played_ms === undefined ? this.heardMs : this.base.ms + message.played_ms;
    return { playedMs, spokenText, spokenChars, wordShare: message.word_share ?? 0 };
  }

  #resolveCancel(spoken) {
    this.spoken ??= spoken;
    for (const resolve of this.cancelWaiters.splice(0)) resolve(spoken);
  }

  #settleEmpty() {
    if (this.state !== 'open') return;
    this.state = 'done';
    this.resolveDone({ outcome: 'done', audioMs: 0, ttfaMs: null });
    this.#emit('done', { outcome: 'done', audioMs: 0, ttfaMs: null });
    this.heardToTheEnd();
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
