/** Display of voices, and the requests for voices that visitors make. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { consentWords } from '../voice-editor.js';
import { firstFault, voiceForm } from '../voice-maker.js';
import { subtitleOf, titleOf } from '../voice-tiles.js';

const recording = new Blob(['speech']);
const complete = { source: 'record', recording, instructions: '', said: '', name: 'Me', consent: true, by: '', scope: '' };

test('a model’s own voice is shown as a name, a visitor’s as it was written', () => {
  const own = { name: 'emma', kind: 'model', description: 'British English' };
  assert.deepEqual([titleOf(own), subtitleOf(own)], ['Emma', 'British English']);
  assert.equal(subtitleOf({ ...own, description: '' }), '');
  const mine = { name: 'me', kind: 'cloned', description: 'on the phone' };
  assert.deepEqual([titleOf(mine), subtitleOf(mine)], ['me', 'on the phone']);
  assert.equal(subtitleOf({ ...mine, description: '' }), 'From your recording');
  assert.equal(subtitleOf({ name: 'Old', kind: 'designed', description: '', instructions: 'an old man' }), 'an old man');
});

test('what is missing is asked for in the order of the form, as far as the server requires it', () => {
  const which = (change, policy) => firstFault({ ...complete, ...change }, policy)?.[0] ?? null;
  assert.equal(which({ recording: null, name: '' }, 'attested'), 'record');
  assert.equal(which({ source: 'file', recording: null }, 'attested'), 'file');
  assert.equal(which({ name: '' }, 'attested'), 'voice-name');
  assert.equal(which({ consent: false }, 'attested'), 'consent');
  assert.equal(which({ consent: false }, 'off'), null);
  assert.equal(which({}, 'attested'), null);
  assert.equal(which({}, 'required'), 'consent-by');
  assert.equal(which({ by: 'me' }, 'required'), 'consent-scope');
  assert.equal(which({ by: 'me', scope: 'tests' }, 'required'), null);
  assert.equal(which({ source: 'describe', recording: null, consent: false }, 'required'), 'instructions');
  assert.equal(which({ source: 'describe', recording: null, consent: false, instructions: 'warm' }, 'required'), null);
});

test('what is said in a recording makes it the prompt too', () => {
  assert.deepEqual(voiceForm(complete), { name: 'Me', reference: recording, consent: 'true' });
  const said = voiceForm({ ...complete, said: 'speech', by: 'me', scope: 'tests' });
  assert.deepEqual(said, {
    name: 'Me', reference: recording, prompt: recording, prompt_text: 'speech', consent: 'true', consent_by: 'me', consent_scope: 'tests',
  });
  assert.deepEqual(voiceForm({ ...complete, source: 'describe', instructions: 'warm' }), { name: 'Me', instructions: 'warm' });
});

test('consent is told as it was given', () => {
  const at = Date.UTC(2026, 10, 22, 12) / 1000;
  assert.match(consentWords({ kind: 'cloned', consent: { given_by: 'me', scope: 'tests', at } }), /^Consent by me, for tests, .*2026/);
  assert.match(consentWords({ kind: 'cloned', consent: null }), /No consent/);
  assert.equal(consentWords({ kind: 'designed', consent: null }), 'Made from a description.');
});
