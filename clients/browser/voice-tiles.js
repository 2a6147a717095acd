/** The voices as tiles: which one speaks, which one is pinned beside it, how each sounds. */

import { button, make, setIcon } from './elements.js';

/** @typedef {{id: string, name: string, kind?: string, description?: string, language?: string, default?: boolean,
 *   instructions?: string | null, consent?: {given_by: string, scope: string, at: number} | null}} Voice */

const SEARCH_FROM = 8; // voices
const KINDS = { cloned: 'your recording', designed: 'your description' };
const NUM_COLOURS = 6; // of monograms
const SLOTS = ['A', 'B'];

/** Return a voice's display name. Names of a model's own voices are identifiers in lower case. @param {Voice} voice */
export function titleOf({ name, kind }) {
  return kind in KINDS ? name : name.slice(0, 1).toUpperCase() + name.slice(1);
}

/** @param {Voice} voice */
export function subtitleOf({ description, kind, instructions }) {
  return description || (kind in KINDS ? instructions || `From ${KINDS[kind]}` : '');
}

export class VoiceTiles {
  /**
   * @param {HTMLElement} element where the tiles go
   * @param {{pair: HTMLElement, toggle: HTMLButtonElement, versus: HTMLInputElement}} compared two pinned tiles (buttons), the button that
   *   pins and unpins, the field with the id of the voice beside the chosen one
   * @param {HTMLElement} search label of a search field and of the number of voices that it finds
   * @param {{hear: (voice: Voice) => void, edit: (voice: Voice) => void, switchTo: (id: string) => void}} actions
   */
  constructor(element, { pair, toggle, versus }, search, actions) {
    this.element = element;
    Object.assign(this, { pinned: pair, toggle, versus });
    /** Ids of the voices A and B; empty: none is pinned. @type {string[]} */
    this.pair = [];
    [...pair.children].forEach((tile, slot) => (tile.onclick = () => actions.switchTo(this.pair[slot])));
    toggle.onclick = () => this.#togglePair();
    versus.onchange = () => this.#showPair();
    element.onchange = () => this.#showPair();
    this.search = search;
    search.querySelector('input').oninput = () => this.#filter();
    this.actions = actions;
    /** @type {Voice[]} */
    this.voices = [];
  }

  /** Id of the chosen voice; undefined: the server's default. */
  get chosen() {
    return this.element.querySelector('input:checked')?.value;
  }

  /** @param {string} id */
  choose(id) {
    this.element.querySelector(`input[value="${CSS.escape(id)}"]`).checked = true;
    this.#showPair();
  }

  /** @param {string} [id] */
  titleOf(id) {
    const voice = this.voices.find((one) => one.id === id);
    return voice ? titleOf(voice) : '';
  }

  /** Show voices; the previous choice stays if it still exists. @param {Voice[]} voices @param {string} [choose] an id @param {string} [compare] an id */
  show(voices, choose, compare = this.versus.value) {
    const wanted = [choose, this.chosen, voices.find((voice) => voice.default)?.id, voices[0]?.id];
    const chosen = wanted.find((id) => voices.some((voice) => voice.id === id));
    this.voices = voices;
    this.element.replaceChildren(...voices.map((voice, index) => this.#tile(voice, index, voice.id === chosen)));
    this.toggle.hidden = voices.length < 2;
    this.versus.value = compare ?? '';
    this.#showPair();
    this.search.hidden = voices.length < SEARCH_FROM;
    this.#filter();
    const tile = this.element.querySelector('input:checked')?.closest('.tile');
    // `scrollIntoView` would scroll the page, too.
    if (tile) this.element.scrollTop = tile.offsetTop - (this.element.clientHeight - tile.offsetHeight) / 2;
  }

  /** Focus the edit button of a voice, or the chosen voice if it has none. @param {string} id */
  focus(id) {
    const edit = [...this.element.children].find((tile) => tile.dataset.voice === id)?.querySelector('.edit');
    (edit ?? this.element.querySelector('input:checked'))?.focus();
  }

  /** Which voice is being previewed, and whether it is on its way. @param {string} [id] @param {boolean} [waiting] */
  showHeard(id, waiting = false) {
    for (const tile of this.element.children) {
      const isIt = tile.dataset.voice === id;
      const hear = tile.querySelector('.hear');
      tile.dataset.heard = isIt ? (waiting ? 'waiting' : 'now') : '';
      setIcon(hear, isIt && !waiting ? 'stop' : 'play');
      hear.setAttribute('aria-label', `${isIt ? 'Stop' : 'Hear'} ${this.titleOf(tile.dataset.voice)}`);
    }
  }

  /** Pin the chosen voice as A and the next one as B, to be chosen again from all; or unpin both. */
  #togglePair() {
    const isPinned = this.pair.length > 0;
    const next = (this.voices.findIndex(({ id }) => id === this.chosen) + 1) % this.voices.length;
    this.versus.value = isPinned ? '' : this.voices[next].id;
    this.#showPair();
    if (!isPinned) this.choose(this.versus.value);
  }

  /** Show the chosen voice and the one beside it. A third one that is chosen takes the place of the one chosen before. */
  #showPair() {
    const { chosen, versus, pair } = this;
    if (pair.includes(chosen) && chosen === versus.value) versus.value = pair.find((id) => id !== chosen);
    const beside = versus.value;
    if (beside === chosen || !this.voices.some(({ id }) => id === beside)) versus.value = '';
    if (!versus.value) this.pair = [];
    else this.pair = pair.includes(beside) ? pair.map((id) => (id === beside ? id : chosen)) : [chosen, beside];
    this.pinned.hidden = this.pair.length === 0;
    this.pinned.parentElement.classList.toggle('pinned', !this.pinned.hidden);
    this.toggle.textContent = this.pinned.hidden ? 'Compare' : 'Unpin';
    this.pair.forEach((id, slot) => this.#pin(this.pinned.children[slot], id, SLOTS[slot]));
  }

  #pin(tile, id, slot) {
    const index = this.voices.findIndex((voice) => voice.id === id);
    const isChosen = id === this.chosen;
    tile.replaceChildren(
      make('span', { className: `monogram colour-${index % NUM_COLOURS}`, textContent: slot }), ' ',
      make('span', { className: 'name', textContent: titleOf(this.voices[index]) }),
    );
    if (!isChosen) tile.append(make('kbd', { textContent: 'Ctrl B', ariaHidden: 'true' }));
    tile.setAttribute('aria-pressed', String(isChosen));
  }

  /** Hide voices without one of the words that are searched for. */
  #filter() {
    const wanted = this.search.hidden ? '' : this.search.querySelector('input').value;
    const words = wanted.toLowerCase().split(/\s+/);
    this.voices.forEach((voice, index) => {
      const about = [voice.name, voice.description, voice.instructions, voice.language].join(' ').toLowerCase();
      this.element.children[index].hidden = !words.every((word) => about.includes(word));
    });
    const number = this.element.querySelectorAll('.tile:not([hidden])').length;
    this.search.querySelector('output').value = wanted.trim() ? `${number} of ${this.voices.length}` : '';
  }

  #tile(voice, index, checked) {
    const tile = make('div', { className: 'tile' });
    tile.dataset.voice = voice.id;
    const radio = make('input', { type: 'radio', name: 'voice', value: voice.id, checked });
    const label = make('label', {}, radio, make('span', { className: 'name', textContent: titleOf(voice) }));
    if (subtitleOf(voice)) label.append(make('span', { className: 'about', textContent: subtitleOf(voice) }));
    const [letter] = titleOf(voice);
    const monogram = make('span', { className: `monogram colour-${index % NUM_COLOURS}`, textContent: letter, ariaHidden: 'true' });
    tile.append(monogram, label, button({ icon: 'play', className: 'hear', label: `Hear ${titleOf(voice)}` }, () => this.actions.hear(voice)));
    if (voice.kind in KINDS) {
      tile.append(button({ icon: 'edit', className: 'edit', label: `Rename or delete ${voice.name}` }, () => this.actions.edit(voice)));
    }
    return tile;
  }
}
