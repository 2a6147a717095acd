/** Number fields that may be left empty: their bounds, and what is wrong with what was typed. */

/**
 * @param {{value: string, min: string, max: string, whole: boolean, badInput: boolean}} field `min` and `max` as in
 *   HTML: empty where there is no bound; `badInput`: the browser could not read a number
 * @returns {string} what it should be, empty if it is that
 */
export function faultOf({ value, min, max, whole, badInput }) {
  if (value === '' && !badInput) return '';
  const number = Number(value);
  const fits = !badInput && (min === '' || number >= Number(min)) && (max === '' || number <= Number(max));
  if (fits && (!whole || Number.isInteger(number))) return '';
  const bounds = [min !== '' && `from ${min}`, max !== '' && `to ${max}`].filter(Boolean).join(' ');
  return `${whole ? 'A whole number' : 'A number'} ${bounds}, or nothing.`.replace(' ,', ',');
}

export class NumberField {
  /** @param {HTMLInputElement} input described by an element for its fault */
  constructor(input) {
    this.input = input;
    this.fault = document.getElementById(input.getAttribute('aria-describedby'));
    input.addEventListener('input', () => this.fault.textContent && this.check());
  }

  /** undefined: left empty. */
  get number() {
    return this.input.value === '' ? undefined : Number(this.input.value);
  }

  /** @param {{min?: number, max?: number, default?: number}} [range] as the server gave it; without one the server judges */
  setRange(range = {}) {
    if (range.min !== undefined) this.input.min = range.min;
    this.input.max = range.max ?? '';
    if (range.default !== undefined) this.input.placeholder = range.default;
  }

  /** Show what is wrong. @returns {boolean} nothing is */
  check() {
    const { value, min, max, step, validity } = this.input;
    this.fault.textContent = faultOf({ value, min, max, whole: step === '1', badInput: validity.badInput });
    this.input.setAttribute('aria-invalid', String(this.fault.textContent !== ''));
    return this.fault.textContent === '';
  }

  /** Focus the field, opening its folded section. */
  reveal() {
    const fold = this.input.closest('details');
    if (fold) fold.open = true;
    this.input.focus();
  }
}
