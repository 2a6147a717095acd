/** Loudness of the speech as it arrives, and a playhead over it. Drawn in the element's own CSS colours. */

const CELL_MS = 10;
const RMS_MS = 50; // at least: less would show single periods of a low voice
const [QUIETEST_DB, LOUDEST_DB] = [-46, -10];
const LIVE_SPAN_MS = 12_000; // while speaking
const MIN_SPAN_MS = 3_000; // afterwards; shorter speech does not stretch over the whole width
const PLAYHEAD_AT = 2 / 3; // of the width, once the speech is longer than that
const [BAR_WIDTH, BAR_STEP] = [3, 5];

/** Energy of a context's samples in cells of 10 ms. */
export class Loudness {
  /** @type {{sum: number, count: number}[]} */
  #cells = [];
  madeMs = 0;

  /** @param {Float32Array} samples @param {number} position @param {number} sampleRate */
  add(samples, position, sampleRate) {
    const perCell = (CELL_MS * sampleRate) / 1000;
    for (let i = 0; i < samples.length; i += 1) {
      const cell = (this.#cells[Math.floor((position + i) / perCell)] ??= { sum: 0, count: 0 });
      cell.sum += samples[i] * samples[i];
      cell.count += 1;
    }
    this.madeMs = Math.max(this.madeMs, ((position + samples.length) * 1000) / sampleRate);
  }

  /** @param {number} fromMs @param {number} toMs @returns {number} 0…1: the RMS level there, linear in decibels */
  level(fromMs, toMs) {
    const margin = Math.max(0, RMS_MS - (toMs - fromMs)) / 2;
    let [sum, count] = [0, 0];
    for (let k = Math.max(0, Math.floor((fromMs - margin) / CELL_MS)); k * CELL_MS < toMs + margin; k += 1) {
      sum += this.#cells[k]?.sum ?? 0;
      count += this.#cells[k]?.count ?? 0;
    }
    const db = 10 * Math.log10(sum / Math.max(1, count) + 1e-12);
    return Math.min(1, Math.max(0, (db - QUIETEST_DB) / (LOUDEST_DB - QUIETEST_DB)));
  }
}

export class Waveform {
  heardMs = 0;
  /** Playback position of an interruption. @type {number | null} */
  cutMs = null;
  /** True while the speech arrives: a window slides over it. Otherwise the whole is drawn. */
  live = false;
  /** @type {Map<number, number>} */
  #levels = new Map();

  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.draw2d = canvas.getContext('2d');
    this.loudness = new Loudness();
    new ResizeObserver(() => this.#resize()).observe(canvas);
  }

  /** @param {Loudness} loudness @param {{live?: boolean, cutMs?: number | null, heardMs?: number}} [options] */
  show(loudness, { live = false, cutMs = null, heardMs = 0 } = {}) {
    Object.assign(this, { loudness, live, cutMs, heardMs });
    this.#levels.clear();
    this.draw();
  }

  /** Width of the drawing, ms. */
  get spanMs() {
    return this.live ? LIVE_SPAN_MS : Math.max(MIN_SPAN_MS, this.loudness.madeMs);
  }

  draw() {
    const { draw2d: pen, loudness, spanMs } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const [width, height] = [this.canvas.width / ratio, this.canvas.height / ratio];
    const style = getComputedStyle(this.canvas);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const startMs = this.live ? Math.max(0, this.heardMs - spanMs * PLAYHEAD_AT) : 0;
    const toX = (ms) => ((ms - startMs) / spanMs) * width;
    const barMs = (spanMs / width) * BAR_STEP;
    let colour = '';
    pen.beginPath();
    for (let bar = Math.floor(startMs / barMs); toX(bar * barMs) < width; bar += 1) {
      const [fromMs, toMs] = [bar * barMs, (bar + 1) * barMs];
      const made = fromMs < loudness.madeMs;
      const size = made ? Math.max(3, this.#level(bar, fromMs, toMs) * (height - 8)) : 2;
      if (colour !== barColour(made, fromMs, this)) {
        pen.fill(); // bars of one colour are neighbours: one path for all of them
        pen.beginPath();
        colour = barColour(made, fromMs, this);
        pen.fillStyle = style.getPropertyValue(colour);
      }
      pen.roundRect(toX(fromMs), (height - size) / 2, BAR_WIDTH, size, 1.5);
    }
    pen.fill();
    if (loudness.madeMs > 0) this.#playhead(pen, toX(this.heardMs), width, height, style.getPropertyValue('--playhead'));
  }

  /** Bars that are complete are not computed again in the next frame. */
  #level(bar, fromMs, toMs) {
    if (this.#levels.has(bar)) return this.#levels.get(bar);
    const level = this.loudness.level(fromMs, toMs);
    if (toMs + RMS_MS < this.loudness.madeMs) this.#levels.set(bar, level);
    return level;
  }

  #playhead(pen, x, width, height, colour) {
    pen.fillStyle = colour;
    pen.fillRect(Math.min(Math.max(0, x - 1), width - 2), 0, 2, height);
    pen.beginPath();
    pen.arc(Math.min(Math.max(4, x), width - 4), 4, 4, 0, 2 * Math.PI);
    pen.fill();
  }

  #resize() {
    this.#levels.clear();
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
