/** The last ten takes as a list: replay, download, the same settings again. */

import { button, make } from './elements.js';
import { totalOf } from './latency.js';
import { settingsOf } from './settings.js';

const MAX_TAKES = 10;
const EXCERPT_CHARS = 120;

export class Takes {
  /**
   * @param {HTMLElement} section with a list
   * @param {{replay: (take: Take) => void, download: (take: Take, format: string, pressed: HTMLElement) => void, again: (take: Take) => void}} actions
   */
  constructor(section, actions) {
    this.section = section;
    this.list = section.querySelector('ol');
    this.actions = actions;
    /** @type {import('./take.js').Take[]} */
    this.all = [];
  }

  /** @param {import('./take.js').Take} take */
  add(take) {
    this.all = [take, ...this.all].slice(0, MAX_TAKES);
    const excerpt = take.text.slice(0, EXCERPT_CHARS);
    const about = [
      take.voiceName,
      `${(take.audioMs / 1000).toFixed(1)} s`,
      take.stages && `after ${Math.round(totalOf(take.stages))} ms`,
      take.origin,
      take.seed !== undefined && `seed ${take.seed}`,
      take.mended > 0 && `${take.mended} ${take.mended === 1 ? 'slip' : 'slips'} mended`,
    ];
    const { replay, download, again } = this.actions;
    const words = make('p', { className: 'excerpt', textContent: excerpt });
    this.list.prepend(make('li', {},
      button({ icon: 'play', label: `Replay: ${excerpt}` }, () => replay(take)),
      make('div', {}, words, make('p', { className: 'about', title: 'Voice, length, time to first audio, seed. Slips are skipped or repeated words that the server found and said again before they were sent.', textContent: about.filter(Boolean).join(' · ') })),
      button({ text: 'WAV', label: `Download WAV: ${excerpt}` }, ({ currentTarget }) => download(take, 'wav', currentTarget)),
      button({ text: 'MP3', label: `Download MP3: ${excerpt}` }, ({ currentTarget }) => download(take, 'mp3', currentTarget)),
      button({ text: 'Same settings', label: `Same settings: ${excerpt}` }, () => again(take)),
    ));
    this.list.children[MAX_TAKES]?.remove();
  }

  /** Return the last whole take with the same text, voice, seed and settings. @param {Parameters<typeof settingsOf>[0]} wanted */
  find(wanted) {
    const sorted = (take) => [...settingsOf(take)].map(String).sort().join('\n');
    return this.all.find((take) => take.isWhole && sorted(take) === sorted(wanted));
  }
}
