import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';

import { RealtimeTTS } from '../realtime-tts.js';

const before = { WebSocket: globalThis.WebSocket, fetch: globalThis.fetch };
let server;

/** A server that makes voices, and starts sessions unless it is full. */
function serve({ refusal = null, full = false } = {}) {
  const seen = { forms: [], deleted: [], started: [], keys: [] };
  globalThis.fetch = async (url, { method = 'GET', body, headers }) => {
    const { pathname } = new URL(url);
    if (method === 'POST' && pathname === '/v1/voices') {
      seen.keys.push(headers?.Authorization);
      seen.forms.push(Object.fromEntries(body));
      if (refusal) return { ok: false, status: 422, json: async () => refusal };
      return { ok: true, status: 201, json: async () => ({ id: `voice-${seen.forms.length}`, warnings: [] }) };
    }
    if (method === 'DELETE') {
      seen.deleted.push(pathname);
      return { ok: true, status: 204, json: async () => assert.fail('no body') };
    }
    return { ok: true, status: 200, json: async () => ({}) };
  };
  globalThis.WebSocket = class {
    static OPEN = 1;
    constructor() {
      queueMicrotask(() => {
        if (full) return this.onclose({ code: 1013, reason: 'overloaded' });
        this.readyState = 1;
        return this.onopen();
      });
    }
    send(frame) {
      const message = JSON.parse(frame);
      seen.started.push(message);
      const answer = { type: 'session.started', session_id: 's', voice: message.voice, audio: message.audio, limits: {} };
      queueMicrotask(() => this.onmessage({ data: JSON.stringify(answer) }));
    }
    close() {}
  };
  return seen;
}

const options = { playback: false, audio: { codec: 'pcm_s16le' }, apiKey: 'k' };
const reference = new Blob(['RIFF'], { type: 'audio/wav' });

beforeEach(() => {
  server = null;
});
afterEach(() => Object.assign(globalThis, before));

test('recordings in the place of a voice are made one, which goes with the session', async () => {
  server = serve();
  const voice = { reference, prompt: reference, promptText: 'hello', consent: true };
  const tts = await RealtimeTTS.connect('ws://host/v1/stream', { ...options, voice });
  const [form] = server.forms;
  assert.equal(server.started[0].voice, 'voice-1');
  assert.deepEqual({ ...form, reference: form.reference.size, prompt: form.prompt.size }, {
    ttl_s: '3600', reference: 4, prompt: 4, prompt_text: 'hello', consent: 'true',
  });
  assert.deepEqual(server.keys, ['Bearer k']);
  assert.equal(await tts.lendVoice({ reference, consent: true }), 'voice-2');
  await tts.close();
  assert.deepEqual(server.deleted, ['/v1/voices/voice-1', '/v1/voices/voice-2']);
});

test('a recording that makes no voice is refused with its reason, and no socket is opened', async () => {
  server = serve({ refusal: { code: 'recording_too_short', message: 'too short', retryable: false, field: 'reference' } });
  const refused = RealtimeTTS.connect('ws://host/v1/stream', { ...options, voice: { reference, consent: true } });
  await assert.rejects(refused, { code: 'recording_too_short', field: 'reference' });
  assert.deepEqual([server.started, server.deleted], [[], []]);
});

test('a session that cannot be had leaves no voice behind', async () => {
  server = serve({ full: true });
  const refused = RealtimeTTS.connect('ws://host/v1/stream', { ...options, voice: { reference, consent: true } });
  await assert.rejects(refused);
  assert.deepEqual(server.deleted, ['/v1/voices/voice-1']);
});
