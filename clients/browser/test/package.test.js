/** The package: all modules that its files import are in it. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const read = (name) => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');

test('every imported module is published', () => {
  const { files } = JSON.parse(read('package.json'));
  const imported = files.flatMap((name) => [...read(name).matchAll(/^(?:import|export) .*from '\.\/(.+)';/gm)].map(([, module]) => module));
  assert.ok(imported.length > 10);
  assert.deepEqual(imported.filter((name) => !files.includes(name)), []);
});
