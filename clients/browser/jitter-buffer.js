/**
 * The jitter buffer of the AudioWorklet, as plain arithmetic: no Web Audio, no clock, no I/O.
 *
 * Contexts play one after the other, in the order in which they first appear. Playing starts once `targetDepth`
 * samples wait (or no more will come). An empty buffer is an underrun: it fades out, raises the target and waits again.
 * Positions are samples *of the context* (from the packets' pts), so "played" stays right across gaps.
 */

/** @typedef {{number: number, position: number, played: number, buffered: number, ended: boolean}} ContextReport */
/**
 * Result of one `pull`: samples `[offset, offset + length)` of the output are of context `number`, the first is its
 * sample `position`.
 * @typedef {{number: number, offset: number, length: number, position: number}} PlayedRun
 */

class ContextQueue {
  /** @param {number} number */
  constructor(number) {
    this.number = number;
    /** @type {{samples: Float32Array, position: number}[]} */
    this.chunks = [];
    this.headOffset = 0;
    /** @type {{samples: Float32Array, position: number}[]} played chunks, which a release may go back to */
    this.recent = [];
    /** @type {number | null} playing stops at this position until a release */
    this.holdAt = null;
    this.buffered = 0;
    this.received = 0; // position after the last sample pushed
    this.position = 0; // position after the last sample played
    this.played = 0; // samples that really left, gaps not counted
    this.ended = false;
  }

  /** Samples that may be played now. */
  get available() {
    return this.holdAt === null ? this.buffered : Math.min(this.buffered, Math.max(0, this.holdAt - this.position));
  }

  push(samples, position) {
    this.chunks.push({ samples, position });
    this.buffered += samples.length;
    this.received = position + samples.length;
  }

  /** Copy up to `length` samples to `output[offset…]`; returns how many. */
  take(output, offset, length) {
    let taken = 0;
    while (taken < length && this.chunks.length > 0) {
      const { samples, position } = this.chunks[0];
      const count = Math.min(length - taken, samples.length - this.headOffset);
      output.set(samples.subarray(this.headOffset, this.headOffset + count), offset + taken);
      this.headOffset += count;
      taken += count;
      this.position = position + this.headOffset;
      if (this.headOffset === samples.length) {
        this.recent.push(this.chunks.shift());
        this.headOffset = 0;
      }
    }
    this.buffered -= taken;
    this.played += taken;
    return taken;
  }

  /** Forget played chunks that end before `position`. */
  forget(position) {
    while (this.recent.length > 0 && endOf(this.recent[0]) <= position) this.recent.shift();
  }

  /** Go on at `position`, as far back as there are samples. */
  seek(position) {
    const chunks = [...this.recent, ...this.chunks];
    const first = chunks.findIndex((chunk) => endOf(chunk) > position);
    this.recent = first < 0 ? chunks : chunks.slice(0, first);
    this.chunks = first < 0 ? [] : chunks.slice(first);
    this.headOffset = first < 0 ? 0 : Math.max(0, position - this.chunks[0].position);
    this.buffered = this.chunks.reduce((sum, { samples }) => sum + samples.length, -this.headOffset);
    if (first >= 0) this.position = this.chunks[0].position + this.headOffset;
  }

  /** @returns {ContextReport} */
  report() {
    const { number, position, played, buffered, ended } = this;
    return { number, position, played, buffered, ended };
  }
}

const endOf = ({ samples, position }) => position + samples.length;

export class JitterBuffer {
  /**
   * @param {object} options
   * @param {number} options.sampleRate Hz
   * @param {number} [options.minDepthMs] buffered before playing starts
   * @param {number} [options.maxDepthMs] the most that underruns may raise it to
   * @param {number} [options.stepMs] how much one underrun raises it, and calm lowers it
   * @param {number} [options.calmMs] playing this long with no underrun lowers the target one step
   * @param {number} [options.fadeMs] fade at start, stop and underrun
   * @param {number} [options.recentMs] played speech that is kept: a release may begin a clause again
   */
  constructor({
    sampleRate,
    minDepthMs = 60,
    maxDepthMs = 200,
    stepMs = 20,
    calmMs = 10_000,
    fadeMs = 8,
    recentMs = 8_100,
  }) {
    const samples = (ms) => Math.round((ms * sampleRate) / 1000);
    this.minDepth = samples(minDepthMs);
    this.maxDepth = samples(maxDepthMs);
    this.step = samples(stepMs);
    this.calm = samples(calmMs);
    this.fadeLength = samples(fadeMs);
    this.recent = samples(recentMs);
    this.targetDepth = this.minDepth;
    this.underruns = 0;
    /** @type {Map<number, ContextQueue>} in playing order */
    this.contexts = new Map();
    /** @type {Set<number>} dropped or played out: late samples of these are thrown away */
    this.closed = new Set();
    /** @type {ContextReport[]} contexts that finished since the last `takeFinished` */
    this.finished = [];
    this.playing = false;
    this.fadeInLeft = 0;
    this.calmFor = 0;
    this.waitedFor = 0;
    /** @type {Float32Array | null} the fade-out that is sounding */
    this.tail = null;
    /** @type {{number: number, position: number} | null} */
    this.tailSource = null;
    this.tailOffset = 0;
  }

  /**
   * @param {number} number context number
   * @param {Float32Array} samples mono; owned by the buffer from now on
   * @param {number} [position] which sample of the context the first one is; default: the one after the last
   */
  push(number, samples, position) {
    if (this.closed.has(number) || samples.length === 0) return;
    const queue = this.#queue(number);
    queue.push(samples, position ?? queue.received);
    this.waitedFor = 0;
  }

  /** No more samples of this context will come. */
  end(number) {
    if (this.closed.has(number)) return;
    this.#queue(number).ended = true;
    this.#retire();
  }

  /**
   * Drop a context, or all. What sounds at this moment fades out over at most `fadeLength` samples; nothing else of
   * it is played, however late its samples arrive.
   * @param {number | null} [number]
   */
  clear(number = null) {
    const numbers = number === null ? [...this.contexts.keys()] : [number];
    for (const each of numbers) {
      const queue = this.contexts.get(each);
      if (queue && this.playing && queue === this.#head()) this.#fadeOut(queue);
      if (queue) this.finished.push({ ...queue.report(), buffered: 0 });
      this.contexts.delete(each);
      this.closed.add(each);
    }
  }

  /** Stop playing a context at a position, or at once if it is behind; what comes meanwhile is kept. */
  hold(number, position) {
    if (!this.closed.has(number)) this.#queue(number).holdAt = position;
  }

  /** Let a held context go on at a position. */
  release(number, position) {
    const queue = this.contexts.get(number);
    if (!queue) return;
    queue.holdAt = null;
    queue.seek(position);
    if (queue === this.#head()) this.playing = false; // a fade-in begins, once enough is buffered
    this.#retire();
  }

  /**
   * Fill `output`; what is not played is silence.
   * @param {Float32Array} output
   * @returns {PlayedRun[]}
   */
  pull(output) {
    output.fill(0);
    /** @type {PlayedRun[]} */
    const runs = [];
    let offset = 0;
    while (offset < output.length) {
      if (this.tail) {
        offset += this.#playTail(output, offset, runs);
        continue;
      }
      const queue = this.#head();
      if (!queue || !this.#ready(queue, output.length - offset)) break;
      const available = queue.available - this.fadeLength; // the last samples are kept back: they are the fade-out
      if (available > 0) offset += this.#play(queue, output, offset, available, runs);
      else this.#stop(queue);
    }
    return runs;
  }

  /** @returns {ContextReport[]} */
  report() {
    return [...this.contexts.values()].map((queue) => queue.report());
  }

  /** Contexts that were played out or dropped since the last call. */
  takeFinished() {
    return this.finished.splice(0);
  }

  #queue(number) {
    let queue = this.contexts.get(number);
    if (!queue) this.contexts.set(number, (queue = new ContextQueue(number)));
    return queue;
  }

  #head() {
    return this.contexts.values().next().value;
  }

  /** Return whether the first context may play now; start it if so. */
  #ready(queue, wanted) {
    if (this.playing) return true;
    if (queue.available === 0) return false;
    this.waitedFor += wanted;
    // A short rest without successor (the server waits for text) is played after twice the target wait.
    const patienceOver = this.waitedFor > 2 * this.targetDepth;
    if (queue.buffered < this.targetDepth && !queue.ended && !patienceOver) return false;
    this.playing = true;
    this.fadeInLeft = this.fadeLength;
    this.waitedFor = 0;
    return true;
  }

  #play(queue, output, offset, available, runs) {
    const taken = queue.take(output, offset, Math.min(available, output.length - offset));
    runs.push({ number: queue.number, offset, length: taken, position: queue.position - taken });
    queue.forget(queue.position - this.recent);
    for (let i = 0; i < taken && this.fadeInLeft > 0; i += 1, this.fadeInLeft -= 1) {
      output[offset + i] *= 1 - this.fadeInLeft / this.fadeLength;
    }
    this.calmFor += taken;
    if (this.calmFor >= this.calm) {
      this.calmFor = 0;
      this.targetDepth = Math.max(this.minDepth, this.targetDepth - this.step);
    }
    return taken;
  }

  /** Only the fade-out is left: the context is over, or it ran dry and waits for a fuller buffer. */
  #stop(queue) {
    if (!queue.ended && queue.holdAt === null) {
      this.underruns += 1;
      this.calmFor = 0;
      this.targetDepth = Math.min(this.maxDepth, this.targetDepth + this.step);
    }
    this.#fadeOut(queue);
    this.#retire();
  }

  /** Contexts that are ended and empty leave; the next one starts as its own utterance. */
  #retire() {
    for (let queue = this.#head(); queue && queue.ended && queue.buffered === 0 && queue.holdAt === null; queue = this.#head()) {
      this.finished.push(queue.report());
      this.contexts.delete(queue.number);
      this.closed.add(queue.number);
      this.playing = false;
    }
  }

  #fadeOut(queue) {
    this.playing = false;
    const tail = new Float32Array(Math.min(this.fadeLength, queue.available || queue.buffered));
    if (tail.length === 0) return;
    this.tailSource = { number: queue.number, position: queue.position };
    queue.take(tail, 0, tail.length);
    for (let i = 0; i < tail.length; i += 1) tail[i] *= 1 - (i + 1) / tail.length;
    this.tail = tail;
    this.tailOffset = 0;
  }

  #playTail(output, offset, runs) {
    const length = Math.min(output.length - offset, this.tail.length - this.tailOffset);
    output.set(this.tail.subarray(this.tailOffset, this.tailOffset + length), offset);
    const { number, position } = this.tailSource;
    runs.push({ number, offset, length, position: position + this.tailOffset });
    this.tailOffset += length;
    if (this.tailOffset === this.tail.length) this.tail = this.tailSource = null;
    return length;
  }
}
