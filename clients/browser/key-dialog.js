/** Asks for the server's key and keeps it for this tab: in sessionStorage, never in an address, never in a log. */

const STORED_AS = 'realtime-tts.key';

export class KeyDialog {
  /** @param {HTMLDialogElement} dialog with a form, its input and a place for what is wrong */
  constructor(dialog) {
    this.dialog = dialog;
    this.form = dialog.querySelector('form');
    this.input = dialog.querySelector('input');
    this.fault = dialog.querySelector('.fault');
    dialog.querySelector('[type="button"]').addEventListener('click', () => dialog.close());
    try {
      this.key = sessionStorage.getItem(STORED_AS) ?? undefined;
    } catch {
      this.key = undefined; // storage is blocked: the key lives as long as the page
    }
  }

  /** @returns {Promise<boolean>} false if the visitor would rather not */
  async ask() {
    this.fault.textContent = this.key === undefined ? '' : 'The server did not accept that key. Check it and try again.';
    this.#keep(undefined);
    this.input.value = '';
    this.dialog.showModal();
    await new Promise((resolve) => {
      this.form.onsubmit = (event) => {
        event.preventDefault();
        if (!this.input.value.trim()) return;
        this.#keep(this.input.value.trim());
        this.dialog.close();
      };
      this.dialog.onclose = resolve;
    });
    this.input.value = '';
    return this.key !== undefined;
  }

  #keep(key) {
    this.key = key;
    try {
      if (key === undefined) sessionStorage.removeItem(STORED_AS);
      else sessionStorage.setItem(STORED_AS, key);
    } catch {
      // as above
    }
  }
}
