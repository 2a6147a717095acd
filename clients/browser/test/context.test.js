import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SpeechContext } from '../context.js';
import { ConnectionLost } from '../errors.js';

function make({ online = true, settings = {} } = {}) {
  const sent = [];
  const line = { online, heard: 0, silenced: [] };
  const context = new SpeechContext('c', settings, {
    send: (frame) => line.online && sent.push(JSON.parse(frame)) > 0,
    heardMs: () => line.heard,
    silence: async ({ number }) => line.silenced.push(number),
  });
  const receive = (type, fields = {}) => context.receive({ type, context_id: 'c', ...fields });
  return { context, sent, line, receive };
}

const kinds = (sent) => sent.map(({ type }) => type);

test('only the opening message carries the settings', () => {
  const { context, sent } = make({ settings: { voice: 'awb' } });
  context.send('One ');
  context.send('two.');
  assert.deepEqual(sent.map(({ voice }) => voice), ['awb', undefined]);
});

test('a long text goes out in messages of moderate size', () => {
  const { context, sent } = make();
  const text = '😀word '.repeat(4000);
  context.send(text);
  assert.ok(sent.length > 2);
  assert.ok(sent.every((message) => message.text.length <= 16_000 && message.text.isWellFormed()));
  assert.equal(sent.map((message) => message.text).join(''), text);
});

test('ending twice ends once; text after the end is the caller’s mistake', () => {
  const { context, sent } = make();
  context.send('Hi.');
  context.end();
  context.end();
  assert.deepEqual(kinds(sent), ['text', 'end']);
  assert.throws(() => context.send('more'), TypeError);
});

test('a context that never got a text is done with silence, and the server never hears of it', async () => {
  const { context, sent } = make();
  context.end();
  assert.deepEqual(await context.done, { outcome: 'done', audioMs: 0, ttfaMs: null });
  await context.finished;
  assert.deepEqual(sent, []);
});

test('words are offsets into the text as JavaScript counts', () => {
  const { context, receive } = make();
  context.send('😀 Hello there');
  receive('words', { timing: 'measured', words: [{ text: 'Hello', start: 2, end: 7, start_ms: 0, end_ms: 300 }] });
  const [word] = context.words;
  assert.equal(context.text.slice(word.start, word.end), 'Hello');
  assert.equal(word.timing, 'measured');
});

test('cancel silences first, tells what was heard, and gives the server’s account of it', async () => {
  const { context, sent, line, receive } = make();
  context.send('Hello there you');
  receive('context.started', { number: 4 });
  line.heard = 640;
  const spoken = context.cancel();
  await Promise.resolve();
  assert.deepEqual(line.silenced, [4]);
  await Promise.resolve();
  assert.deepEqual(kinds(sent), ['text', 'playback', 'cancel']);
  assert.equal(sent[1].played_ms, 640);
  receive('context.cancelled', { played_ms: 640, spoken_text: 'Hello there', spoken_chars: 11 });
  const expected = { playedMs: 640, spokenText: 'Hello there', spokenChars: 11 };
  assert.deepEqual(await spoken, expected);
  assert.deepEqual(await context.cancel(), expected, 'again: the same answer, no second message');
  assert.equal(context.state, 'cancelled');
  assert.equal(sent.length, 3);
});

test('interrupting speech that the server has finished gives what was heard of it', async () => {
  const { context, line, receive } = make();
  context.send('Hello there');
  receive('context.started', { number: 1 });
  receive('context.done', { audio_ms: 900, characters: 11, ttfa_ms: 8 });
  line.heard = 300;
  const spoken = context.cancel();
  await new Promise(setImmediate);
  receive('cancel.acknowledged', { state: 'done', played_ms: 300, spoken_text: 'Hello', spoken_chars: 5 });
  assert.deepEqual(await spoken, { playedMs: 300, spokenText: 'Hello', spokenChars: 5 });
});

test('without a server to ask, cancel answers from the words’ times', async () => {
  const { context, line, receive } = make();
  context.send('Hello there');
  receive('context.started', { number: 1 });
  receive('words', { words: [
    { text: 'Hello', start: 0, end: 5, start_ms: 0, end_ms: 300 },
    { text: 'there', start: 6, end: 11, start_ms: 350, end_ms: 700 },
  ] });
  receive('context.done', { audio_ms: 700 });
  line.heard = 320;
  line.online = false;
  assert.deepEqual(await context.cancel(), { playedMs: 320, spokenText: 'Hello', spokenChars: 5 });
});

test('a lost connection ends a cancel that waits for its answer', async () => {
  const { context, receive } = make();
  context.send('Hello');
  receive('context.started', { number: 1 });
  const spoken = context.cancel();
  await new Promise(setImmediate);
  context.fail(new ConnectionLost('gone'));
  assert.equal((await spoken).spokenText, '');
  await assert.rejects(context.done, ConnectionLost);
});

test('after a reconnect exactly what is missing is sent again, flushes in their places', () => {
  const { context, sent, line } = make({ settings: { voice: 'awb' } });
  context.send('One. ');
  context.flush();
  line.online = false;
  context.send('Two. ');
  context.flush();
  context.send('Three.');
  context.end();
  line.online = true;
  sent.length = 0;
  context.resend({ received_chars: 3, num_flushes: 0, ended: false });
  assert.deepEqual(sent.map(({ type, text }) => text ?? type), ['. ', 'flush', 'Two. ', 'flush', 'Three.', 'end']);
  assert.ok(sent.every(({ voice }) => voice === undefined));
});

test('a context the server never heard of is opened again with its settings', () => {
  const { context, sent, line } = make({ online: false, settings: { voice: 'awb' } });
  context.send('One.');
  line.online = true;
  context.resend({ received_chars: 0, num_flushes: 0, ended: false });
  assert.deepEqual(sent, [{ type: 'text', context_id: 'c', text: 'One.', voice: 'awb' }]);
});

test('a cancel made while the line was down is repeated, an end is not', async () => {
  const { context, sent, line, receive } = make();
  context.send('One.');
  receive('context.started', { number: 1 });
  line.online = false;
  context.cancel();
  await new Promise(setImmediate);
  line.online = true;
  sent.length = 0;
  context.resend({ received_chars: 4, num_flushes: 0, ended: false });
  assert.deepEqual(kinds(sent), ['cancel']);
});

test('a warning tells what was left out, as JavaScript counts; other unknown messages are passed over', () => {
  const { context, receive } = make();
  const warnings = [];
  context.addEventListener('warning', ({ detail }) => warnings.push(detail));
  context.send('😀 Hello 😀');
  receive('something.new', { spans: 'whatever' });
  receive('warning', { code: 'unspeakable_text', message: 'no sound', spans: [[0, 1], [8, 9]] });
  receive('warning', { code: 'other', message: 'no spans' });
  assert.deepEqual(warnings.map(({ code, spans }) => [code, spans]), [
    ['unspeakable_text', [[0, 2], [9, 11]]],
    ['other', []],
  ]);
});

test('a cancel of a context that is done is answered when the session is lost', async () => {
  const { context, receive } = make();
  context.send('Hi.');
  context.end();
  receive('context.done', { audio_ms: 300 });
  const cancelled = context.cancel();
  await new Promise((resolve) => setImmediate(resolve));
  context.fail(new ConnectionLost('gone'));
  assert.deepEqual(await cancelled, { playedMs: 0, spokenText: '', spokenChars: 0 });
  assert.equal(context.state, 'done');
});
