/** What a listener's sounds mean while speech plays: hold it at the first one, then go on or end it. Pure. */

/**
 * @typedef {object} Activity of a microphone
 * @property {boolean} speaking
 * @property {number} soundMs from the beginning of the sound to its last loud moment
 * @property {number} quietMs since then
 */

export class HoldPolicy {
  /** The speech is held because of a sound that may be an interruption or a nod ("mhm"). */
  isHeld = false;

  /**
   * @param {object} [options]
   * @param {number} [options.decideMs] a sound that lasts so long is an interruption
   * @param {number} [options.quietMs] quiet after a shorter one: it was a nod
   */
  constructor({ decideMs = 500, quietMs = 200 } = {}) {
    Object.assign(this, { decideMs, quietMs });
  }

  /**
   * Return what to do now.
   * @param {Activity} sound @param {boolean} plays whether speech plays that is not held
   * @returns {'hold' | 'release' | 'cancel' | null}
   */
  update({ speaking, soundMs, quietMs }, plays) {
    if (!this.isHeld) {
      this.isHeld = plays && speaking && quietMs === 0;
      return this.isHeld ? 'hold' : null;
    }
    const isInterruption = speaking && soundMs >= this.decideMs;
    if (!isInterruption && speaking && quietMs < this.quietMs) return null;
    this.isHeld = false;
    return isInterruption ? 'cancel' : 'release';
  }
}
