/** The text to speak: typed in the place where its words light up, counted, tagged; sample texts. */

import { SAMPLES } from './sample-texts.js';

export class TextEditor {
  /** How long a text the server takes, in code points. @type {number | undefined} */
  #maxChars;

  /** @param {HTMLElement} stage its `data-view` is `edit` or `words` */
  constructor(stage) {
    this.stage = stage;
    this.area = stage.querySelector('textarea');
    this.count = stage.querySelector('.count');
    const [pause, spelling] = stage.querySelectorAll('.samples button');
    for (const { name, text } of SAMPLES) {
      const button = Object.assign(document.createElement('button'), { type: 'button', textContent: name });
      button.addEventListener('click', () => (this.area.setRangeText(text, 0, this.area.value.length, 'end'), this.edit()));
      pause.before(button);
    }
    pause.addEventListener('click', () => this.#insert(' [pause 500ms] '));
    spelling.addEventListener('click', () => this.#insert('<spell>', '</spell>'));
    for (const event of ['input', 'change']) this.area.addEventListener(event, () => this.#showCount());
  }

  get text() {
    return this.area.value;
  }

  set maxChars(maxChars) {
    this.#maxChars = maxChars;
    this.#showCount();
  }

  /** Show the text in place of the words spoken, ready to be edited. */
  edit() {
    this.stage.dataset.view = 'edit';
    this.area.focus();
    this.#showCount();
  }

  /** Put tags around the selected text, or the cursor between them. */
  #insert(before, after = '') {
    const { value, selectionStart: start, selectionEnd: end } = this.area;
    this.area.setRangeText(before + value.slice(start, end) + after, start, end, 'end');
    if (start === end) this.area.selectionStart = this.area.selectionEnd -= after.length;
    this.edit();
  }

  /** Show how long the text is, and how long it may be. */
  #showCount() {
    const length = [...this.text].length;
    const isTooLong = length > this.#maxChars;
    const parts = [length, this.#maxChars].filter((number) => number !== undefined).map((number) => number.toLocaleString('en'));
    this.count.textContent = `${parts.join(' / ')}${isTooLong ? ': too long' : ''}`;
    this.count.classList.toggle('too-long', isTooLong);
    this.area.setAttribute('aria-invalid', String(isTooLong));
  }
}
