/** The text to speak: typed in the place where its words light up, counted, tagged, marked where the model cannot speak it; sample texts. */

import { make } from './elements.js';
import { unspokenWords } from './kind-words.js';
import { SAMPLES } from './sample-texts.js';
import { unspokenSpans } from './speakable.js';

export class TextEditor {
  /** Code points that the server takes, letters that its model reads. @type {{max_chars?: number, letters?: string | null}} */
  #limits = {};

  /** @param {HTMLElement} stage its `data-view` is `edit` or `words` @param {HTMLTextAreaElement} lexicon */
  constructor(stage, lexicon) {
    Object.assign(this, { stage, lexicon, marks: stage.querySelector('.marks'), note: stage.querySelector('#unspoken') });
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
    for (const event of ['input', 'change']) for (const field of [this.area, lexicon]) field.addEventListener(event, () => this.#show());
    this.area.addEventListener('scroll', () => (this.marks.scrollTop = this.area.scrollTop));
  }

  get text() {
    return this.area.value;
  }

  set limits(limits) {
    this.#limits = limits;
    this.#show();
  }

  /** Show the text in place of the words spoken, ready to be edited. */
  edit() {
    this.stage.dataset.view = 'edit';
    this.area.focus();
    this.#show();
  }

  /** Put tags around the selected text, or the cursor between them. */
  #insert(before, after = '') {
    const { value, selectionStart: start, selectionEnd: end } = this.area;
    this.area.setRangeText(before + value.slice(start, end) + after, start, end, 'end');
    if (start === end) this.area.selectionStart = this.area.selectionEnd -= after.length;
    this.edit();
  }

  #show() {
    this.#showCount();
    const { text } = this;
    const spans = unspokenSpans(text, this.#limits.letters, this.lexicon.value);
    let shown = 0;
    const parts = spans.flatMap(([start, end]) => [text.slice(shown, start), make('u', { textContent: text.slice(start, (shown = end)) })]);
    this.marks.replaceChildren(...parts, parts.length > 0 ? `${text.slice(shown)}\u200b` : ''); // a last line that is empty has its height
    this.marks.scrollTop = this.area.scrollTop;
    this.note.textContent = unspokenWords(text, spans);
  }

  /** Show how long the text is, and how long it may be. */
  #showCount() {
    const { max_chars: maxChars } = this.#limits;
    const length = [...this.text].length;
    const isTooLong = length > maxChars;
    const parts = [length, maxChars].filter((number) => number !== undefined).map((number) => number.toLocaleString('en'));
    this.count.textContent = `${parts.join(' / ')}${isTooLong ? ': too long' : ''}`;
    this.count.classList.toggle('too-long', isTooLong);
    this.area.setAttribute('aria-invalid', String(isTooLong));
  }
}
