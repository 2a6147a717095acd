/**
 * Where in a context the listener is, at any moment: the worklet reports "position P was reached at time T", the
 * loudspeaker is `outputLatency` behind, so what is heard now is what was played that much earlier.
 */
export class PlaybackClock {
  /** @param {number} [historyS] how far back reports are kept; covers the largest output latency (wireless headsets) */
  constructor(historyS = 2) {
    this.historyS = historyS;
    /** @type {{time: number, position: number}[]} */
    this.reports = [];
  }

  /** @param {number} time seconds on the audio clock @param {number} position samples of the context played by then */
  add(time, position) {
    const last = this.reports.at(-1);
    if (last && time < last.time) return;
    this.reports.push({ time, position });
    while (this.reports.length > 2 && this.reports[1].time < time - this.historyS) this.reports.shift();
  }

  /** Samples of the context that had been played at `time`; never beyond the last report. @param {number} time */
  at(time) {
    const { reports } = this;
    if (reports.length === 0 || time < reports[0].time) return 0;
    let later = reports.length - 1;
    if (time >= reports[later].time) return reports[later].position;
    while (reports[later - 1].time > time) later -= 1;
    const [a, b] = [reports[later - 1], reports[later]];
    if (b.time === a.time) return b.position;
    return a.position + ((b.position - a.position) * (time - a.time)) / (b.time - a.time);
  }

  /** The last position reported. */
  get latest() {
    return this.reports.at(-1)?.position ?? 0;
  }
}
