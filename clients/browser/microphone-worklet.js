/**
 * The audio thread of the microphone: samples go into the detector and nowhere else.
 *
 * Out: {type: 'level', levelDb, activity} about every 60 ms, {type: 'speech', speaking, at, activity} with the number of
 * samples heard before
 */

import { SpeechDetector } from './speech-detector.js';

const REPORT_S = 0.06;

class MicrophoneProcessor extends AudioWorkletProcessor {
  constructor() {
    super();
    this.detector = new SpeechDetector({ sampleRate });
    this.numSamples = 0;
    this.nextReport = 0;
  }

  process([[samples]]) {
    if (!samples) return true; // the track gives nothing yet
    this.numSamples += samples.length;
    for (const change of this.detector.feed(samples)) {
      this.port.postMessage({ type: 'speech', speaking: change === 'started', at: this.numSamples, activity: this.detector.activity });
    }
    if (currentTime >= this.nextReport) {
      this.nextReport = currentTime + REPORT_S;
      this.port.postMessage({ type: 'level', levelDb: this.detector.levelDb, activity: this.detector.activity });
    }
    return true;
  }
}

registerProcessor('realtime-tts-microphone', MicrophoneProcessor);
