/** Plays one short recording at a time: a preview, or what was just recorded. */

export class SamplePlayer extends EventTarget {
  #audio = new Audio();
  #address = '';

  constructor() {
    super();
    this.#audio.addEventListener('ended', () => this.stop());
    this.#audio.addEventListener('error', () => this.#address && this.stop());
  }

  /** @param {Blob} recording in a format that browsers play @param {string} [of] whose, to tell it by */
  async play(recording, of = '') {
    this.stop();
    this.of = of;
    this.#address = URL.createObjectURL(recording);
    this.#audio.src = this.#address;
    this.dispatchEvent(new Event('change'));
    await this.#audio.play().catch(() => this.stop());
  }

  get playing() {
    return this.#address !== '';
  }

  stop() {
    if (!this.playing) return;
    const address = this.#address;
    this.#address = '';
    this.#audio.pause();
    this.#audio.removeAttribute('src');
    URL.revokeObjectURL(address);
    this.dispatchEvent(new Event('change'));
  }
}
