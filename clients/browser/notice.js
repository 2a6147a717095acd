/** The displayed error. The first error stays, as later ones are mostly its consequences. */

import { kindWords } from './kind-words.js';

const MINOR = new Set(['decode_error', 'protocol_error']); // speech continues: a more severe error may replace it
/** Codes of errors that end with the next connection. */
const OF_THE_CONNECTION = new Set([
  'connection_lost', 'draining', 'engine_lost', 'handshake_refused', 'overloaded', 'too_many_sessions', 'unauthorized',
]);

export class Notice {
  /** @param {HTMLElement} element with a paragraph for the words */
  constructor(element) {
    this.element = element;
    this.words = element.querySelector('p');
    /** @type {{code: string, ofContext: boolean} | null} */
    this.shown = null;
  }

  /** @param {import('./errors.js').RealtimeTTSError} error */
  show(error) {
    const code = error.code ?? error.name;
    if (this.shown && !MINOR.has(this.shown.code)) return;
    this.shown = { code, ofContext: error.contextId != null };
    this.words.replaceChildren(`${kindWords(error)} `, Object.assign(document.createElement('code'), { textContent: code }));
    this.element.hidden = false;
  }

  /** Clear connection errors after a connect. Errors of a context stay. */
  connected() {
    if (this.shown && !this.shown.ofContext && OF_THE_CONNECTION.has(this.shown.code)) this.clear();
  }

  clear() {
    this.shown = null;
    this.element.hidden = true;
  }
}
