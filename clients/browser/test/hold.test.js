import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SpeechContext } from '../context.js';
import { ConnectionLost, ServerError } from '../errors.js';
import { JitterBuffer } from '../jitter-buffer.js';

const HELD = { played_ms: 450, spoken_text: 'One two', spoken_chars: 7, timeout_s: 30 };
const WORDS = [
  { text: 'One', start: 0, end: 3, start_ms: 0, end_ms: 200 },
  { text: 'two', start: 4, end: 7, start_ms: 250, end_ms: 450 },
];

function speaking() {
  const sent = [];
  const line = { online: true, played: 300, calls: [] };
  const context = new SpeechContext('c', {}, {
    send: (frame) => line.online && sent.push(JSON.parse(frame)) > 0,
    heardMs: () => line.played,
    playedMs: () => line.played,
    hold: (_, ms) => line.calls.push(['hold', ms]),
    release: (_, ms) => line.calls.push(['release', ms]),
    silence: async () => line.calls.push(['silence']),
    maxChars: () => Infinity,
  });
  const receive = (type, fields = {}) => context.receive({ type, context_id: 'c', ...fields });
  context.send('One two three. ');
  receive('context.started', { sequence: 0, number: 1, voice: 'v', seed: 1 });
  receive('words', { sequence: 1, timing: 'measured', words: WORDS });
  sent.length = 0;
  return { context, sent, line, receive };
}

test('the player stops at the end of the word before the server has answered', async () => {
  const { context, sent, line, receive } = speaking();
  const holding = context.hold();
  assert.deepEqual(line.calls, [['hold', 450]]);
  assert.deepEqual(sent, [{ type: 'hold', context_id: 'c', at: 'now', played_ms: 450 }]);
  receive('context.held', HELD);
  assert.deepEqual(await holding, { playedMs: 450, spokenText: 'One two', spokenChars: 7, wordShare: 0 });
});

test('between words, and at once, it stops where it is', async () => {
  for (const [played, options] of [[230, {}], [300, { at: 'now' }]]) {
    const { context, line, receive } = speaking();
    line.played = played;
    const holding = context.hold(options);
    receive('context.held', HELD);
    await holding;
    assert.deepEqual(line.calls, [['hold', played]]);
  }
});

test('it goes on where the server says', async () => {
  const { context, sent, line, receive } = speaking();
  const holding = context.hold();
  receive('context.held', HELD);
  await holding;
  const releasing = context.release({ clauseAfterMs: 500 });
  assert.deepEqual(sent.at(-1), { type: 'release', context_id: 'c', clause_after_ms: 500 });
  receive('context.released', { from_ms: 0 });
  assert.equal(await releasing, 0);
  assert.deepEqual(line.calls.at(-1), ['release', 0]);
  assert.equal(context.heldMs, null);
  assert.equal(await context.release(), 300); // not held: nothing to ask
});

test('a context that was sent completely is held too', async () => {
  const { context, receive } = speaking();
  receive('context.done', { sequence: 2, audio_ms: 900 });
  const holding = context.hold();
  receive('context.held', HELD);
  assert.equal((await holding).spokenText, 'One two');
});

test('what has no answer is asked again after a reconnect, and only that', async () => {
  const { context, sent, line, receive } = speaking();
  line.online = false;
  const holding = context.hold();
  line.online = true;
  context.resend({ received_chars: 15, num_flushes: 0, ended: false });
  assert.deepEqual(sent.map(({ type }) => type), ['hold']);
  receive('context.held', HELD);
  await holding;
  context.resend({ received_chars: 15, num_flushes: 0, ended: false });
  assert.equal(sent.length, 1);
});

test('in a new session it is held again, and goes on where it stopped', async () => {
  const { context, sent, receive } = speaking();
  const holding = context.hold();
  receive('context.held', HELD);
  await holding;
  context.beginAgain(600);
  assert.deepEqual(sent.slice(1).map(({ type }) => type), ['text', 'hold']);
  receive('context.held', { ...HELD, played_ms: 0 });
  const releasing = context.release();
  receive('context.released', { from_ms: 0 });
  assert.equal(await releasing, 450);
});

test('a cancel, a failure and a refusal end the wait', async () => {
  for (const end of [
    ({ context }) => context.cancel(),
    ({ context }) => context.fail(new ConnectionLost('gone')),
    ({ receive }) => receive('context.cancelled', { sequence: 2, ...HELD }),
  ]) {
    const made = speaking();
    const holding = made.context.hold();
    end(made);
    await assert.rejects(holding);
    assert.equal(made.context.heldMs, null);
  }
});

test('after a failure or a refusal the player goes on where it stopped', async () => {
  for (const end of [
    ({ context }) => context.fail(new ConnectionLost('gone')),
    ({ context }) => context.refused(new ServerError('The context is done', { code: 'context_closed' })),
  ]) {
    const made = speaking();
    const holding = made.context.hold();
    made.receive('context.held', HELD);
    await holding;
    const buffer = make(); // with another context behind the held one
    buffer.push(1, ramp(500), 0);
    buffer.hold(1, 450);
    buffer.end(1);
    buffer.push(2, ramp(100), 0);
    buffer.end(2);
    play(buffer, 60);
    made.line.calls.length = 0;
    end(made);
    assert.deepEqual(made.line.calls, [['release', 450]]);
    buffer.release(1, 450);
    assert.deepEqual(play(buffer, 30), [...range(450, 500), ...range(0, 100)]);
  }
});

test('what is cancelled does not go on first', async () => {
  for (const end of [
    ({ context }) => context.cancel(),
    ({ receive }) => receive('context.cancelled', { sequence: 2, ...HELD }),
  ]) {
    const made = speaking();
    const holding = made.context.hold();
    end(made);
    await assert.rejects(holding);
    assert.ok(made.line.calls.every(([what]) => what !== 'release'));
  }
});

test('what is over is not asked for', async () => {
  const { context, sent, receive } = speaking();
  receive('context.done', { sequence: 2, audio_ms: 900 });
  context.heardToTheEnd();
  assert.equal((await context.hold()).spokenText, 'One two');
  assert.deepEqual(sent, []);
});

// ---- the player: 1 kHz, a sample is a millisecond; fades of 8 ---------------------------------------------------------

const make = (options = {}) => new JitterBuffer({ sampleRate: 1000, ...options });
const ramp = (length, from = 0) => Float32Array.from({ length }, (_, i) => from + i + 1);

/** The positions that were played, in order. */
function play(buffer, blocks) {
  const positions = [];
  for (let block = 0; block < blocks; block += 1) {
    for (const { position, length } of buffer.pull(new Float32Array(10))) {
      for (let i = 0; i < length; i += 1) positions.push(position + i);
    }
  }
  return positions;
}

const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

test('it plays up to where it is held, fades, and waits', () => {
  const buffer = make();
  buffer.push(1, ramp(200), 0);
  assert.deepEqual(play(buffer, 5), range(0, 50));
  buffer.hold(1, 95);
  const output = new Float32Array(60);
  buffer.pull(output);
  assert.deepEqual([...output.subarray(0, 37)], [...ramp(37, 50)]);
  assert.ok(output[44] === 0 && output[43] < 20 && output.subarray(45).every((sample) => sample === 0));
  buffer.push(1, ramp(100, 200), 200);
  assert.deepEqual(play(buffer, 20), []);
  assert.equal(buffer.underruns, 0);
});

test('a place that is past stops it at once, with a fade', () => {
  const buffer = make();
  buffer.push(1, ramp(200), 0);
  play(buffer, 5);
  buffer.hold(1, 20);
  assert.deepEqual(play(buffer, 5), range(50, 58));
});

for (const [from, what] of [[95, 'at the next word'], [30, 'at what was played before']]) {
  test(`it goes on ${what}, without a sample lost`, () => {
    const buffer = make();
    for (let at = 0; at < 200; at += 20) buffer.push(1, ramp(20, at), at);
    play(buffer, 5);
    buffer.hold(1, 95);
    play(buffer, 20);
    buffer.release(1, from);
    buffer.end(1);
    assert.deepEqual(play(buffer, 40), range(from, 200));
    assert.equal(buffer.takeFinished().length, 1);
  });
}

for (const position of [80, 120]) {
  test(`a context of 80 ms that is held at ${position} is over when it is released`, () => {
    const buffer = make();
    buffer.push(1, ramp(80), 0);
    buffer.hold(1, position);
    play(buffer, 20);
    buffer.end(1);
    assert.deepEqual(buffer.takeFinished(), []);
    buffer.release(1, position);
    play(buffer, 2);
    assert.equal(buffer.takeFinished().length, 1);
  });
}

test('played speech is kept for a while only', () => {
  const buffer = make({ recentMs: 100 });
  for (let at = 0; at < 1000; at += 20) buffer.push(1, ramp(20, at), at);
  play(buffer, 60);
  const [queue] = buffer.contexts.values();
  assert.ok(queue.recent.length <= 6);
  buffer.hold(1, 0);
  buffer.release(1, 0);
  assert.ok(play(buffer, 1)[0] >= 480);
});

test('a hold of what was dropped changes nothing', () => {
  const buffer = make();
  buffer.push(1, ramp(80), 0);
  buffer.clear(1);
  buffer.hold(1, 10);
  buffer.release(1, 10);
  assert.equal(buffer.contexts.size, 0);
});
