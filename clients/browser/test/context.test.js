import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SpeechContext } from '../context.js';
import { ConnectionLost } from '../errors.js';

function make({ online = true, settings = {}, maxChars = Infinity } = {}) {
  const sent = [];
  const line = { online, heard: 0, silenced: [] };
  const context = new SpeechContext('c', settings, {
    send: (frame) => line.online && sent.push(JSON.parse(frame)) > 0,
    heardMs: () => line.heard,
    silence: async ({ number }) => line.silenced.push(number),
    maxChars: () => maxChars,
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

test('a text longer than the server allows is told at once, and not sent', () => {
  const { context, sent } = make({ maxChars: 10 });
  context.send('😀 It fits');
  assert.throws(() => context.send('no more'), { code: 'text_too_long', field: 'text' });
  context.send('.');
  context.end();
  assert.deepEqual(sent.map(({ text }) => text), ['😀 It fits', '.', undefined]);
});

test('ending twice ends once; text after the end is the caller’s mistake', () => {
  const { context, sent } = make();
  context.send('Hi.');
  context.end();
  context.end();
  assert.deepEqual(kinds(sent), ['text', 'end']);
  assert.throws(() => context.send('more'), TypeError);
});

test('a context that never got a text is done with silence, and nothing is sent', async () => {
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

test('the end of a word is replaced when it is measured', () => {
  const { context, receive } = make();
  const told = [];
  context.addEventListener('words', ({ detail }) => told.push(detail.length));
  context.send('Hello there');
  receive('words', { timing: 'measured', words: [{ text: 'Hello', start: 0, end: 5, start_ms: 0, end_ms: 300 }] });
  receive('words', { timing: 'measured', words: [{ text: 'there', start: 6, end: 11, start_ms: 400, end_ms: 700 }], previous_end_ms: 380 });
  receive('words', { timing: 'measured', words: [], previous_end_ms: 750 });
  assert.deepEqual(context.words.map(({ endMs }) => endMs), [380, 750]);
  assert.deepEqual(told, [1, 1], 'a message without words is no event');
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
  receive('context.cancelled', { played_ms: 640, spoken_text: 'Hello there', spoken_chars: 11, word_share: 0.25 });
  const expected = { playedMs: 640, spokenText: 'Hello there', spokenChars: 11, wordShare: 0.25 };
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
  assert.deepEqual(await spoken, { playedMs: 300, spokenText: 'Hello', spokenChars: 5, wordShare: 0 });
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
  assert.deepEqual(await context.cancel(), { playedMs: 320, spokenText: 'Hello', spokenChars: 5, wordShare: 0 });
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

test('a context that the server never received is opened again with its settings', () => {
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
  assert.deepEqual(await cancelled, { playedMs: 0, spokenText: '', spokenChars: 0, wordShare: 0 });
  assert.equal(context.state, 'done');
});

const HELLO = { text: 'Hello', start: 3, end: 8, start_ms: 0, end_ms: 300 };
const THERE = { text: 'there', start: 9, end: 14, start_ms: 350, end_ms: 700 };
const YOU = { text: 'you', start: 15, end: 18, start_ms: 750, end_ms: 900 };

/** Receive all words of "😀, Hello there you" and audio up to the middle of "there"; then start a new session. */
function broken({ heard = 400, cut = 500 } = {}) {
  const made = make({ settings: { params: { speed: 2 } } });
  const { context, sent, receive, line } = made;
  context.send('😀, Hello ');
  context.flush();
  context.send('there you');
  context.flush();
  context.end();
  receive('context.started', { number: 3, voice: 'awb', seed: 5 });
  receive('words', { words: [HELLO, THERE, YOU] });
  line.heard = heard;
  sent.length = 0;
  context.beginAgain(cut);
  return made;
}

test('in another session a context goes on with the word that was being heard, in the same voice', () => {
  const { context, sent } = broken();
  assert.deepEqual(sent, [
    { type: 'text', context_id: 'c', text: 'there you', params: { speed: 2, seed: 5 }, voice: 'awb' },
    { type: 'flush', context_id: 'c' },
    { type: 'end', context_id: 'c' },
  ]);
  assert.deepEqual(context.words.map(({ text }) => text), ['Hello', 'there']);
});

test('what another session tells is moved to where its part begins', async () => {
  const { context, sent, receive, line } = broken();
  const seen = [];
  for (const type of ['started', 'words', 'warning']) context.addEventListener(type, ({ detail }) => seen.push([type, detail]));
  context.track = 1;
  receive('context.started', { number: 1, voice: 'awb', seed: 5 });
  receive('words', { timing: 'measured', words: [{ text: 'there', start: 0, end: 5, start_ms: 10, end_ms: 300 }] });
  receive('warning', { code: 'unspeakable_text', message: '', spans: [[6, 9]] });
  assert.deepEqual(seen, [
    ['words', [{ text: 'there', start: 10, end: 15, startMs: 510, endMs: 800, timing: 'measured' }]],
    ['warning', { code: 'unspeakable_text', message: '', spans: [[16, 19]] }],
  ]);
  sent.length = 0;
  context.acknowledge(400);
  context.acknowledge(700);
  assert.deepEqual(sent.map(({ played_ms }) => played_ms), [0, 200]);
  line.heard = 900;
  const spoken = context.cancel();
  await new Promise(setImmediate);
  receive('context.cancelled', { played_ms: 400, spoken_text: 'there', spoken_chars: 5 });
  assert.deepEqual(await spoken, { playedMs: 900, spokenText: '😀, Hello there', spokenChars: 15, wordShare: 0 });
});

test('interrupted while the old session’s part still sounds: the words’ times say what was heard', async () => {
  const { context, receive } = broken({ heard: 320 });
  receive('context.started', { number: 1, voice: 'awb', seed: 5 });
  const spoken = context.cancel();
  await new Promise(setImmediate);
  receive('context.cancelled', { played_ms: 0, spoken_text: '', spoken_chars: 0 });
  assert.deepEqual(await spoken, { playedMs: 320, spokenText: '😀, Hello', spokenChars: 9, wordShare: 0 });
});

test('a context can break off again and again, and its length is that of all its parts', async () => {
  const { context, sent, receive } = broken();
  receive('context.started', { number: 1, voice: 'awb', seed: 5 });
  sent.length = 0;
  context.beginAgain(520); // nothing was told meanwhile
  assert.equal(sent[0].text, 'there you');
  receive('context.started', { number: 1, voice: 'awb', seed: 5 });
  receive('words', { words: [{ ...THERE, start: 0, end: 5, start_ms: 0 }, { ...YOU, start: 6, end: 9, start_ms: 400 }] });
  sent.length = 0;
  context.beginAgain(940);
  assert.deepEqual(sent.map(({ type, text }) => text ?? type), ['you', 'flush', 'end']);
  receive('context.started', { number: 1, voice: 'awb', seed: 5 });
  receive('context.done', { audio_ms: 200 });
  assert.deepEqual(await context.done, { outcome: 'done', audioMs: 1140, ttfaMs: null });
});

test('a context that had not begun is opened in another session with the same settings', () => {
  const { context, sent } = make({ settings: { voice: 'slt' } });
  context.send('Hi.');
  sent.length = 0;
  context.beginAgain(0);
  assert.deepEqual(sent, [{ type: 'text', context_id: 'c', text: 'Hi.', voice: 'slt' }]);
});

test('SSML goes on with what was open', () => {
  const { context, sent, receive } = make();
  context.send('<speak>😀 Hello <prosody rate="80%">there');
  context.flush();
  context.send(' you</prosody></speak>');
  context.end();
  receive('context.started', { number: 3, voice: 'awb', seed: 5 });
  const [hello, there] = [{ ...HELLO, start: 9, end: 14 }, { ...THERE, start: 35, end: 40 }];
  receive('words', { words: [hello, there] });
  sent.length = 0;
  context.beginAgain(500);
  const opened = '<speak><prosody rate="80%">';
  assert.deepEqual(sent.map(({ type, text }) => text ?? type), [`${opened}there`, 'flush', ' you</prosody></speak>', 'end']);
  sent.length = 0;
  context.resend({ received_chars: 10, num_flushes: 0, ended: false });
  assert.equal(sent[0].text, `${opened}there`.slice(10));
  receive('context.started', { number: 1, voice: 'awb', seed: 5 });
  receive('words', { words: [{ ...THERE, start: opened.length, end: opened.length + 5, start_ms: 0 }] });
  const word = context.words.at(-1);
  assert.equal(context.text.slice(word.start, word.end), 'there');
});

test('text that the server refused is not kept', () => {
  const { context, sent, receive } = make();
  for (const piece of ['😀 one ', 'two ', 'three.']) {
    context.send(piece);
    context.flush();
  }
  receive('context.started', { number: 1, voice: 'awb', seed: 5 });
  context.refusedText([6, 10]);
  assert.equal(context.text, '😀 one three.');
  receive('words', { words: [{ text: 'three', start: 6, end: 11, start_ms: 300, end_ms: 600 }] });
  assert.equal(context.text.slice(context.words[0].start, context.words[0].end), 'three');
  sent.length = 0;
  context.resend({ received_chars: 5, num_flushes: 0, ended: false });
  assert.deepEqual(sent.map(({ type, text }) => text ?? type), [' ', 'flush', 'flush', 'three.', 'flush']);
});

test('text that was refused is not kept in another session either', () => {
  const { context, sent, receive } = broken();
  receive('context.started', { number: 1, voice: 'awb', seed: 5 });
  context.refusedText([6, 9]);
  assert.equal(context.text, '😀, Hello there ');
  sent.length = 0;
  context.beginAgain(500);
  assert.deepEqual(sent.map(({ type, text }) => text ?? type), ['there ', 'flush', 'end']);
});
