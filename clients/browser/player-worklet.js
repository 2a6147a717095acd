/**
 * The audio thread: a jitter buffer behind a message port. Everything that can be reasoned about without a browser is
 * in jitter-buffer.js.
 *
 * In:  {type: 'push', number, samples, position} · {type: 'end', number} · {type: 'clear', number | null, id} ·
 *      {type: 'hold', number, position} · {type: 'release', number, position}
 * Out: {type: 'report', time, contexts, finished, underruns, targetDepth} about every 20 ms while something happens,
 *      {type: 'cleared', id}, {type: 'audible', number, time}, and with `tap`, before each report,
 *      {type: 'tap', runs: {time, number, position, samples}[]}
 */

import { JitterBuffer } from './jitter-buffer.js';

const REPORT_S = 0.02;
const AUDIBLE_LEVEL = 0.003; // −50 dBFS: speech has begun, not just the noise floor before it

class PlayerProcessor extends AudioWorkletProcessor {
  constructor({ processorOptions }) {
    super();
    this.buffer = new JitterBuffer({ sampleRate, ...processorOptions.jitter });
    /** Played since the last report; null if no one listens. @type {object[] | null} */
    this.tapped = processorOptions.tap === true ? [] : null;
    this.audible = new Set();
    this.nextReport = 0;
    this.wasActive = false;
    this.port.onmessage = ({ data }) => this.receive(data);
  }

  receive({ type, number, samples, position, id }) {
    if (type === 'push') this.buffer.push(number, samples, position);
    else if (type === 'end') this.buffer.end(number);
    else if (type === 'hold') this.buffer.hold(number, position);
    else if (type === 'release') this.buffer.release(number, position);
    else if (type === 'clear') {
      this.buffer.clear(number);
      this.report(currentTime);
      this.port.postMessage({ type: 'cleared', id });
    }
  }

  process(_inputs, [channels]) {
    const output = channels[0];
    const runs = this.buffer.pull(output);
    for (const run of runs) this.observe(run, output);
    for (const channel of channels.slice(1)) channel.set(output);
    const active = this.buffer.contexts.size > 0 || runs.length > 0;
    const end = currentTime + output.length / sampleRate;
    const finished = this.buffer.finished.length > 0; // also of a context that never had a sample
    const due = finished || ((active || this.wasActive) && (end >= this.nextReport || !active));
    if (due && this.buffer.tail === null) this.report(end); // what fades out counts as played already
    this.wasActive = active;
    return true;
  }

  observe({ number, offset, length, position }, output) {
    const samples = output.subarray(offset, offset + length);
    const time = currentTime + offset / sampleRate;
    if (!this.audible.has(number) && samples.some((sample) => Math.abs(sample) > AUDIBLE_LEVEL)) {
      this.audible.add(number);
      this.port.postMessage({ type: 'audible', number, time });
    }
    this.tapped?.push({ time, number, position, samples: samples.slice() });
  }

  report(time) {
    this.nextReport = time + REPORT_S;
    const { underruns, targetDepth } = this.buffer;
    const contexts = this.buffer.report();
    const finished = this.buffer.takeFinished();
    for (const { number } of finished) this.audible.delete(number);
    if (this.tapped?.length > 0) this.port.postMessage({ type: 'tap', runs: this.tapped.splice(0) });
    this.port.postMessage({ type: 'report', time, contexts, finished, underruns, targetDepth });
  }
}

registerProcessor('realtime-tts-player', PlayerProcessor);
