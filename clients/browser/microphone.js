/** The visitor's microphone. Its audio stays in the page: nothing is stored or sent here. */

import { MicrophoneUnavailable } from './errors.js';

/**
 * Events: `speech` (true: speech detected, or false), `level` (dB of full scale), `activity` (an `Activity` for `HoldPolicy`, every
 * 60 ms), `lost` (device removed).
 */
export class Microphone extends EventTarget {
  /**
   * Asks the visitor.
   * @param {MediaTrackConstraints} [audio] by default so that a loudspeaker does not interrupt itself
   * @returns {Promise<Microphone>} @throws {MicrophoneUnavailable}
   */
  static async open(audio = { echoCancellation: true, noiseSuppression: true }) {
    if (!navigator.mediaDevices?.getUserMedia) throw MicrophoneUnavailable.because('NotSupportedError');
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio });
    } catch (error) {
      throw MicrophoneUnavailable.because(error.name);
    }
    const context = new AudioContext({ latencyHint: 'interactive' });
    try {
      await context.audioWorklet.addModule(new URL('./microphone-worklet.js', import.meta.url));
      return new Microphone(stream, context);
    } catch (error) {
      for (const track of stream.getTracks()) track.stop();
      await context.close();
      throw error;
    }
  }

  /** Use `Microphone.open`. @param {MediaStream} stream @param {AudioContext} context */
  constructor(stream, context) {
    super();
    this.stream = stream;
    this.context = context;
    this.node = new AudioWorkletNode(context, 'realtime-tts-microphone', { numberOfOutputs: 0, channelCount: 1, channelCountMode: 'explicit' });
    this.node.port.onmessage = ({ data }) => this.#receive(data);
    context.createMediaStreamSource(stream).connect(this.node);
    stream.getAudioTracks()[0].onended = () => this.dispatchEvent(new CustomEvent('lost'));
  }

  async close() {
    this.node.port.onmessage = null;
    for (const track of this.stream.getTracks()) track.stop();
    await this.context.close();
  }

  #receive(data) {
    if (data.type === 'speech') this.dispatchEvent(new CustomEvent('speech', { detail: { speaking: data.speaking, at: data.at } }));
    else this.dispatchEvent(new CustomEvent('level', { detail: data.levelDb }));
    this.dispatchEvent(new CustomEvent('activity', { detail: data.activity }));
  }
}
