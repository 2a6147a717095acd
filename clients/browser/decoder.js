/**
 * Packets in, float samples out. Opus goes through WebCodecs (raw packets, no container); PCM needs no decoder.
 * One decoder per context, so that nothing of one context can leak into the next.
 */

import { DecodeError } from './errors.js';

const OPUS_RATE_HZ = 48_000;
const FALLBACK_RATE_HZ = 24_000; // 384 kbit/s of PCM; a higher rate adds nothing audible to a voice
const US_PER_S = 1_000_000;

/**
 * @typedef {object} PacketDecoder
 * @property {(payload: Uint8Array, pts: number) => void} decode samples follow through `onSamples`, in order
 * @property {() => Promise<void>} flush resolves when everything decoded so far was delivered
 * @property {() => void} close nothing is delivered after it
 */
/** @typedef {(samples: Float32Array, position: number) => void} OnSamples */

/** Return whether this browser decodes raw mono Opus packets: not on insecure origins or in older browsers. */
export async function supportsOpus() {
  if (typeof globalThis.AudioDecoder !== 'function') return false;
  try {
    return (await AudioDecoder.isConfigSupported(opusConfig())).supported === true;
  } catch {
    return false;
  }
}

/**
 * The format to ask the server for.
 * @param {Partial<import('./protocol.js').AudioFormat> & {codec?: 'auto' | 'opus' | 'pcm_s16le'}} [wanted]
 * @returns {Promise<import('./protocol.js').AudioFormat>}
 */
export async function negotiateFormat({ codec = 'auto', ...rest } = {}) {
  const opus = codec !== 'pcm_s16le' && (await supportsOpus());
  if (opus) return { codec: 'opus', frame_ms: 20, ...rest, sample_rate: OPUS_RATE_HZ };
  const { bitrate: _, ...withoutBitrate } = rest;
  return { codec: 'pcm_s16le', sample_rate: FALLBACK_RATE_HZ, frame_ms: 20, ...withoutBitrate };
}

/**
 * @param {import('./protocol.js').AudioFormat} format as the server confirmed it
 * @param {OnSamples} onSamples
 * @param {(error: DecodeError) => void} onError
 * @returns {PacketDecoder}
 */
export function createDecoder(format, onSamples, onError) {
  if (format.codec === 'opus') return new OpusDecoder(onSamples, onError);
  return new PcmDecoder(onSamples, onError);
}

function opusConfig() {
  return { codec: 'opus', sampleRate: OPUS_RATE_HZ, numberOfChannels: 1 };
}

class OpusDecoder {
  constructor(onSamples, onError) {
    this.onSamples = onSamples;
    this.onError = onError;
    this.#open();
  }

  #open() {
    this.decoder = new AudioDecoder({
      output: (audio) => this.#deliver(audio),
      error: (error) => this.onError(new DecodeError(`Opus: ${error.message}`)),
    });
    this.decoder.configure(opusConfig());
  }

  decode(payload, pts) {
    // A refused packet closes a WebCodecs decoder for good; speech goes on with the next packet in a new one.
    if (this.decoder.state === 'closed') this.#open();
    const timestamp = Math.round((pts * US_PER_S) / OPUS_RATE_HZ);
    this.decoder.decode(new EncodedAudioChunk({ type: 'key', timestamp, data: payload }));
  }

  async flush() {
    if (this.decoder.state !== 'configured') return;
    await this.decoder.flush().catch(() => {}); // closed meanwhile, or an error that `onError` has already told
  }

  close() {
    this.onSamples = () => {};
    if (this.decoder.state !== 'closed') this.decoder.close();
  }

  #deliver(audio) {
    const samples = new Float32Array(audio.numberOfFrames);
    audio.copyTo(samples, { planeIndex: 0, format: 'f32-planar' });
    const position = Math.round((audio.timestamp * OPUS_RATE_HZ) / US_PER_S);
    audio.close();
    this.onSamples(samples, position);
  }
}

class PcmDecoder {
  constructor(onSamples, onError) {
    this.onSamples = onSamples;
    this.onError = onError;
  }

  decode(payload, pts) {
    if (payload.byteLength % 2 !== 0) {
      this.onError(new DecodeError(`PCM packet of ${payload.byteLength} bytes: half a sample`));
      return;
    }
    const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
    const samples = new Float32Array(payload.byteLength / 2);
    for (let i = 0; i < samples.length; i += 1) samples[i] = view.getInt16(2 * i, true) / 32768;
    this.onSamples(samples, pts);
  }

  async flush() {}

  close() {
    this.onSamples = () => {};
  }
}
