/** SSML cut in the middle: the tags to open again before the rest. */

const MARKUP =
  /<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[?!][^>]*>|<(?<end>\/?)(?<name>[^\s<>/!?"'=]+)(?:"[^"]*"|'[^']*'|[^<>"'])*?(?<empty>\/?)>/gsu;

/** Return whether the server treats the text as SSML. @param {string} text @param {'auto' | 'text' | 'ssml'} textType */
export function isSSML(text, textType) {
  return textType === 'ssml' || (textType === 'auto' && /^\s*<(speak|\?xml)/u.test(text));
}

/** @param {string} text the beginning of a document @returns {string} the tags that are open where it ends, outermost first */
export function openTags(text) {
  /** @type {{name: string, tag: string}[]} */
  const opened = [];
  for (const { 0: tag, groups: { end, name, empty } } of text.matchAll(MARKUP)) {
    if (name === undefined || empty) continue;
    if (!end) opened.push({ name, tag });
    else if (opened.at(-1)?.name === name) opened.pop();
  }
  return opened.map(({ tag }) => tag).join('');
}
