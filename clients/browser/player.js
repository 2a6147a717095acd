/** Player of contexts through an AudioWorklet, with the playback position of each. */

import { AudioUnsupported } from './errors.js';
import { PlaybackClock } from './playback-clock.js';

const CLEAR_TIMEOUT_MS = 60; // a suspended AudioContext may not answer; barge-in does not wait for it
const FORGET_AFTER_MS = 60_000;

/**
 * @typedef {object} PlayerOptions
 * @property {number} sampleRate Hz; that of the samples pushed
 * @property {{minDepthMs?: number, maxDepthMs?: number, fadeMs?: number}} [jitter]
 * @property {(context: AudioContext) => AudioNode} [destination] where to connect; default: the loudspeaker
 * @property {(run: {number: number, position: number, samples: Float32Array, time: number}) => void} [tap]
 *   called with every sample that is played (tests, recording)
 */

export class Player extends EventTarget {
  /** @throws {AudioUnsupported} this page cannot play audio in pieces */
  static requireSupport() {
    if ('audioWorklet' in (globalThis.AudioContext?.prototype ?? {})) return;
    const why = globalThis.isSecureContext === false ? 'Browsers allow it on https:// and localhost only.' : '';
    throw new AudioUnsupported(`This page cannot play streamed audio (no AudioWorklet). ${why}`.trim());
  }

  /** @param {PlayerOptions} options @returns {Promise<Player>} @throws {AudioUnsupported} */
  static async create(options) {
    Player.requireSupport();
    const context = new AudioContext({ sampleRate: options.sampleRate, latencyHint: 'interactive' });
    try {
      await context.audioWorklet.addModule(new URL('./player-worklet.js', import.meta.url));
      return new Player(context, options);
    } catch (error) {
      await context.close(); // a page may have a few only
      throw error;
    }
  }

  /** Use `Player.create`. @param {AudioContext} context @param {PlayerOptions} options */
  constructor(context, { sampleRate, jitter = {}, destination, tap }) {
    super();
    this.context = context;
    this.sampleRate = sampleRate;
    this.tap = tap;
    this.underruns = 0;
    this.targetMs = jitter.minDepthMs ?? 60;
    this.bufferedMs = 0;
    /** @type {Map<number, {clock: PlaybackClock, finished: boolean}>} */
    this.tracks = new Map();
    /** @type {Map<number, () => void>} */
    this.clearing = new Map();
    this.nextClearId = 1;
    this.node = new AudioWorkletNode(context, 'realtime-tts-player', {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: { jitter, tap: tap !== undefined },
    });
    this.node.port.onmessage = ({ data }) => this.#receive(data);
    this.node.connect(destination ? destination(context) : context.destination);
  }

  /** Call it from a click or key press: browsers start audio on a user's gesture only. */
  async resume() {
    if (this.context.state !== 'running') await this.context.resume();
  }

  /** @param {number} number @param {Float32Array} samples given away @param {number} position first sample's place */
  push(number, samples, position) {
    this.#track(number);
    this.node.port.postMessage({ type: 'push', number, samples, position }, [samples.buffer]);
  }

  /** No more samples of this context follow. @param {number} number */
  end(number) {
    this.#track(number);
    this.node.port.postMessage({ type: 'end', number });
  }

  /**
   * Drop a context (or all): it fades out within `fadeMs` and nothing of it is played later.
   * @param {number | null} [number]
   * @returns {Promise<void>} when the audio thread has done it; `heardMs` is exact from then on
   */
  clear(number = null) {
    const id = this.nextClearId++;
    return new Promise((resolve) => {
      this.clearing.set(id, resolve);
      setTimeout(() => this.#cleared(id), CLEAR_TIMEOUT_MS);
      this.node.port.postMessage({ type: 'clear', number, id });
    });
  }

  /** Stop a context at a position (at once if that is past), until `release`. @param {number} number @param {number} ms */
  hold(number, ms) {
    this.node.port.postMessage({ type: 'hold', number, position: this.#samples(ms) });
  }

  /** Let a held context go on at a position. @param {number} number @param {number} ms */
  release(number, ms) {
    this.node.port.postMessage({ type: 'release', number, position: this.#samples(ms) });
  }

  /** Playback position at the listener's ear, ms. @param {number} number */
  heardMs(number) {
    const track = this.tracks.get(number);
    if (!track) return 0;
    return (track.clock.at(this.context.currentTime - this.outputLatencyS) * 1000) / this.sampleRate;
  }

  /** Playback position at the worklet's output. @param {number} number */
  playedMs(number) {
    return ((this.tracks.get(number)?.clock.latest ?? 0) * 1000) / this.sampleRate;
  }

  /** From the worklet's output to the ear, seconds, as far as the browser knows it. */
  get outputLatencyS() {
    return this.context.outputLatency || this.context.baseLatency || 0;
  }

  async close() {
    this.node.port.onmessage = null;
    this.node.disconnect();
    if (this.context.state !== 'closed') await this.context.close();
  }

  #samples(ms) {
    return Math.round((ms * this.sampleRate) / 1000);
  }

  #track(number) {
    let track = this.tracks.get(number);
    if (!track) this.tracks.set(number, (track = { clock: new PlaybackClock(), finished: false }));
    return track;
  }

  #receive(data) {
    if (data.type === 'report') this.#report(data);
    else if (data.type === 'cleared') this.#cleared(data.id);
    else if (data.type === 'tap') for (const run of data.runs) this.tap(run);
    else if (data.type === 'audible') this.#emit('audible', { number: data.number, at: this.#performanceTime(data.time) });
  }

  #report({ time, contexts, finished, underruns, targetDepth }) {
    const toMs = 1000 / this.sampleRate;
    this.underruns = underruns;
    this.targetMs = targetDepth * toMs;
    this.bufferedMs = contexts.reduce((sum, each) => sum + each.buffered, 0) * toMs;
    for (const { number, position } of [...contexts, ...finished]) this.#track(number).clock.add(time, position);
    for (const { number } of finished) this.#finish(number);
  }

  /** Played out; the listener hears the end of it `outputLatency` later. */
  #finish(number) {
    this.#track(number).finished = true;
    setTimeout(() => this.#emit('finished', { number }), this.outputLatencyS * 1000 + 5);
    setTimeout(() => this.tracks.delete(number), FORGET_AFTER_MS);
  }

  #cleared(id) {
    this.clearing.get(id)?.();
    this.clearing.delete(id);
  }

  /** When what was played at `time` (audio clock, s) reaches the ear, on the clock of `performance.now()` (ms). */
  #performanceTime(time) {
    return performance.now() + (time - this.context.currentTime + this.outputLatencyS) * 1000;
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
