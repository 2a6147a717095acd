import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ProtocolError } from '../errors.js';
import * as protocol from '../protocol.js';

test('an audio frame survives building and parsing', () => {
  const payload = Uint8Array.of(1, 2, 250);
  const packet = { number: 0xfffffffe, sequence: 0x80000001, pts: 2 ** 40 + 3, payload };
  assert.deepEqual(protocol.parseAudioFrame(protocol.buildAudioFrame(packet)), packet);
});

test('the audio header is laid out big-endian as documented', () => {
  const bytes = Uint8Array.from([
    1, 1, 0, 0, // version, kind, flags
    0, 0, 1, 2, // context number
    0, 0, 0, 9, // sequence
    0, 0, 0, 0, 0, 0, 3, 0xc0, // pts
    0xaa, 0xbb,
  ]);
  const packet = protocol.parseAudioFrame(bytes.buffer);
  assert.deepEqual(packet, { number: 258, sequence: 9, pts: 960, payload: Uint8Array.of(0xaa, 0xbb) });
});

test('a frame shorter than its header is refused', () => {
  for (const size of [0, 1, protocol.AUDIO_HEADER_BYTES - 1]) {
    assert.throws(() => protocol.parseAudioFrame(new ArrayBuffer(size)), ProtocolError);
  }
});

test('a frame of another version is refused, of an unknown kind ignored', () => {
  const frame = protocol.buildAudioFrame({ number: 1, sequence: 1, pts: 0, payload: new Uint8Array(2) });
  new DataView(frame).setUint8(1, 77);
  assert.equal(protocol.parseAudioFrame(frame), null);
  new DataView(frame).setUint8(0, 2);
  assert.throws(() => protocol.parseAudioFrame(frame), /version 2/);
});

test('a timestamp beyond exact integers is refused', () => {
  const frame = protocol.buildAudioFrame({ number: 1, sequence: 1, pts: 0, payload: new Uint8Array(2) });
  new DataView(frame).setBigUint64(12, 2n ** 60n);
  assert.throws(() => protocol.parseAudioFrame(frame), ProtocolError);
});

for (const frame of ['', '{', 'null', '[]', '"text"', '3', '{}', '{"type":3}']) {
  test(`the text frame ${JSON.stringify(frame)} is refused`, () => {
    assert.throws(() => protocol.parseMessage(frame), ProtocolError);
  });
}

test('a known message lacking a field, or with one of another type, is refused and the field named', () => {
  const started = { type: 'context.started', context_id: 'c', sequence: 0, number: 1 };
  assert.equal(protocol.parseMessage(JSON.stringify(started)).number, 1);
  assert.throws(() => protocol.parseMessage(JSON.stringify({ ...started, number: '1' })), /number of type string/);
  assert.throws(() => protocol.parseMessage(JSON.stringify({ ...started, context_id: undefined })), /context_id/);
});

test('each word of a words message is checked', () => {
  const words = (...list) => JSON.stringify({ type: 'words', context_id: 'c', sequence: 1, words: list });
  const good = { text: 'Hi', start: 0, end: 2, start_ms: 0, end_ms: 120 };
  assert.equal(protocol.parseMessage(words(good)).words.length, 1);
  assert.throws(() => protocol.parseMessage(words(good, { ...good, end_ms: null })), /end_ms/);
  assert.throws(() => protocol.parseMessage(words(null)), ProtocolError);
});

test('a message of an unknown type passes, for servers newer than this client', () => {
  assert.deepEqual(protocol.parseMessage('{"type":"weather","sunny":true}'), { type: 'weather', sunny: true });
});

test('client messages carry the wire names and leave out what is not set', () => {
  const sent = (frame) => JSON.parse(frame);
  assert.deepEqual(sent(protocol.startSession({ voice: undefined, audio: { codec: 'opus', sample_rate: 48000 } })), {
    type: 'session.start', audio: { codec: 'opus', sample_rate: 48000 },
  });
  assert.deepEqual(sent(protocol.text('c1', 'Hello ', { params: { seed: 3 } })), {
    type: 'text', context_id: 'c1', text: 'Hello ', params: { seed: 3 },
  });
  assert.deepEqual(sent(protocol.cancel()), { type: 'cancel' });
  assert.deepEqual(sent(protocol.playback('c1', 12.3456)), { type: 'playback', context_id: 'c1', played_ms: 12.3 });
  assert.deepEqual(sent(protocol.resumeSession('s', { c1: -1 })), {
    type: 'session.resume', session_id: 's', contexts: { c1: -1 },
  });
});

test('a key that no subprotocol can carry is refused before a request is sent', () => {
  assert.deepEqual(protocol.subprotocols(), ['realtime-tts.v1']);
  assert.deepEqual(protocol.subprotocols('rtts_a-b_9'), ['realtime-tts.v1', 'realtime-tts.key.rtts_a-b_9']);
  protocol.requireKey(undefined);
  for (const key of ['two words', 'snow ☃', 'a,b', 'a\nb']) {
    assert.throws(() => protocol.requireKey(key), { code: 'unauthorized' });
  }
});
