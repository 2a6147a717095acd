/** Recorder of a voice: the microphone without call processing, in the browser's own format. */

import { MicrophoneUnavailable } from './errors.js';
import { Microphone } from './microphone.js';

export const MAX_S = 60;
const BITS_PER_S = 128_000;
const UNTOUCHED = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };

/** Events: `level` (dB of full scale), `time` (seconds so far), `ended` (by itself: it is long enough, or the microphone is gone). */
export class VoiceRecorder extends EventTarget {
  /** Asks the visitor. @returns {Promise<VoiceRecorder>} recording @throws {import('./errors.js').MicrophoneUnavailable} */
  static async start() {
    const microphone = await Microphone.open(UNTOUCHED);
    try {
      return new VoiceRecorder(microphone);
    } catch (error) { // no MediaRecorder here: the microphone must not stay open
      await microphone.close();
      throw MicrophoneUnavailable.because(error.name);
    }
  }

  /** Use `VoiceRecorder.start`. @param {Microphone} microphone */
  constructor(microphone) {
    super();
    this.microphone = microphone;
    this.recorder = new MediaRecorder(microphone.stream, { audioBitsPerSecond: BITS_PER_S });
    const parts = [];
    this.recorder.ondataavailable = ({ data }) => parts.push(data);
    this.stopped = new Promise((resolve) => (this.recorder.onstop = () => resolve(new Blob(parts, { type: this.recorder.mimeType }))));
    const since = performance.now();
    microphone.addEventListener('lost', () => this.#end());
    microphone.addEventListener('level', ({ detail }) => {
      const seconds = (performance.now() - since) / 1000;
      this.dispatchEvent(new CustomEvent('level', { detail }));
      this.dispatchEvent(new CustomEvent('time', { detail: seconds }));
      if (seconds >= MAX_S - 0.5) this.#end();
    });
    this.recorder.start();
  }

  /** @returns {Promise<Blob>} what was recorded; the microphone is free again */
  async stop() {
    if (this.recorder.state !== 'inactive') this.recorder.stop();
    const recording = await this.stopped;
    await this.microphone.close();
    return recording;
  }

  #end() {
    if (this.recorder.state === 'inactive') return;
    this.recorder.stop();
    this.dispatchEvent(new Event('ended'));
  }
}
