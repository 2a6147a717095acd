/** The drawer "Use this in code": one program of several kinds, copied with one press. */

import { PROGRAMS } from './code.js';
import { copyText } from './copy.js';
import { make } from './elements.js';

export class CodeDialog {
  /** @param {HTMLDialogElement} dialog @param {() => import('./code.js').Moment} moment returns what to fill in */
  constructor(dialog, moment) {
    this.dialog = dialog;
    this.moment = moment;
    this.kinds = dialog.querySelector('fieldset');
    this.code = dialog.querySelector('code');
    this.guide = dialog.querySelector('.guide');
    this.copied = dialog.querySelector('[role="status"]');
    for (const [kind, { name }] of Object.entries(PROGRAMS)) {
      const radio = make('input', { type: 'radio', name: 'kind', value: kind, checked: kind === 'curl' });
      radio.addEventListener('change', () => this.#show());
      this.kinds.append(make('label', {}, radio, make('span', { textContent: name })));
    }
    dialog.querySelector('.copy').addEventListener('click', () => this.#copy());
    dialog.querySelector('.plain').addEventListener('click', () => dialog.close());
  }

  open() {
    this.#show();
    this.dialog.showModal();
  }

  #show() {
    const { guide, write } = PROGRAMS[this.kinds.querySelector(':checked').value];
    this.code.textContent = write(this.moment());
    this.guide.textContent = guide;
    this.copied.textContent = '';
  }

  async #copy() {
    this.copied.textContent = (await copyText(this.code.textContent, this.dialog)) ? 'Copied' : 'Select the text and copy it by hand';
  }
}
