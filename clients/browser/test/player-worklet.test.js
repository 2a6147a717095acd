import assert from 'node:assert/strict';
import { test } from 'node:test';

const RATE_HZ = 48_000;
const BLOCK = 128;

/** The processor as the audio thread runs it. */
async function processor(options = {}) {
  let Processor;
  const sent = [];
  globalThis.AudioWorkletProcessor = class {
    port = { postMessage: (message) => sent.push(message) };
  };
  globalThis.registerProcessor = (_name, registered) => (Processor = registered);
  Object.assign(globalThis, { sampleRate: RATE_HZ, currentTime: 0 });
  await import(`../player-worklet.js?${Math.random()}`);
  const made = new Processor({ processorOptions: options });
  const run = (blocks) => {
    for (let i = 0; i < blocks; i += 1, globalThis.currentTime += BLOCK / RATE_HZ) made.process([], [[new Float32Array(BLOCK)]]);
  };
  const finished = () => sent.filter(({ type }) => type === 'report').flatMap((report) => report.finished.map(({ number }) => number));
  return { receive: (message) => made.receive(message), run, finished, sent };
}

test('a context without a single sample is reported as finished', async () => {
  const { receive, run, finished } = await processor();
  receive({ type: 'end', number: 1 });
  run(1);
  assert.deepEqual(finished(), [1]);
});

test('an empty context waits for the one before it', async () => {
  const { receive, run, finished } = await processor();
  receive({ type: 'push', number: 1, samples: new Float32Array(RATE_HZ / 10), position: 0 });
  receive({ type: 'end', number: 2 });
  run(1);
  assert.deepEqual(finished(), []);
  receive({ type: 'end', number: 1 });
  run(RATE_HZ / 4 / BLOCK);
  assert.deepEqual(finished(), [1, 2]);
});

test('every sample that is played is tapped before the report that tells of it', async () => {
  const { receive, run, sent } = await processor({ tap: true });
  const samples = Float32Array.from({ length: RATE_HZ / 10 }, (_, k) => k);
  receive({ type: 'push', number: 1, samples: samples.slice(), position: 0 });
  receive({ type: 'end', number: 1 });
  run(RATE_HZ / 4 / BLOCK);
  let tapped = 0;
  for (const message of sent) {
    if (message.type === 'tap') for (const run of message.runs) tapped = run.position + run.samples.length;
    if (message.type !== 'report') continue;
    for (const { position } of [...message.contexts, ...message.finished]) assert.equal(tapped, position);
  }
  const taps = sent.filter(({ type }) => type === 'tap');
  assert.equal(taps.flatMap(({ runs }) => runs).reduce((sum, run) => sum + run.samples.length, 0), samples.length);
  assert.ok(taps.length < 10, 'in a few messages');
});
