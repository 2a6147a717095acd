import assert from 'node:assert/strict';
import { test } from 'node:test';

import { unspokenWords } from '../kind-words.js';
import { unspokenSpans } from '../speakable.js';

const LATIN = 'abcdefghijklmnopqrstuvwxyzß';
const found = (text, ...options) => unspokenSpans(text, ...options).map(([start, end]) => text.slice(start, end));

test('letters of another script are found as words, accents and units are not', () => {
  const text = 'Ça va, Straße 5 µm, 2 kΩ, ÉTÉ; привет мир, Καλημέρα.';
  assert.deepEqual(found(text, LATIN), ['привет', 'мир', 'Καλημέρα']);
  assert.deepEqual(found(text, null), [], 'a model that reads all letters');
});

test('emoji are found whole, signs with a name are not', () => {
  for (const letters of [LATIN, null, undefined]) {
    assert.deepEqual(found('Well 🎉🎉, 👩‍👩‍👧 and 👍🏽 or 🇩🇪, ❤️ ™ © ‼', letters), ['🎉🎉', '👩‍👩‍👧', '👍🏽', '🇩🇪', '❤️']);
  }
});

test('a lexicon or SSML may give another reading', () => {
  assert.deepEqual(found('🎉 and 🙂', LATIN, '🎉 = hooray'), ['🙂']);
  assert.deepEqual(found(' <speak><sub alias="hello">привет</sub></speak>', LATIN), []);
});

test('the report is in words', () => {
  assert.equal(unspokenWords('Hi 🎉', [[3, 5]]), 'This voice cannot speak: 🎉');
  assert.equal(unspokenWords('Hi', []), '');
});
