/** Speech against loud sounds. Sounds are synthetic: a voice is a train of pulses through two resonances. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { HoldPolicy } from '../hold-policy.js';
import { SpeechDetector, levelDb } from '../speech-detector.js';

const RATE_HZ = 48_000;
const BLOCK = 128;

/** White noise, the same every time. */
function noise(seconds, level, seed = 1) {
  let state = seed;
  const next = () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 31 - 1;
  return Float32Array.from({ length: seconds * RATE_HZ }, () => next() * level * Math.sqrt(3));
}

/** Noise as a fan makes it: deep. */
function rumble(seconds, level) {
  let last = 0;
  const made = noise(seconds, 1).map((sample) => (last = 0.98 * last + 0.02 * sample));
  return scaled(made, level);
}

/** Syllables of 150 ms and 60 ms between them, on a pitch that falls. */
function voice(seconds, level, pitchHz = 120) {
  const made = new Float32Array(seconds * RATE_HZ);
  let phase = 0;
  for (let i = 0; i < made.length; i += 1) {
    const place = (i / RATE_HZ) % 0.21;
    phase += (pitchHz * (1.1 - (0.2 * i) / made.length)) / RATE_HZ;
    const pulse = phase >= 1 ? 1 : 0;
    phase -= pulse;
    made[i] = place < 0.15 ? pulse * Math.sin((Math.PI * place) / 0.15) : 0;
  }
  for (const [hz, width] of [[600, 100], [1_200, 120]]) {
    const r = Math.exp((-Math.PI * width) / RATE_HZ);
    for (let i = 2; i < made.length; i += 1) made[i] += 2 * r * Math.cos((2 * Math.PI * hz) / RATE_HZ) * made[i - 1] - r * r * made[i - 2];
  }
  return scaled(made, level);
}

const tone = (seconds, hz, level) => Float32Array.from({ length: seconds * RATE_HZ }, (_, i) => level * Math.SQRT2 * Math.sin((2 * Math.PI * hz * i) / RATE_HZ));

/** To a root mean square of `level`. */
function scaled(samples, level) {
  const factor = level / 10 ** (levelDb(samples) / 20);
  return samples.map((sample) => sample * factor);
}

function joined(...parts) {
  const made = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let place = 0;
  for (const part of parts) {
    made.set(part, place);
    place += part.length;
  }
  return made;
}

const mixed = (a, b) => a.map((sample, i) => sample + (b[i] ?? 0));

/** @returns {[string, number][]} changes, each with when, s */
function changes(samples, block = BLOCK) {
  const detector = new SpeechDetector({ sampleRate: RATE_HZ });
  const found = [];
  for (let i = 0; i < samples.length; i += block) {
    for (const change of detector.feed(samples.subarray(i, i + block))) found.push([change, (i + block) / RATE_HZ]);
  }
  return found;
}

const QUIET = 0.0003;

for (const pitchHz of [100, 220]) {
  for (const level of [0.02, 0.2]) {
    test(`a voice at ${pitchHz} Hz, level ${level}, begins within 0.3 s and ends once it is over`, () => {
      const [started, stopped, ...rest] = changes(joined(noise(1, QUIET), voice(2, level, pitchHz), noise(1, QUIET)));
      assert.deepEqual([started[0], stopped[0], rest], ['started', 'stopped', []]);
      assert.ok(started[1] > 1.08 && started[1] < 1.3, `after ${started[1] - 1} s`);
      assert.ok(stopped[1] > 3.3 && stopped[1] < 3.6, `${stopped[1]}`);
    });
  }
}

test('a voice is heard in a room that is not quiet', () => {
  const found = changes(mixed(rumble(5, 0.01), joined(new Float32Array(RATE_HZ), voice(2, 0.15))));
  assert.deepEqual(found.map(([change]) => change), ['started', 'stopped']);
});

for (const [name, make] of [['white noise', noise], ['rumble', rumble]]) {
  for (const level of [0.003, 0.03, 0.2]) {
    test(`${name} of ${level} is no speech, neither from the start nor when it is switched on`, () => {
      assert.deepEqual(changes(make(6, level)), []);
      assert.deepEqual(changes(joined(noise(2, QUIET), make(6, level))), []);
    });
  }
}

test('a hum that was always there is no speech, and a voice over it is', () => {
  assert.deepEqual(changes(tone(5, 100, 0.02)), []);
  const found = changes(mixed(tone(5, 100, 0.005), joined(new Float32Array(RATE_HZ), voice(2, 0.1))));
  assert.deepEqual(found.map(([change]) => change), ['started', 'stopped']);
});

test('keys and claps are no speech', () => {
  const keys = Array.from({ length: 20 }, (_, i) => joined(noise(0.015, 0.3, i + 1), noise(0.15, QUIET)));
  assert.deepEqual(changes(joined(noise(1, QUIET), ...keys)), []);
  assert.deepEqual(changes(joined(noise(1, QUIET), noise(0.2, 0.5), noise(1, QUIET))), []);
});

test('silence is silence', () => {
  assert.deepEqual(changes(new Float32Array(2 * RATE_HZ)), []);
  assert.equal(levelDb(new Float32Array(8)), -90);
  assert.ok(Math.abs(levelDb(new Float32Array(8).fill(0.1)) + 20) < 1e-4);
});

test('into what pieces the samples are cut does not matter', () => {
  const samples = joined(noise(0.5, QUIET), voice(1, 0.1), noise(0.6, QUIET));
  const kinds = (block) => changes(samples, block).map(([change]) => change);
  for (const block of [1, 100, 960, 5_000, samples.length]) assert.deepEqual(kinds(block), ['started', 'stopped']);
});

test('another sample rate', () => {
  const detector = new SpeechDetector({ sampleRate: RATE_HZ / 3 });
  const samples = joined(noise(1, QUIET), voice(1, 0.1)).filter((_, i) => i % 3 === 0);
  assert.deepEqual(detector.feed(samples), ['started']);
});

/** What the policy does with these sounds while speech plays, and when, ms. */
function actions(samples) {
  const [detector, policy] = [new SpeechDetector({ sampleRate: RATE_HZ }), new HoldPolicy()];
  const taken = [];
  for (let start = 0; start < samples.length; start += BLOCK) {
    detector.feed(samples.subarray(start, start + BLOCK));
    const action = policy.update(detector.activity, taken.at(-1)?.[0] !== 'cancel');
    if (action) taken.push([action, (1000 * start) / RATE_HZ]);
  }
  return taken;
}

test('speech is held at a sound, goes on after a nod, and ends with an interruption', () => {
  const quiet = (seconds) => new Float32Array(seconds * RATE_HZ);
  const join = (...parts) => Float32Array.from(parts.flatMap((part) => [...part]));
  assert.deepEqual(actions(quiet(2)), []);
  const nod = actions(join(quiet(1), voice(0.3, 0.1), quiet(1)));
  assert.deepEqual(nod.map(([action]) => action), ['hold', 'release']);
  const [held, released] = nod.map(([, at]) => at - 1000);
  assert.ok(held > 100 && held < 250, `held after ${held} ms`);
  assert.ok(released > 400 && released < 700, `released after ${released} ms`);
  const interruption = actions(join(quiet(1), voice(1.5, 0.1), quiet(1)));
  assert.deepEqual(interruption.map(([action]) => action), ['hold', 'cancel']);
  const cancelled = interruption[1][1] - 1000;
  assert.ok(cancelled > 450 && cancelled < 750, `cancelled after ${cancelled} ms`);
  const twice = actions(join(quiet(1), voice(0.3, 0.1), quiet(1), voice(0.3, 0.1), quiet(1)));
  assert.deepEqual(twice.map(([action]) => action), ['hold', 'release', 'hold', 'release']);
});

test('nothing is held while nothing plays, and the end of a sound ends the hold', () => {
  const policy = new HoldPolicy();
  assert.equal(policy.update({ speaking: true, soundMs: 120, quietMs: 0 }, false), null);
  assert.equal(policy.update({ speaking: true, soundMs: 140, quietMs: 0 }, true), 'hold');
  assert.equal(policy.update({ speaking: true, soundMs: 140, quietMs: 180 }, false), null);
  assert.equal(policy.update({ speaking: false, soundMs: 0, quietMs: 0 }, false), 'release');
  assert.equal(policy.update({ speaking: false, soundMs: 0, quietMs: 0 }, true), null);
});
