import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createDecoder, negotiateFormat } from '../decoder.js';

test('where there is no WebCodecs, PCM is asked for, whatever was wanted', async () => {
  for (const codec of ['auto', 'opus', 'pcm_s16le']) {
    const format = await negotiateFormat({ codec, bitrate: 32_000 });
    assert.deepEqual(format, { codec: 'pcm_s16le', sample_rate: 24_000, frame_ms: 20 });
  }
});

test('where Opus decodes, it is asked for at 48 kHz', async (t) => {
  globalThis.AudioDecoder = class {
    static isConfigSupported = async (config) => ({ supported: config.codec === 'opus' });
  };
  t.after(() => delete globalThis.AudioDecoder);
  const format = await negotiateFormat({ bitrate: 24_000, sample_rate: 16_000 });
  assert.deepEqual(format, { codec: 'opus', frame_ms: 20, bitrate: 24_000, sample_rate: 48_000 });
  assert.equal((await negotiateFormat({ codec: 'pcm_s16le' })).codec, 'pcm_s16le');
});

test('PCM becomes floats, little-endian, even at an odd place of its buffer', () => {
  const bytes = Uint8Array.from([9, 0, 0x80, 0xff, 0x7f, 0, 0x40]);
  const got = [];
  const decoder = createDecoder({ codec: 'pcm_s16le' }, (samples, position) => got.push(...samples, position), assert.fail);
  decoder.decode(bytes.subarray(1), 480);
  assert.deepEqual(got, [-1, Math.fround(32767 / 32768), 0.5, 480]);
});

test('half a sample is an error, and nothing comes after close', () => {
  const errors = [];
  const decoder = createDecoder({ codec: 'pcm_s16le' }, assert.fail, (error) => errors.push(error.code));
  decoder.decode(new Uint8Array(3), 0);
  decoder.close();
  decoder.decode(new Uint8Array(4), 0);
  assert.deepEqual(errors, ['decode_error']);
});
