import assert from 'node:assert/strict';
import { test } from 'node:test';

import { simulateModel, tokens } from '../llm-simulator.js';
import { SAMPLES } from '../sample-texts.js';

test('tokens join to the text they were cut from', () => {
  for (const text of ['', '  two  spaces ', 'extraordinarily', 'a\n\nb', '😀😀😀😀😀😀😀😀', ...SAMPLES.map((s) => s.text)]) {
    assert.equal(tokens(text).join(''), text);
  }
});

test('an aborted model writes no further token', async () => {
  const stop = new AbortController();
  const written = [];
  for await (const token of simulateModel('one two three', { rate: () => 1000, signal: stop.signal })) {
    written.push(token);
    stop.abort();
  }
  assert.deepEqual(written, ['one']);
});
