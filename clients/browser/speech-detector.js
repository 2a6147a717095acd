/**
 * Speech detection. Speech is louder than the background and voiced: its vowels repeat with the pitch of the speaker,
 * unlike steady noise, keys and claps. Pure; samples in, changes out.
 */

const WINDOW_MS = 20;
const LOWEST_DB = -90;
const FLOOR_RISE_DB_S = 3; // so that a louder background is not detected as speech for ever
const VOICED_HZ = 8_000; // sample rate for the search of repetition
const [HIGHEST_PITCH_HZ, LOWEST_PITCH_HZ] = [400, 80];

/**
 * @typedef {object} DetectorOptions
 * @property {number} sampleRate Hz
 * @property {number} [marginDb] how far above the background speech is
 * @property {number} [quietestDb] minimum level of speech, dB of full scale
 * @property {number} [startMs] how much loud sound, most of it voiced, it takes to begin
 * @property {number} [stopMs] how long it must be quiet to end
 * @property {number} [learnMs] how long the background is listened to before anything is speech
 */

export class SpeechDetector {
  /** @param {DetectorOptions} options */
  constructor({ sampleRate, marginDb = 12, quietestDb = -45, startMs = 120, stopMs = 400, learnMs = 300 }) {
    this.speaking = false;
    this.levelDb = LOWEST_DB; // of the last window
    this.marginDb = marginDb;
    this.quietestDb = quietestDb;
    this.startMs = startMs;
    this.stopMs = stopMs;
    this.toLearnMs = learnMs;
    this.window = new Float32Array(Math.round((sampleRate * WINDOW_MS) / 1000));
    this.filled = 0;
    this.step = Math.max(1, Math.round(sampleRate / VOICED_HZ));
    this.lags = [HIGHEST_PITCH_HZ, LOWEST_PITCH_HZ].map((hz) => Math.round(sampleRate / this.step / hz));
    /** The last two windows at the lower rate: the longest period must fit in more than once. */
    this.recent = new Float32Array(2 * Math.floor(this.window.length / this.step));
    this.floorDb = null; // background; null until there was some
    this.loudMs = this.voicedMs = this.quietMs = this.sinceMs = 0;
  }

  /** @returns {import('./hold-policy.js').Activity} */
  get activity() {
    const { speaking, quietMs } = this;
    return { speaking, soundMs: speaking ? this.sinceMs - quietMs : 0, quietMs };
  }

  /**
   * @param {Float32Array} samples mono, as many as there are
   * @returns {('started' | 'stopped')[]} what has changed with them, in order
   */
  feed(samples) {
    const changes = [];
    for (let start = 0; start < samples.length; ) {
      const part = samples.subarray(start, start + this.window.length - this.filled);
      this.window.set(part, this.filled);
      this.filled += part.length;
      start += part.length;
      if (this.filled < this.window.length) break;
      this.filled = 0;
      if (this.#take()) changes.push(this.speaking ? 'started' : 'stopped');
    }
    return changes;
  }

  /** @returns {boolean} whether speech has begun or ended with this window */
  #take() {
    this.#remember();
    this.levelDb = levelDb(this.window);
    const loud = this.#standsOut();
    if (this.toLearnMs > 0) {
      this.toLearnMs -= WINDOW_MS;
      return false;
    }
    if (this.speaking) {
      this.sinceMs += WINDOW_MS;
      this.quietMs = loud ? 0 : this.quietMs + WINDOW_MS;
      if (this.quietMs < this.stopMs) return false;
    } else {
      // A quiet window takes back one loud one: a vowel may be followed by a stop, and keys do not add up to a word.
      this.loudMs = Math.max(0, this.loudMs + (loud ? WINDOW_MS : -WINDOW_MS));
      if (this.loudMs === 0) this.voicedMs = 0;
      else if (loud && repetition(this.recent, this.lags) > 0.6) this.voicedMs += WINDOW_MS;
      if (this.loudMs < this.startMs || this.voicedMs < this.startMs / 2) return false;
    }
    this.speaking = !this.speaking;
    this.sinceMs = this.loudMs;
    this.loudMs = this.voicedMs = this.quietMs = 0;
    return true;
  }

  /** Update the background level: the recent minimum, which falls at once and rises slowly. */
  #standsOut() {
    const floor = this.floorDb ?? this.levelDb;
    const loud = this.levelDb > Math.max(this.quietestDb, floor + this.marginDb);
    this.floorDb = Math.max(LOWEST_DB, Math.min(this.levelDb, floor + (FLOOR_RISE_DB_S * WINDOW_MS) / 1000));
    return loud;
  }

  #remember() {
    const { recent, step, window } = this;
    const half = recent.length / 2;
    recent.copyWithin(0, half);
    for (let i = 0; i < half; i += 1) {
      let sum = 0;
      for (let j = 0; j < step; j += 1) sum += window[i * step + j];
      recent[half + i] = sum / step;
    }
  }
}

/** @param {Float32Array} samples @returns {number} root mean square, dB of full scale */
export function levelDb(samples) {
  let power = 0;
  for (const sample of samples) power += sample * sample;
  return power === 0 ? LOWEST_DB : Math.max(LOWEST_DB, 10 * Math.log10(power / samples.length));
}

/** Maximum over periods of the correlation of samples with those one period earlier. @returns {number} up to 1 */
function repetition(samples, [shortest, longest]) {
  const mean = samples.reduce((sum, sample) => sum + sample, 0) / samples.length;
  let best = 0;
  for (let lag = shortest; lag <= longest; lag += 1) {
    let [product, power, before] = [0, 0, 0];
    for (let i = lag; i < samples.length; i += 1) {
      const [now, then] = [samples[i] - mean, samples[i - lag] - mean];
      product += now * then;
      power += now * now;
      before += then * then;
    }
    if (power > 0 && before > 0) best = Math.max(best, product / Math.sqrt(power * before));
  }
  return best;
}
