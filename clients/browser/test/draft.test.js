import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SpeechContext } from '../context.js';
import { ServerError } from '../errors.js';

const STARTED = { sequence: 0, number: 1, voice: 'v', seed: 1 };

function draft({ maxChars = Infinity } = {}) {
  const sent = [];
  const line = { online: true, begun: 0 };
  const context = new SpeechContext('c', { draft: true }, {
    send: (frame) => line.online && sent.push(JSON.parse(frame)) > 0,
    heardMs: () => 0,
    playedMs: () => 0,
    hold() {},
    begin: () => (line.begun += 1),
    silence: async () => {},
    maxChars: () => maxChars,
  });
  const receive = (type, fields = {}) => context.receive({ type, context_id: 'c', ...fields });
  return { context, sent, line, receive };
}

const COMMIT = { type: 'commit', context_id: 'c' };
const END = { type: 'end', context_id: 'c' };

test('a draft is opened as one, and committed as it is', async () => {
  const { context, sent, line, receive } = draft();
  context.send('Sure.');
  context.end();
  assert.deepEqual(sent.splice(0), [{ type: 'text', context_id: 'c', text: 'Sure.', draft: true }, END]);
  receive('context.started', STARTED);
  context.commit();
  assert.deepEqual(sent.splice(0), [COMMIT]);
  assert.equal(line.begun, 1);
  assert.throws(() => context.commit(), TypeError);
  receive('context.done', { sequence: 1, audio_ms: 100, ttfa_ms: 3, draft_used: true, opening_used: false, mended: 2 });
  const { draftUsed, openingUsed, mended } = await context.done;
  assert.deepEqual([draftUsed, openingUsed, mended], [true, false, 2]);
});

test('another text takes the place of the draft, and ends if that had', () => {
  const { context, sent } = draft();
  context.send('Sure.');
  context.end();
  sent.length = 0;
  context.commit('x'.repeat(8001));
  assert.deepEqual(sent, [{ ...COMMIT, text: 'x'.repeat(8000) }, { type: 'text', context_id: 'c', text: 'x' }, END]);
  assert.equal(context.text.length, 8001);
});

test('text may follow the commit of a draft that has not ended', () => {
  const { context, sent } = draft();
  context.send('Sure.');
  context.flush();
  sent.length = 0;
  context.commit('No.');
  context.send(' Never.');
  context.end();
  assert.deepEqual(sent, [{ ...COMMIT, text: 'No.' }, { type: 'text', context_id: 'c', text: ' Never.' }, END]);
});

test('a draft without text is opened when it is committed', () => {
  const { context, sent, line } = draft();
  context.commit('No.');
  assert.deepEqual(sent, [{ type: 'text', context_id: 'c', text: 'No.' }]);
  assert.equal(line.begun, 0); // when the server has accepted it
});

test('a text that is too long leaves the draft', () => {
  const { context, sent } = draft({ maxChars: 10 });
  context.send('Sure.');
  sent.length = 0;
  assert.throws(() => context.commit('x'.repeat(11)), ServerError);
  context.commit();
  assert.deepEqual(sent, [COMMIT]);
});

test('a commit that was lost with its connection is sent again, and no other', () => {
  const { context, sent, line, receive } = draft();
  context.send('Sure.');
  context.end();
  receive('context.started', STARTED);
  line.online = false;
  context.commit('No.');
  line.online = true;
  sent.length = 0;
  context.resend({ received_chars: 5, num_flushes: 0, ended: true, draft: true });
  assert.deepEqual(sent.splice(0), [{ ...COMMIT, text: 'No.' }, END]);
  context.resend({ received_chars: 3, num_flushes: 0, ended: true, draft: false });
  assert.deepEqual(sent, []);
});

test('what was asked after a commit that was lost is asked again after it', () => {
  const { context, sent, line, receive } = draft();
  context.send('Sure.');
  receive('context.started', STARTED);
  line.online = false;
  context.commit('No.');
  context.flush();
  context.send(' Never.');
  context.end();
  context.hold();
  line.online = true;
  sent.length = 0;
  context.resend({ received_chars: 5, num_flushes: 0, ended: false, draft: true });
  const flush = { type: 'flush', context_id: 'c' };
  const rest = { type: 'text', context_id: 'c', text: ' Never.' };
  assert.deepEqual(sent.slice(0, 4), [{ ...COMMIT, text: 'No.' }, flush, rest, END]);
  assert.equal(sent[4].type, 'hold');
});

test('a draft stays one in a new session', () => {
  const { context, sent, receive } = draft();
  context.send('Sure.');
  receive('context.started', STARTED);
  sent.length = 0;
  context.beginAgain(0);
  assert.equal(sent[0].draft, true);
  context.commit();
  assert.deepEqual(sent.at(-1), COMMIT);
});
