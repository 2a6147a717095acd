/** Text the way a language model writes it: tokens of a few characters, at an uneven but steady-on-average pace. */

/** @param {string} text @returns {string[]} pieces that join to `text`: words with their leading space, long ones cut */
export function tokens(text) {
  return text.match(/\s*[^\s]{1,6}|\s+$/gu) ?? [];
}

/**
 * @param {string} text
 * @param {object} options
 * @param {() => number} options.rate tokens a second, asked before each
 * @param {AbortSignal} options.signal
 * @yields {string}
 */
export async function* simulateModel(text, { rate, signal }) {
  for (const token of tokens(text)) {
    if (signal.aborted) return;
    yield token;
    const jitter = 0.5 + Math.random();
    await wait((1000 / rate()) * jitter, signal);
  }
}

function wait(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    }
    signal.addEventListener('abort', done);
  });
}
