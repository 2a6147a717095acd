/** Fields with a greatest length: browsers drop what does not fit of a pasted text, without a word. */

/** Say at its field how much of a pasted text was dropped, until the field changes. @param {Document} page */
export function tellDroppedPaste(page) {
  page.addEventListener('paste', ({ target, clipboardData }) => {
    if (!(target.maxLength > 0)) return;
    const pasted = clipboardData.getData('text').replace(/[\r\n]/g, '').length;
    const dropped = pasted + target.value.length - (target.selectionEnd - target.selectionStart) - target.maxLength;
    if (dropped > 0) setTimeout(() => tell(target, dropped)); // after the field's own `input`
  });
}

function tell(field, dropped) {
  const characters = dropped === 1 ? 'character does' : `${dropped} characters do`;
  field.setCustomValidity(`The last ${characters} not fit: ${field.maxLength} at most.`);
  field.reportValidity();
  field.addEventListener('input', () => field.setCustomValidity(''), { once: true });
}
