/** One turn of speech with its samples, words and settings: what replay, download and "same settings" need. */

import { Loudness } from './waveform.js';

const WAV_HEADER_BYTES = 44;

export class Take {
  /** @type {{position: number, pcm: Int16Array}[]} */
  #chunks = [];
  /** @type {Blob | null} */
  #wav = null;

  /** @param {{voice?: string, voiceName: string, settings: URLSearchParams, text?: string}} made `settings`: the form's values */
  constructor({ voice, voiceName, settings, text = '' }) {
    Object.assign(this, { voice, voiceName, settings, text, words: [], sampleRate: 48_000 });
    /** The seed that the server used. @type {number | undefined} */
    this.seed = undefined;
    /** Of the time to first audio. @type {import('./latency.js').Stages | null} */
    this.stages = null;
    /** How its beginning was made, if not as usual. */
    this.origin = '';
    /** Number of faults that the server mended before they were heard. */
    this.mended = 0;
    /** Playback position of an interruption. @type {number | null} */
    this.cutMs = null;
    /** Whether all of the speech has arrived. */
    this.isWhole = false;
    /** Displayed figures, by the id of their element. @type {Record<string, string>} */
    this.figures = {};
    this.loudness = new Loudness();
  }

  /** @param {{samples: Float32Array, position: number, sampleRate: number}} decoded */
  add({ samples, position, sampleRate }) {
    this.sampleRate = sampleRate;
    this.#wav = null;
    this.#chunks.push({ position, pcm: Int16Array.from(samples, (sample) => Math.max(-32768, Math.min(32767, Math.round(sample * 32768)))) });
    this.loudness.add(samples, position, sampleRate);
  }

  /** Add the whole speech. @param {ArrayBuffer} pcm 16 bit, mono @param {number} sampleRate Hz */
  addPcm(pcm, sampleRate) {
    this.add({ samples: Float32Array.from(new Int16Array(pcm), (sample) => sample / 32768), position: 0, sampleRate });
  }

  get audioMs() {
    return this.loudness.madeMs;
  }

  /** The speech as a WAV file, 16 bit mono at the session's rate. */
  get wav() {
    this.#wav ??= new Blob([wavHeader(this.#numSamples, this.sampleRate), this.#pcm()], { type: 'audio/wav' });
    return this.#wav;
  }

  get #numSamples() {
    return this.#chunks.reduce((end, { position, pcm }) => Math.max(end, position + pcm.length), 0);
  }

  #pcm() {
    const all = new Int16Array(this.#numSamples); // little-endian, like every device with a browser
    for (const { position, pcm } of this.#chunks) all.set(pcm, position);
    return all;
  }

  /** @param {string} extension @returns {string} a file name from the first words and the seed */
  fileName(extension) {
    const words = this.text.toLowerCase().match(/[\p{L}\p{N}]+/gu)?.slice(0, 5) ?? ['speech'];
    return `${[...words, this.seed].filter((part) => part !== undefined).join('-')}.${extension}`;
  }
}

/** @param {number} numSamples @param {number} sampleRate Hz @returns {ArrayBuffer} of a 16-bit mono file */
function wavHeader(numSamples, sampleRate) {
  const view = new DataView(new ArrayBuffer(WAV_HEADER_BYTES));
  const text = (offset, word) => [...word].forEach((letter, k) => view.setUint8(offset + k, letter.charCodeAt(0)));
  text(0, 'RIFF');
  view.setUint32(4, WAV_HEADER_BYTES - 8 + numSamples * 2, true);
  text(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // mono
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, sampleRate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, 'data');
  view.setUint32(40, numSamples * 2, true);
  return view.buffer;
}
