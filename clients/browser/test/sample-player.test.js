/** The player of recordings, with an audio element that rejects as browsers do: `pause()` ends a `play()` that has not begun. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

class FakeAudio extends EventTarget {
  play() {
    return new Promise((resolve, reject) => (this.reject = reject));
  }

  pause() {
    this.reject?.(new Error('AbortError'));
  }

  removeAttribute() {}
}

test('a recording that is asked for before the last one has begun is played', async () => {
  globalThis.Audio = FakeAudio;
  const { SamplePlayer } = await import('../sample-player.js');
  const player = new SamplePlayer();
  const first = player.play(new Blob(['first']), 'first');
  player.play(new Blob(['second']), 'second');
  await first;
  assert.deepEqual([player.playing, player.of], [true, 'second']);
  player.stop();
  assert.equal(player.playing, false);
});
