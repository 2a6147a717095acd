/** Dialog of a voice that a visitor has made: its details, rename, delete. */

import { kindWords } from './kind-words.js';

/** Return the recorded consent of the speaker as text. @param {import('./voice-tiles.js').Voice} voice */
export function consentWords({ consent, kind }) {
  if (!consent) return kind === 'designed' ? 'Made from a description.' : 'No consent of the speaker is recorded.';
  const scope = consent.scope ? `, for ${consent.scope}` : '';
  return `Consent by ${consent.given_by}${scope}, ${new Date(consent.at * 1000).toLocaleDateString()}.`;
}

export class VoiceEditor {
  /**
   * @param {HTMLDialogElement} dialog
   * @param {{rename: (id: string, name: string) => Promise<void>, remove: (id: string) => Promise<void>}} actions
   */
  constructor(dialog, actions) {
    this.dialog = dialog;
    this.input = dialog.querySelector('input');
    this.fault = dialog.querySelector('.fault');
    this.about = dialog.querySelector('.small');
    this.deletion = dialog.querySelector('.interrupt');
    this.actions = actions;
    dialog.querySelector('.plain').addEventListener('click', () => dialog.close());
    dialog.querySelector('form').addEventListener('submit', (event) => (event.preventDefault(), this.#rename()));
    this.deletion.addEventListener('click', () => this.#delete());
  }

  /** @param {import('./voice-tiles.js').Voice} voice */
  open(voice) {
    this.voice = voice;
    this.input.value = voice.name;
    this.fault.textContent = '';
    this.about.textContent = consentWords(voice);
    this.#ask(false);
    this.dialog.showModal();
  }

  /** Set whether the next press deletes. */
  #ask(sure) {
    this.sure = sure;
    this.deletion.textContent = sure ? 'Really delete?' : 'Delete';
  }

  async #rename() {
    const name = this.input.value.trim();
    if (!name) return;
    if (name === this.voice.name) return this.dialog.close();
    await this.#try(() => this.actions.rename(this.voice.id, name));
  }

  async #delete() {
    if (!this.sure) return this.#ask(true);
    await this.#try(() => this.actions.remove(this.voice.id));
  }

  async #try(action) {
    try {
      await action();
      this.dialog.close();
    } catch (error) {
      this.fault.textContent = kindWords(error);
    }
  }
}
