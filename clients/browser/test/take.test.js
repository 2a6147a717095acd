/** Takes: samples as a WAV file, loudness in decibels, settings that give the same speech again. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { settingsOf, speechRequest } from '../settings.js';
import { Take } from '../take.js';
import { Takes } from '../takes.js';
import { Loudness } from '../waveform.js';

const tone = (amplitude, length) => Float32Array.from({ length }, (_, k) => amplitude * Math.sin((2 * Math.PI * k) / 48));

test('a take becomes a WAV file of the samples at their positions', async () => {
  const take = new Take({ voiceName: 'A', settings: new URLSearchParams() });
  take.add({ samples: Float32Array.of(0.5, -1, 2), position: 0, sampleRate: 24_000 });
  take.add({ samples: Float32Array.of(0.25), position: 4, sampleRate: 24_000 });
  const view = new DataView(await take.wav.arrayBuffer());
  assert.equal(view.getUint32(24, true), 24_000);
  assert.equal(view.getUint32(40, true), 10);
  assert.deepEqual([0, 1, 2, 3, 4].map((k) => view.getInt16(44 + 2 * k, true)), [16384, -32768, 32767, 0, 8192]);
});

test('a file is named by the first words and the seed', () => {
  const take = new Take({ voiceName: 'A', settings: new URLSearchParams() });
  Object.assign(take, { text: 'Écoute, it is 5 o’clock / now!', seed: 7 });
  assert.equal(take.fileName('wav'), 'écoute-it-is-5-o-7.wav');
  assert.equal(Object.assign(take, { text: '🙂', seed: undefined }).fileName('mp3'), 'speech.mp3');
});

test('loudness is linear in decibels, and the same however the samples arrive', () => {
  const [whole, parts] = [new Loudness(), new Loudness()];
  whole.add(tone(0.1, 48_000), 0, 48_000);
  for (let at = 0; at < 48_000; at += 960) parts.add(tone(0.1, 960), at, 48_000);
  assert.equal(whole.madeMs, 1000);
  assert.ok(Math.abs(whole.level(0, 500) - parts.level(0, 500)) < 1e-6);
  const quiet = new Loudness();
  quiet.add(tone(0.01, 48_000), 0, 48_000);
  assert.ok(Math.abs(whole.level(0, 500) - quiet.level(0, 500) - 20 / 36) < 0.01, '20 dB of 36');
  assert.equal(quiet.level(2000, 2100), 0, 'nothing is there');
});

test('the same settings name the voice and the seed that spoke, and compare nothing', () => {
  const settings = new URLSearchParams({ text: 'old', versus: 'b', speed: '1.5', source: 'llm', mode: 'live' });
  const same = settingsOf({ settings, text: 'new', voice: 'a', seed: 7 });
  assert.deepEqual(speechRequest(same, 'm', 'mp3'), { model: 'm', input: 'new', voice: 'a', response_format: 'mp3', speed: 1.5, seed: 7 });
  assert.equal(same.get('versus'), null);
  assert.equal(settings.get('text'), 'old', 'the take’s own stay');
});

test('a take is found by its text, voice, seed and settings if all of it is there', () => {
  const takes = new Takes({ querySelector: () => null }, {});
  const made = (voice, changes) => ({ settings: new URLSearchParams({ text: 'old', voice, speed: '1.5' }), text: 'new', voice, seed: 7, isWhole: true, ...changes });
  takes.all = [made('a', { isWhole: false }), made('a'), made('b')];
  const wanted = { settings: new URLSearchParams({ seed: '7', voice: 'b', versus: 'b', text: 'new', speed: '1.5' }), text: 'new', voice: 'a', seed: 7 };
  assert.equal(takes.find(wanted), takes.all[1]);
  assert.equal(takes.find({ ...wanted, voice: 'b' }), takes.all[2]);
  assert.equal(takes.find({ ...wanted, voice: 'c' }), undefined);
  assert.equal(takes.find({ ...wanted, seed: 8 }), undefined);
  assert.equal(takes.find({ ...wanted, text: 'newer' }), undefined);
});
