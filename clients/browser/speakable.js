/** Parts of a text that the model certainly cannot speak. The server reports all of them, once the text is spoken. */

const UNIT = /(?<=\p{N}\s?[kMG]?)[µμΩ]/u; // is spoken as one
const RUN = new RegExp(`(?:(?!${UNIT.source})\\p{L}|(?![©®〰〽])\\p{Extended_Pictographic}|\\p{RI})[\\p{M}\\p{EMod}\\u200d]*`, 'gu');
const LETTER = /^\p{L}/u;

/**
 * @param {string} text
 * @param {string | null} [letters] that the model can read; null: all
 * @param {string} [lexicon] its words have another reading
 * @returns {[number, number][]} UTF-16 offsets, in order
 */
export function unspokenSpans(text, letters = null, lexicon = '') {
  if (/^\s*<(?:speak|\?xml)/u.test(text)) return []; // SSML can give any character another reading
  /** @type {[number, number][]} */
  const spans = [];
  for (const { 0: found, index } of text.matchAll(RUN)) {
    const plain = found.normalize('NFKD');
    const isSpoken = LETTER.test(found) ? letters === null || [...plain.toLowerCase()].some((char) => letters.includes(char)) : plain !== found;
    if (isSpoken || lexicon.includes(found)) continue;
    if (spans.at(-1)?.[1] === index) spans.at(-1)[1] += found.length;
    else spans.push([index, index + found.length]);
  }
  return spans;
}
