import assert from 'node:assert/strict';
import { test } from 'node:test';

import { JitterBuffer } from '../jitter-buffer.js';

// 1 kHz: a sample is a millisecond. Defaults: play from 60, at most 200, fades of 8.
const make = (options = {}) => new JitterBuffer({ sampleRate: 1000, ...options });
const ones = (length) => new Float32Array(length).fill(1);
const ramp = (length, from = 0) => Float32Array.from({ length }, (_, i) => from + i + 1);

function pull(buffer, length = 10) {
  const output = new Float32Array(length).fill(99);
  return { output, runs: buffer.pull(output) };
}

function pullAll(buffer, blocks, length = 10) {
  const parts = Array.from({ length: blocks }, () => pull(buffer, length));
  return { output: parts.flatMap(({ output }) => [...output]), runs: parts.flatMap(({ runs }) => runs) };
}

test('it is silent until the target depth has arrived', () => {
  const buffer = make();
  buffer.push(1, ones(59));
  assert.deepEqual([...pull(buffer).output], Array(10).fill(0));
  buffer.push(1, ones(1));
  const { output } = pull(buffer);
  assert.ok(output[9] === 1 && output[0] === 0, 'plays, faded in');
});

test('a context that has ended plays however short it is', () => {
  const buffer = make();
  buffer.push(1, ones(20));
  buffer.end(1);
  assert.equal(pullAll(buffer, 3).runs.reduce((sum, run) => sum + run.length, 0), 20);
});

test('a scrap that nothing follows is played after a while', () => {
  const buffer = make();
  buffer.push(1, ones(30));
  assert.equal(pullAll(buffer, 12).runs.length, 0);
  assert.ok(pullAll(buffer, 2).runs.length > 0);
});

test('every sample is played once, in order, between the fades', () => {
  const buffer = make();
  for (let at = 0; at < 200; at += 20) buffer.push(1, ramp(20, at), at);
  buffer.end(1);
  const { output, runs } = pullAll(buffer, 30, 7);
  assert.deepEqual(output.slice(8, 192), [...ramp(184, 8)]);
  assert.ok(output.slice(200).every((sample) => sample === 0));
  let position = 0;
  for (const run of runs) {
    assert.equal(run.position, position);
    position += run.length;
  }
  assert.equal(position, 200);
});

test('start and end are faded, without a jump larger than one step', () => {
  const buffer = make();
  buffer.push(1, ones(100));
  buffer.end(1);
  const { output } = pullAll(buffer, 12);
  assert.equal(output[0], 0);
  const steps = output.slice(1).map((sample, i) => Math.abs(sample - output[i]));
  assert.ok(Math.max(...steps) <= 1 / 8 + 1e-6);
});

test('an underrun fades out, is counted, and raises the depth to wait for', () => {
  const buffer = make();
  buffer.push(1, ones(60));
  const { output } = pullAll(buffer, 8);
  const steps = output.slice(1).map((sample, i) => Math.abs(sample - output[i]));
  assert.ok(Math.max(...steps) <= 1 / 8 + 1e-6);
  assert.equal(buffer.underruns, 1);
  assert.equal(buffer.targetDepth, 80);
  buffer.push(1, ones(79));
  assert.equal(pull(buffer).runs.length, 0, 'waits for the new target');
  buffer.push(1, ones(1));
  assert.equal(pull(buffer).runs.length, 1);
});

test('the depth stays within its bounds and comes down in calm times', () => {
  const buffer = make({ calmMs: 500 });
  for (let i = 0; i < 9; i += 1) {
    buffer.push(1, ones(200));
    pullAll(buffer, 24);
  }
  assert.equal(buffer.targetDepth, 200);
  buffer.push(1, ones(9000));
  pullAll(buffer, 60);
  assert.equal(buffer.targetDepth, 180);
  pullAll(buffer, 600);
  assert.equal(buffer.targetDepth, 60);
});

test('the end of a context is no underrun', () => {
  const buffer = make();
  buffer.push(1, ones(70));
  buffer.end(1);
  pullAll(buffer, 10);
  assert.equal(buffer.underruns, 0);
  assert.deepEqual(buffer.takeFinished(), [{ number: 1, position: 70, played: 70, buffered: 0, ended: true }]);
  assert.deepEqual(buffer.takeFinished(), [], 'told once');
});

test('contexts play one after the other, whichever sends first later', () => {
  const buffer = make();
  buffer.push(1, ones(60));
  buffer.push(2, ramp(60));
  buffer.push(1, ones(40));
  buffer.end(1);
  buffer.end(2);
  const numbers = pullAll(buffer, 20).runs.map((run) => run.number);
  assert.deepEqual([...new Set(numbers)], [1, 2]);
  assert.equal(numbers.lastIndexOf(1) + 1, numbers.indexOf(2));
});

test('a context in an underrun is waited for; the next does not cut in', () => {
  const buffer = make();
  buffer.push(1, ones(60));
  buffer.push(2, ones(60));
  buffer.end(2);
  pullAll(buffer, 6);
  assert.ok(pullAll(buffer, 20).runs.every((run) => run.number === 1));
});

test('after clear nothing but the fade-out is played, however much follows', () => {
  const buffer = make();
  buffer.push(1, ones(500));
  pullAll(buffer, 5);
  buffer.clear(1);
  const { output, runs } = pullAll(buffer, 10);
  assert.equal(runs.reduce((sum, run) => sum + run.length, 0), 8);
  assert.ok(output.slice(8).every((sample) => sample === 0));
  assert.ok(output.slice(0, 8).every((sample, i) => i === 0 || sample < output[i - 1]), 'it fades');
  buffer.push(1, ones(500), 500);
  buffer.end(1);
  assert.deepEqual(pullAll(buffer, 20).runs, []);
});

test('clearing a waiting context is silent and leaves the playing one alone', () => {
  const buffer = make();
  buffer.push(1, ones(100));
  buffer.push(2, ones(100));
  pull(buffer);
  buffer.clear(2);
  buffer.end(1);
  const { runs } = pullAll(buffer, 30);
  assert.deepEqual([...new Set(runs.map((run) => run.number))], [1]);
  assert.equal(runs.at(-1).position + runs.at(-1).length, 100);
});

test('clearing everything lets a new context start at once', () => {
  const buffer = make();
  buffer.push(1, ones(500));
  buffer.push(2, ones(500));
  pull(buffer);
  buffer.clear();
  buffer.push(3, ones(60));
  const numbers = pullAll(buffer, 3).runs.map((run) => run.number);
  assert.deepEqual([...new Set(numbers)], [1, 3]);
  assert.deepEqual(buffer.takeFinished().map((report) => report.number), [1, 2]);
});

test('positions follow the timestamps across a gap', () => {
  const buffer = make();
  buffer.push(1, ones(60), 0);
  buffer.push(1, ones(60), 160);
  buffer.end(1);
  pullAll(buffer, 12);
  const [report] = buffer.takeFinished();
  assert.equal(report.position, 220);
  assert.equal(report.played, 120);
});

test('random arrivals and pulls lose and repeat nothing', () => {
  let seed = 7;
  const random = (n) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % n;
  const buffer = make();
  let [sent, next] = [0, 0];
  for (let turn = 0; turn < 2000; turn += 1) {
    if (random(3) === 0 && sent < 20_000) {
      const length = 1 + random(60);
      buffer.push(1, ramp(length, sent), sent);
      sent += length;
    }
    for (const run of pull(buffer, 1 + random(40)).runs) {
      assert.equal(run.position, next);
      next += run.length;
    }
  }
  buffer.end(1);
  for (const run of pullAll(buffer, 2000, 40).runs) {
    assert.equal(run.position, next);
    next += run.length;
  }
  assert.equal(next, sent);
});
