import assert from 'node:assert/strict';
import { test } from 'node:test';

import { isSSML, openTags } from '../markup.js';

test('what is open is opened again, outermost first, with its attributes', () => {
  const text = `<?xml version="1.0"?><!DOCTYPE speak><speak xml:lang="en">One<break time="1s"/><p><s>two</s>
    <!-- </p> <x> --><prosody rate='80%' alias="a > b">three`;
  assert.equal(openTags(text), `<speak xml:lang="en"><p><prosody rate='80%' alias="a > b">`);
  assert.equal(openTags(`${text}</prosody></p></speak>`), '');
  assert.equal(openTags('<speak>a < b</nothing> and <![CDATA[<b>]]>'), '<speak>');
  assert.equal(openTags('no markup'), '');
});

test('what the server takes for SSML', () => {
  const kinds = ['auto', 'text', 'ssml'];
  assert.deepEqual(kinds.map((kind) => isSSML(' <speak>a</speak>', kind)), [true, false, true]);
  assert.deepEqual(kinds.map((kind) => isSSML('a <b>c</b>', kind)), [false, false, true]);
});
