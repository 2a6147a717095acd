import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

import { buildAudioFrame } from '../protocol.js';
import { RealtimeTTS } from '../realtime-tts.js';

const before = { WebSocket: globalThis.WebSocket, fetch: globalThis.fetch };
afterEach(() => Object.assign(globalThis, before));

const AUDIO = { codec: 'pcm_s16le', sample_rate: 8000, frame_ms: 20 };

/** A server that answers each text that ends with one packet. */
function serve() {
  globalThis.fetch = async () => ({ ok: true, status: 200, json: async () => ({}) });
  globalThis.WebSocket = class {
    static OPEN = 1;
    readyState = 1;
    numContexts = 0;
    constructor() {
      queueMicrotask(() => this.onopen());
    }
    send(frame) {
      const { type, context_id, text } = JSON.parse(frame);
      if (type === 'session.start') this.tell({ type: 'session.started', session_id: 's', voice: 'v', audio: AUDIO, limits: {} });
      if (type === 'text' && text === 'too much') {
        this.tell({ type: 'error', code: 'rate_limited', message: 'later', retryable: true, context_id, span: [5, 13] });
      } else if (type === 'text') {
        this.numContexts += 1;
        this.tell({ type: 'context.started', context_id, sequence: 0, number: this.numContexts, voice: 'v', seed: 1, audio: AUDIO });
      }
      if (type === 'hold') {
        const message = 'a draft has no speech yet';
        this.tell({ type: 'error', code: 'invalid_request', message, retryable: false, context_id });
      }
      if (type === 'end') {
        this.tell(buildAudioFrame({ number: this.numContexts, sequence: 1, pts: 0, payload: new Uint8Array(320) }));
        this.tell({ type: 'context.done', context_id, sequence: 2, audio_ms: 20, ttfa_ms: 1 });
      }
    }
    tell(message) {
      const data = message instanceof ArrayBuffer ? message : JSON.stringify(message);
      queueMicrotask(() => this.onmessage?.({ data }));
    }
    close() {}
  };
}

test('a session keeps nothing of the contexts that were heard to the end', async () => {
  serve();
  const tts = await RealtimeTTS.connect('ws://host/v1/stream', { playback: false, audio: { codec: 'pcm_s16le' } });
  let numSamples = 0;
  for (let turn = 0; turn < 3; turn += 1) {
    const context = tts.speak('Hello there.');
    context.addEventListener('audio', ({ detail }) => (numSamples += detail.samples.length));
    await context.finished;
  }
  assert.equal(numSamples, 3 * 160);
  assert.deepEqual([tts.contexts.size, tts.path.tracks.size, tts.path.numbers.size], [0, 0, 0]);
  await tts.close();
});

test('the end of the session ends what is still playing', { timeout: 10_000 }, async () => {
  serve();
  const tts = await RealtimeTTS.connect('ws://host/v1/stream', { playback: false, audio: { codec: 'pcm_s16le' } });
  tts.path.player = { heardMs: () => 12, playedMs: () => 15, push() {}, end() {}, hold() {}, resume: async () => {}, close: async () => {} };
  const context = tts.speak('Hello there.');
  await context.done;
  await tts.close();
  await context.finished;
  assert.equal(context.heardMs, 12);
  assert.equal((await context.hold()).playedMs, 12);
  assert.equal(tts.contexts.size, 0);
});

test('a hold that the server refuses ends', { timeout: 10_000 }, async () => {
  serve();
  const tts = await RealtimeTTS.connect('ws://host/v1/stream', { playback: false, audio: { codec: 'pcm_s16le' } });
  const context = tts.open({ draft: true });
  context.send('Hello there.');
  await assert.rejects(context.hold(), { code: 'invalid_request' });
  assert.equal(context.heldMs, null);
  await tts.close();
});

test('text that the server refused leaves the record of its context', async () => {
  serve();
  const tts = await RealtimeTTS.connect('ws://host/v1/stream', { playback: false, audio: { codec: 'pcm_s16le' } });
  const context = tts.open();
  context.send('One. ');
  context.send('too much');
  const refused = new Promise((resolve) => tts.addEventListener('error', ({ detail }) => resolve(detail)));
  assert.equal((await refused).code, 'rate_limited');
  assert.equal(context.text, 'One. ');
  await tts.close();
});
