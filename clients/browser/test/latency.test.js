/** Stages of the time to first audio. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { median, stagesOf, totalOf } from '../latency.js';

const timing = { sentAt: 100, decodedAt: 180, audibleAt: 300 };

test('the stages add up to the time to first audio, whatever is known of them', () => {
  assert.equal(stagesOf({ ...timing, audibleAt: null }, 60, 60), null);
  assert.deepEqual(stagesOf(timing, null, 60), { text: 0, server: 80, network: 0, buffer: 60, device: 60 });
  assert.deepEqual(stagesOf({ ...timing, askedAt: 40 }, 70, 60), { text: 60, server: 70, network: 10, buffer: 60, device: 60 });
  for (const [serverMs, bufferMs] of [[500, 60], [70, 500], [undefined, 0]]) {
    const stages = stagesOf(timing, serverMs, bufferMs);
    assert.equal(totalOf(stages), 200);
    assert.ok(Math.min(...Object.values(stages)) >= 0);
  }
});

test('the median of an even number lies between two', () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 2, 3]), 2.5);
  assert.ok(Number.isNaN(median([])));
});
