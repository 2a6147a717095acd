import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

import { absoluteUrl } from '../address.js';

afterEach(() => delete globalThis.location);

const ADDRESSES = {
  'localhost:8000': 'ws://localhost:8000/v1/stream',
  localhost: 'ws://localhost/v1/stream',
  'gpu-box:8000': 'ws://gpu-box:8000/v1/stream',
  '127.0.0.1:8000/v1/stream': 'ws://127.0.0.1:8000/v1/stream',
  '[::1]:8000': 'ws://[::1]:8000/v1/stream',
  'speech.example.org': 'ws://speech.example.org/v1/stream',
  'ws://localhost:8000': 'ws://localhost:8000/v1/stream',
  'https://speech.example.org/tts/v1/stream': 'https://speech.example.org/tts/v1/stream',
};

for (const [given, absolute] of Object.entries(ADDRESSES)) {
  test(`${given} is ${absolute}`, () => assert.equal(absoluteUrl(given).href, absolute));
}

test('paths are relative to the page, and a host has the security of the page', () => {
  globalThis.location = { href: 'https://speech.example.org/playground/', protocol: 'https:' };
  assert.equal(absoluteUrl('/v1/stream').href, 'https://speech.example.org/v1/stream');
  assert.equal(absoluteUrl('../v1/stream').href, 'https://speech.example.org/v1/stream');
  assert.equal(absoluteUrl('other.example.org').href, 'wss://other.example.org/v1/stream');
});

test('what is no address is refused', () => {
  assert.throws(() => absoluteUrl('not an address'), TypeError);
});
