/** Peaks of the audio as it arrives, and a playhead over them. Drawn in the element's own CSS colours. */

const PEAK_MS = 25;
const MIN_SPAN_MS = 6_000; // short speech does not stretch over the whole width

export class Waveform {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.draw2d = canvas.getContext('2d');
    new ResizeObserver(() => this.#resize()).observe(canvas);
    this.clear();
  }

  clear() {
    /** @type {number[]} */
    this.peaks = [];
    this.madeMs = 0;
    this.heardMs = 0;
    this.cutMs = null;
    this.draw();
  }

  /** @param {Float32Array} samples @param {number} position @param {number} sampleRate */
  add(samples, position, sampleRate) {
    const perPeak = (PEAK_MS * sampleRate) / 1000;
    for (let i = 0; i < samples.length; i += 1) {
      const peak = Math.floor((position + i) / perPeak);
      const level = Math.abs(samples[i]);
      if (!(this.peaks[peak] >= level)) this.peaks[peak] = level;
    }
    this.madeMs = Math.max(this.madeMs, ((position + samples.length) * 1000) / sampleRate);
  }

  draw() {
    const { canvas, draw2d: pen, peaks } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const [width, height] = [canvas.width / ratio, canvas.height / ratio];
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const spanMs = Math.max(MIN_SPAN_MS, this.madeMs);
    const [barWidth, gap] = [3, 2];
    const numBars = Math.floor(width / (barWidth + gap));
    for (let bar = 0; bar < numBars; bar += 1) {
      const [fromMs, toMs] = [(bar / numBars) * spanMs, ((bar + 1) / numBars) * spanMs];
      const made = fromMs < this.madeMs;
      const level = made ? maximum(peaks, fromMs / PEAK_MS, toMs / PEAK_MS) : 0;
      // A square root shows quiet speech; a linear scale would show its loudest vowel only.
      const size = made ? Math.max(3, Math.sqrt(level) * (height - 8)) : 2;
      pen.fillStyle = colour(barColour(made, fromMs, this));
      pen.beginPath();
      pen.roundRect(bar * (barWidth + gap), (height - size) / 2, barWidth, size, 1.5);
      pen.fill();
    }
    if (this.madeMs > 0) this.#playhead(pen, (this.heardMs / spanMs) * width, height, colour('--playhead'));
  }

  #playhead(pen, x, height, colour) {
    pen.fillStyle = colour;
    pen.fillRect(Math.max(0, x - 1), 0, 2, height);
    pen.beginPath();
    pen.arc(Math.max(4, x), 4, 4, 0, 2 * Math.PI);
    pen.fill();
  }

  #resize() {
    const ratio = globalThis.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(this.canvas.clientHeight * ratio);
    this.draw();
  }
}

function barColour(made, fromMs, { heardMs, cutMs }) {
  if (!made) return '--wave-empty';
  if (fromMs < heardMs) return '--wave-heard';
  return cutMs === null ? '--wave-made' : '--wave-lost';
}

function maximum(peaks, from, to) {
  let highest = 0;
  for (let i = Math.floor(from); i < to; i += 1) highest = Math.max(highest, peaks[i] ?? 0);
  return highest;
}
