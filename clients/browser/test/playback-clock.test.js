import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PlaybackClock } from '../playback-clock.js';

test('nothing is heard before the first report', () => {
  assert.equal(new PlaybackClock().at(5), 0);
});

test('positions between two reports are interpolated', () => {
  const clock = new PlaybackClock();
  clock.add(1, 0);
  clock.add(2, 1000);
  assert.equal(clock.at(1.25), 250);
});

test('a pause of the playing is a pause of the hearing', () => {
  const clock = new PlaybackClock();
  for (const [time, position] of [[1, 0], [2, 1000], [3, 1000], [4, 2000]]) clock.add(time, position);
  assert.equal(clock.at(2.5), 1000);
  assert.equal(clock.at(3.5), 1500);
});

test('it never runs ahead of what was reported', () => {
  const clock = new PlaybackClock();
  clock.add(1, 480);
  assert.equal(clock.at(9), 480);
  assert.equal(clock.latest, 480);
});

test('reports that arrive late are ignored, old ones forgotten', () => {
  const clock = new PlaybackClock(1);
  for (let time = 0; time <= 10; time += 0.02) clock.add(time, time * 1000);
  clock.add(3, 1);
  assert.ok(clock.reports.length < 60);
  assert.ok(Math.abs(clock.at(9.51) - 9510) < 1);
});
