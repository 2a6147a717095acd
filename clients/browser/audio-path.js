/** Audio path: a decoder for each context, the player behind them, and the playback position. */

import { createDecoder } from './decoder.js';
import { Player } from './player.js';

const ACKNOWLEDGE_EVERY_MS = 250;

/** @typedef {import('./context.js').SpeechContext} SpeechContext */
/**
 * @typedef {object} AudioPathHandlers
 * @property {(error: import('./errors.js').RealtimeTTSError) => void} error a packet that could not be decoded
 */

/**
 * @typedef {object} Stream
 * @property {SpeechContext} context
 * @property {import('./decoder.js').PacketDecoder} decoder for this session's packets
 * @property {import('./protocol.js').AudioFormat} format
 * @property {number} base samples of the context sent by earlier sessions; this session's samples count from there
 * @property {number} received end of the received audio, in samples of the context
 * @property {boolean} ended
 */

export class AudioPath {
  /** @param {AudioPathHandlers} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    /** @type {Player | null} null: samples go to the contexts' `audio` events only */
    this.player = null;
    /** @type {Map<number, Stream>} by track: a number that is never reused; the server's numbers are reused in a new session */
    this.tracks = new Map();
    /** @type {Map<number, Stream>} by the context number in this session's audio frames */
    this.numbers = new Map();
    this.nextTrack = 1;
  }

  /** Start playing. @param {import('./player.js').PlayerOptions} options @throws {AudioUnsupported} */
  async startPlayer(options) {
    this.player = await Player.create(options);
    this.player.addEventListener('audible', ({ detail }) => {
      const stream = this.tracks.get(detail.number);
      if (stream) stream.context.timing.audibleAt ??= detail.at;
    });
    this.player.addEventListener('finished', ({ detail }) => {
      const stream = this.tracks.get(detail.number);
      if (stream) this.#finish(stream.context);
    });
    this.acknowledging = setInterval(() => this.#acknowledge(), ACKNOWLEDGE_EVERY_MS);
  }

  /** Start a new session, with new context numbers. Received audio of the old session is played to its end. */
  renumber() {
    for (const { decoder, ended } of this.numbers.values()) if (!ended) decoder.flush().then(() => decoder.close());
    this.numbers.clear();
  }

  /** @param {number} number in an audio frame */
  contextOf(number) {
    return this.numbers.get(number)?.context;
  }

  /** @param {SpeechContext} context @param {import('./protocol.js').AudioFormat} format */
  open(context, format) {
    if (context.silenced) return;
    context.track ??= this.nextTrack++; // a context that continues in a new session keeps its track
    const base = this.tracks.get(context.track)?.received ?? 0;
    const deliver = (samples, position) => {
      context.decoded(samples, base + position, format.sample_rate);
      this.player?.push(context.track, samples, base + position);
    };
    const decoder = createDecoder(format, deliver, (error) => {
      error.contextId = context.contextId;
      this.handlers.error(error);
    });
    const stream = { context, decoder, format, base, received: base, ended: false };
    this.tracks.set(context.track, stream);
    this.numbers.set(context.number, stream);
  }

  /** @param {import('./protocol.js').AudioPacket} packet */
  decode({ number, payload, pts }) {
    const stream = this.numbers.get(number);
    if (!stream || stream.ended || stream.context.silenced) return;
    stream.received = stream.base + pts + (stream.format.frame_ms * stream.format.sample_rate) / 1000;
    stream.decoder.decode(payload, pts);
  }

  /** @param {SpeechContext} context @returns {number} received audio, ms */
  receivedMs(context) {
    const stream = this.tracks.get(context.track);
    return stream ? (stream.received * 1000) / stream.format.sample_rate : 0;
  }

  /** @param {SpeechContext} context @returns {number} playback position, ms */
  heardMs(context) {
    return this.player ? this.player.heardMs(context.track) : context.toldMs;
  }

  /** Position that the player has reached; what is before it will be heard. @param {SpeechContext} context @returns {number} ms */
  playedMs(context) {
    return this.player && context.track !== null ? this.player.playedMs(context.track) : context.toldMs;
  }

  /** @param {SpeechContext} context @param {number} ms where it stops */
  hold(context, ms) {
    if (context.track !== null) this.player?.hold(context.track, ms);
  }

  /** @param {SpeechContext} context @param {number} ms where it goes on */
  release(context, ms) {
    if (context.track !== null) this.player?.release(context.track, ms);
  }

  /** End a context: no more packets follow; received audio is still played. @param {SpeechContext} context */
  async end(context) {
    const stream = this.tracks.get(context.track);
    if (!stream) return this.#finish(context);
    stream.ended = true;
    await stream.decoder.flush();
    stream.decoder.close();
    if (!this.player) this.#finish(context);
    else if (!context.silenced) this.player.end(context.track);
    return undefined;
  }

  /** Drop a context: no more of it is decoded or played. @param {SpeechContext} context */
  async silence(context) {
    context.silenced = true;
    const stream = this.tracks.get(context.track);
    stream?.decoder.close();
    if (stream && this.player) await this.player.clear(context.track);
    else this.#finish(context);
  }

  /** Forget a context of which no packet comes any more. @param {SpeechContext} context */
  forget(context) {
    if (this.contextOf(context.number) === context) this.numbers.delete(context.number);
  }

  /** Stop playing; nothing of any context is heard after it. */
  async close() {
    clearInterval(this.acknowledging);
    const streams = [...this.tracks.values()];
    for (const { context, decoder } of streams) {
      context.finalHeardMs ??= context.heardMs;
      decoder.close();
    }
    await this.player?.close();
    for (const { context } of streams) this.#finish(context);
  }

  #finish(context) {
    context.heardToTheEnd();
    if (context.state === 'done' && !context.silenced) context.acknowledge(context.heardMs);
    this.tracks.delete(context.track);
  }

  /** Report positions, also while they do not change: the server detects a pause by an unchanged position. */
  #acknowledge() {
    for (const { context } of this.tracks.values()) if (!context.silenced) context.acknowledge(context.heardMs);
  }
}
