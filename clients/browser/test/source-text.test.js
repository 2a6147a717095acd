import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SourceText } from '../source-text.js';

test('code points become UTF-16 offsets', () => {
  const source = new SourceText();
  const text = 'a😀b𝄞c';
  source.append(text);
  const expected = [0, 1, 3, 4, 6, 7];
  assert.deepEqual(expected.map((_, i) => source.toUtf16(i)), expected);
  assert.equal(text.slice(source.toUtf16(1), source.toUtf16(2)), '😀');
  assert.deepEqual(expected.map((offset) => source.toCodePoints(offset)), [0, 1, 2, 3, 4, 5]);
});

test('the same for any split of the text, even through the middle of a character', () => {
  const text = 'Hi 👋🏽, it’s 21 °C 😀!';
  for (let cut = 0; cut <= text.length; cut += 1) {
    const source = new SourceText();
    const sent = source.append(text.slice(0, cut)) + source.append(text.slice(cut));
    assert.equal(sent, text);
    assert.equal(source.text, text);
    assert.equal(source.numCodePoints, [...text].length);
  }
});

test('half a character is held until the other half comes', () => {
  const source = new SourceText();
  assert.equal(source.append('x\ud83d'), 'x');
  assert.equal(source.append('\ude00'), '😀');
});

test('an offset beyond the text is its end', () => {
  const source = new SourceText();
  source.append('abc');
  assert.equal(source.toUtf16(99), 3);
});
