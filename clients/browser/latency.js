/** Time to first audio: its stages as a bar, and those of the last takes as dots. */

import { make, setText } from './elements.js';

const MAX_PAST = 20;
const NAMES = { text: 'waiting for text', server: 'server', network: 'network', buffer: 'jitter buffer', device: 'breath and device' };

/**
 * @typedef {{text: number, server: number, network: number, buffer: number, device: number}} Stages durations, ms
 * @param {{askedAt?: number, sentAt: number, decodedAt: number, audibleAt: number | null}} timing
 * @param {number | null | undefined} serverMs known when the server has finished; until then the network's part counts as the server's
 * @param {number} bufferMs target of the jitter buffer
 * @returns {Stages | null} null before the first audio
 */
export function stagesOf({ askedAt, sentAt, decodedAt, audibleAt }, serverMs, bufferMs) {
  if (audibleAt === null) return null;
  const [arrived, rest] = [decodedAt - sentAt, audibleAt - decodedAt];
  const [server, buffer] = [Math.min(serverMs ?? arrived, arrived), Math.min(bufferMs, rest)];
  return { text: sentAt - (askedAt ?? sentAt), server, network: arrived - server, buffer, device: rest - buffer };
}

/** @param {Stages} stages @returns {number} ms */
export const totalOf = (stages) => Object.values(stages).reduce((sum, ms) => sum + ms, 0);

/** @param {number[]} values @returns {number} NaN: there are none */
export function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.floor(sorted.length / 2)]) / 2;
}

const milliseconds = (ms) => `${Math.round(ms)} ms`;

export class Latency {
  /** @type {number[]} of the last takes */
  #past = [];
  /** Times of the server for speech that was not made ahead. @type {number[]} */
  #server = [];

  /** @param {HTMLElement} element with a total, a bar, an origin, a figure by stage, and dots with their median */
  constructor(element) {
    this.element = element;
    this.bar = element.querySelector('.bar');
    this.bar.append(...Object.keys(NAMES).map((stage) => make('i', { className: stage })));
  }

  /** @param {Stages | null} stages @param {string} [origin] how the beginning was made, if not as usual */
  show(stages, origin = '') {
    setText(this.element.querySelector('b'), stages ? milliseconds(totalOf(stages)) : '–');
    setText(this.element.querySelector('.origin'), origin);
    const words = stages ? Object.entries(stages).filter(([, ms]) => ms >= 0.5).map(([stage, ms]) => `${NAMES[stage]} ${milliseconds(ms)}`) : [];
    const label = words.join(', ') || 'Nothing yet';
    if (this.bar.getAttribute('aria-label') === label) return;
    this.bar.setAttribute('aria-label', label);
    for (const part of this.bar.children) {
      const ms = stages?.[part.className];
      part.style.flexGrow = ms ?? 0;
      setText(this.element.querySelector(`[data-stage="${part.className}"] dd`), ms === undefined ? '–' : milliseconds(ms));
    }
  }

  /** Add a take to the past ones. @param {Stages} stages @param {string} origin */
  add(stages, origin) {
    this.#past = [...this.#past, totalOf(stages)].slice(-MAX_PAST);
    if (!origin) this.#server = [...this.#server, stages.server].slice(-MAX_PAST);
    const longest = Math.max(...this.#past);
    const words = `Last ${this.#past.length}: median ${milliseconds(median(this.#past))}, longest ${milliseconds(longest)}`;
    const past = this.element.querySelector('.past');
    past.hidden = this.#past.length < 2;
    past.querySelector('span').textContent = words;
    past.querySelector('.dots').replaceChildren(...this.#past.map((ms) => {
      const dot = make('i', {});
      dot.style.left = `${(100 * ms) / longest}%`;
      return dot;
    }));
  }

  /** Median time of the server for speech that was not made ahead, ms; 0 while none is known. */
  get usualServerMs() {
    return median(this.#server) || 0;
  }
}
