/** Plays one recording at a time: a preview, a take, or what was just recorded. */

export class SamplePlayer extends EventTarget {
  #audio = new Audio();
  #address = '';

  constructor() {
    super();
    this.#audio.addEventListener('ended', () => this.stop(true));
    this.#audio.addEventListener('error', () => this.#address && this.stop());
  }

  /** @param {Blob} recording in a format that browsers play @param {unknown} [of] its owner @param {number} [fromMs] */
  async play(recording, of, fromMs = 0) {
    this.stop();
    this.of = of;
    const address = URL.createObjectURL(recording);
    this.#address = this.#audio.src = address;
    this.seek(fromMs);
    this.dispatchEvent(new Event('change'));
    await this.#audio.play().catch(() => this.#address === address && this.stop()); // not if another one plays by now
  }

  get playing() {
    return this.#address !== '';
  }

  get positionMs() {
    return this.#audio.currentTime * 1000;
  }

  /** @param {number} ms */
  seek(ms) {
    this.#audio.currentTime = ms / 1000;
  }

  /** @param {boolean} [atEnd] it was played to its end, which the `change` event tells */
  stop(atEnd = false) {
    if (!this.playing) return;
    const address = this.#address;
    this.#address = '';
    this.#audio.pause();
    this.#audio.removeAttribute('src');
    URL.revokeObjectURL(address);
    this.dispatchEvent(new CustomEvent('change', { detail: { atEnd } }));
  }
}
