/**
 * The text on stage: written → timed → heard, word by word. Text that is only written is one plain run at the end;
 * words become elements when their times are known, and never move again.
 */
export class Transcript {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.clear();
  }

  clear() {
    this.element.replaceChildren();
    this.element.classList.remove('cut');
    this.tail = this.element.appendChild(document.createTextNode(''));
    this.text = '';
    this.rendered = 0; // UTF-16 offset up to which words are elements
    /** @type {{element: HTMLElement, startMs: number, endMs: number, start: number, end: number}[]} */
    this.words = [];
    this.current = -1;
  }

  /** @param {string} text everything written so far */
  write(text) {
    this.text = text;
    this.tail.data = text.slice(this.rendered);
  }

  /** @param {import('./context.js').Word[]} words */
  addWords(words) {
    for (const word of words) {
      if (word.start < this.rendered) continue;
      const element = document.createElement('span');
      element.className = 'word';
      element.textContent = this.text.slice(word.start, word.end);
      this.tail.before(this.text.slice(this.rendered, word.start), element);
      this.rendered = word.end;
      this.words.push({ ...word, element });
    }
    this.tail.data = this.text.slice(this.rendered);
  }

  /** Words that begin at this time or later are only written again: they will have other times. @param {number} ms */
  takeBack(ms) {
    const index = this.words.findIndex((word) => word.startMs >= ms);
    if (index < 0) return;
    const [first] = this.words.splice(index);
    this.rendered = first.start;
    while (first.element.nextSibling !== this.tail) first.element.nextSibling.remove();
    first.element.remove();
    this.tail.data = this.text.slice(this.rendered);
    this.current = Math.min(this.current, index - 1);
  }

  /** Light the words up to a time. @param {number} heardMs @returns {HTMLElement | null} the word being heard, when it changed */
  hear(heardMs) {
    const { words } = this;
    let current = this.current;
    while (words[current + 1]?.startMs < heardMs) words[++current].element.classList.add('heard');
    while (words[current]?.startMs >= heardMs) words[current--].element.classList.remove('heard');
    if (current === this.current) return null;
    words[this.current]?.element.classList.remove('now');
    words[current]?.element.classList.add('now');
    this.current = current;
    return words[current]?.element ?? null;
  }

  /** Show a text whose times are known. @param {string} text @param {import('./context.js').Word[]} words */
  show(text, words) {
    this.clear();
    this.write(text);
    this.addWords(words);
  }

  /** Return the start of a word, ms; undefined for an element that is none. @param {Element} element */
  startOf(element) {
    return this.words.find((word) => word.element === element)?.startMs;
  }

  /** Mark the text as played to its end. */
  finish() {
    for (const { element } of this.words) element.classList.remove('now');
  }

  /**
   * Mark the text after the cut as not heard.
   * @param {number} spokenChars UTF-16 offset @param {string} label of the cut
   */
  cut(spokenChars, label) {
    this.finish();
    const marker = Object.assign(document.createElement('span'), { className: 'cut-here', textContent: label });
    const unheard = document.createElement('s');
    const first = this.words.find((word) => word.start >= spokenChars);
    let node = first ? first.element : this.tail;
    for (const { element, start } of this.words) element.classList.toggle('heard', start < spokenChars);
    node.before(marker, ' ', unheard);
    for (let next; node; node = next) {
      next = node.nextSibling;
      unheard.append(node);
    }
    this.element.classList.add('cut');
  }
}
