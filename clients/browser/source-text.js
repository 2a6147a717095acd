/**
 * The text of one context as it was sent. The server counts in code points, JavaScript in UTF-16 units; they differ
 * after every character beyond U+FFFF (most emoji), so offsets are converted here and nowhere else.
 */
export class SourceText {
  constructor() {
    this.text = '';
    this.numCodePoints = 0;
    /** @type {number[]} code-point offset of every character that takes two UTF-16 units, ascending */
    this.wide = [];
    this.heldSurrogate = '';
  }

  /**
   * @param {string} delta
   * @returns {string} what to send now: a pair cut in two by the caller is held until its other half comes
   */
  append(delta) {
    let ready = this.heldSurrogate + delta;
    this.heldSurrogate = '';
    const last = ready.charCodeAt(ready.length - 1);
    if (last >= 0xd800 && last <= 0xdbff) {
      this.heldSurrogate = ready.slice(-1);
      ready = ready.slice(0, -1);
    }
    for (const character of ready) {
      if (character.length === 2) this.wide.push(this.numCodePoints);
      this.numCodePoints += 1;
    }
    this.text += ready;
    return ready;
  }

  /** @param {number} codePoints offset as the server counts @returns {number} offset into `text` */
  toUtf16(codePoints) {
    let low = 0;
    let high = this.wide.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.wide[middle] < codePoints) low = middle + 1;
      else high = middle;
    }
    return Math.min(codePoints + low, this.text.length);
  }

  /** @param {number} offset into `text` @returns {number} as the server counts */
  toCodePoints(offset) {
    const after = this.wide.findIndex((codePoints, numBefore) => codePoints + numBefore >= offset);
    return offset - (after < 0 ? this.wide.length : after);
  }
}
