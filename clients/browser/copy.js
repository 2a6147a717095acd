/**
 * Copy to the clipboard, also on pages without https.
 * @param {string} text @param {HTMLElement} [within] the open dialog, if there is one
 * @returns {Promise<boolean>} whether it is there
 */
export async function copyText(text, within = document.body) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const focused = document.activeElement;
  const area = Object.assign(document.createElement('textarea'), { value: text, className: 'hidden' });
  within.append(area);
  area.select();
  const done = document.execCommand('copy'); // the only way on an insecure page
  area.remove();
  focused?.focus();
  return done;
}
