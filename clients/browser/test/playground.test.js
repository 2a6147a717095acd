/** Decisions of the page: the displayed error, the validation of number fields, and their messages. */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { ConnectionLost, DecodeError, ServerError } from '../errors.js';
import { kindWords, leftOutWords, tunnelWords } from '../kind-words.js';
import { Notice } from '../notice.js';
import { faultOf } from '../number-field.js';

function notice() {
  globalThis.document = { createElement: () => ({}) };
  const words = { replaceChildren: (...parts) => (words.code = parts[1].textContent) };
  const element = { hidden: true, querySelector: () => words };
  const made = new Notice(element);
  return { show: (error) => made.show(error), made, code: () => (element.hidden ? '' : words.code) };
}

const server = (code, context_id) => ServerError.fromWire({ code, message: 'no', context_id });

test('the first error stays on show', () => {
  const { show, code } = notice();
  show(server('voice_not_found', 'c1'));
  show(server('invalid_request', 'c1'));
  show(new ConnectionLost('gone'));
  assert.equal(code(), 'voice_not_found');
});

test('an error without consequences gives way to the next', () => {
  const { show, code } = notice();
  show(new DecodeError('damaged'));
  show(server('engine_lost', 'c1'));
  assert.equal(code(), 'engine_lost');
});

test('a connection ends what was said of its absence, and nothing else', () => {
  for (const [error, after] of [
    [new ConnectionLost('gone'), ''],
    [server('draining'), ''],
    [server('engine_lost', 'c1'), 'engine_lost'],
    [server('voice_not_found', 'c1'), 'voice_not_found'],
  ]) {
    const { show, made, code } = notice();
    show(error);
    made.connected();
    assert.equal(code(), after);
    made.clear();
    show(server('overloaded'));
    assert.equal(code(), 'overloaded', 'the next one is the first again');
  }
});

test('a server without its model says that it is loaded, and speech that was cut off says why', () => {
  assert.equal(kindWords(server('engine_lost')), 'The model is being loaded. Try again in a moment.');
  assert.match(kindWords(server('engine_lost', 'c1')), /^The speech engine stopped and is being restarted/);
});

test('a number field takes what lies within its bounds, or nothing', () => {
  const steps = { min: '2', max: '64', whole: true, badInput: false };
  for (const value of ['', '2', '64', '1e1']) assert.equal(faultOf({ ...steps, value }), '');
  for (const value of ['1', '65', '2.5', '-3']) {
    assert.equal(faultOf({ ...steps, value }), 'A whole number from 2 to 64, or nothing.');
  }
  assert.notEqual(faultOf({ ...steps, value: '', badInput: true }), '', 'not a number at all');
  assert.equal(faultOf({ value: '1.55', min: '0', max: '10', whole: false, badInput: false }), '');
  assert.equal(faultOf({ value: '-1', min: '0', max: '', whole: false, badInput: false }), 'A number from 0, or nothing.');
});

test('what was left out is named, shortly', () => {
  const text = 'Well 🎉, 🎉 and 🙂';
  assert.equal(leftOutWords(text, [[5, 7], [9, 11], [16, 18]]), 'Left out, since this voice cannot speak it: 🎉  🙂');
  assert.match(leftOutWords('x'.repeat(100), [[0, 100]]), /: x{24}…$/);
  assert.match(leftOutWords('a b c d e f', [0, 2, 4, 6, 8, 10].map((at) => [at, at + 1])), /a {2}b {2}c {2}d {2}e and more$/);
  assert.match(leftOutWords('', []), /^Some of it was left out/);
});

test('the tunnel leads to the port of the page', () => {
  assert.deepEqual(tunnelWords({ hostname: '192.168.1.5', port: '9000' }), {
    command: 'ssh -L 9000:localhost:9000 192.168.1.5',
    address: 'http://localhost:9000/',
  });
  assert.equal(tunnelWords({ hostname: 'box', port: '' }).command, 'ssh -L 8000:localhost:80 box');
});

test('no style of an element around the words depends on what is in it', async () => {
  const css = await readFile(new URL('../playground.css', import.meta.url), 'utf8');
  const around = css.match(/^\s*\S*:has\([^{]*\) [^,{]+[,{]/gm) ?? []; // a text that changes in it makes all its styles anew
  assert.deepEqual(around.map((rule) => rule.trim()), ['.tile:has(input:checked) .name {']);
});
