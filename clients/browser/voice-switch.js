/** The switch "interrupt by voice" with its level and its state in words. */

import { kindWords } from './kind-words.js';

const WORDS = {
  off: 'Off',
  asking: 'Your browser asks for the microphone',
  listening: 'Listening',
  hearing: 'I hear you',
};
const [QUIETEST_DB, LOUDEST_DB] = [-60, -10]; // the ends of the level

export class VoiceSwitch {
  /**
   * @param {HTMLElement} element with a button, a level and a place for the state
   * @param {(activity: import('./hold-policy.js').Activity) => void} onActivity
   */
  constructor(element, onActivity) {
    this.element = element;
    this.button = element.querySelector('button');
    this.level = element.querySelector('.level span');
    this.words = element.querySelector('[role="status"]');
    this.onActivity = onActivity;
    /** @type {import('./microphone.js').Microphone | null} */
    this.microphone = null;
    this.button.addEventListener('click', () => this.toggle());
    this.#show('off');
  }

  async toggle() {
    if (this.element.dataset.state === 'asking') return;
    if (this.microphone) await this.turnOff();
    else await this.#turnOn();
  }

  async turnOff() {
    const open = this.microphone;
    this.microphone = null;
    this.#show('off');
    await open?.close();
  }

  async #lose() {
    await this.turnOff();
    this.#show('failed', 'The microphone was taken away.');
  }

  async #turnOn() {
    this.#show('asking');
    try {
      const { Microphone } = await import('./microphone.js'); // most visits do not need it
      this.microphone = await Microphone.open();
    } catch (error) {
      return this.#show('failed', kindWords(error));
    }
    this.#show('listening');
    this.microphone.addEventListener('level', ({ detail }) => this.#showLevel(detail));
    this.microphone.addEventListener('speech', ({ detail }) => this.#show(detail.speaking ? 'hearing' : 'listening'));
    this.microphone.addEventListener('activity', ({ detail }) => this.onActivity(detail));
    this.microphone.addEventListener('lost', () => this.#lose());
    return undefined;
  }

  #show(state, words = WORDS[state]) {
    this.element.dataset.state = state;
    this.button.setAttribute('aria-pressed', String(state === 'listening' || state === 'hearing'));
    this.words.textContent = words;
    if (!this.microphone) this.#showLevel(QUIETEST_DB);
  }

  #showLevel(levelDb) {
    const share = (levelDb - QUIETEST_DB) / (LOUDEST_DB - QUIETEST_DB);
    this.level.style.transform = `scaleX(${Math.min(1, Math.max(0, share)).toFixed(3)})`;
  }
}
