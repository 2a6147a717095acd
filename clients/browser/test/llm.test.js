/** Streamed chat completions: addresses, events in any split, and each way to fail. */

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

import { chatUrl, writtenBy } from '../llm.js';

const { fetch } = globalThis;
afterEach(() => (globalThis.fetch = fetch));

const URL_ = 'http://llm.test/v1/chat/completions';
const piece = (content, finish = null) => `data: ${JSON.stringify({ choices: [{ delta: { content }, finish_reason: finish }] })}\n\n`;
const ANSWER = `: hello\n\n${piece(null)}${piece('Grüße, ')}data:{"choices":[],"usage":{}}\r\n\r\n${piece('😀 ok')}${piece(undefined, 'stop')}data: [DONE]\n\n`;

/** Let each fetch answer with these chunks; an Error breaks the body off. */
function answerWith(chunks, { status = 200 } = {}) {
  const asked = [];
  globalThis.fetch = async (url, init) => {
    asked.push({ url, ...init });
    const rest = [...chunks];
    const pull = (controller) => {
      if (rest.length === 0) return controller.close();
      const chunk = rest.shift();
      return chunk instanceof Error ? controller.error(chunk) : controller.enqueue(chunk);
    };
    return new Response(new ReadableStream({ pull, cancel: () => (asked.at(-1).cancelled = true) }), { status });
  };
  return asked;
}

function ask(request = {}) {
  const { signal } = new AbortController();
  return writtenBy({ url: URL_, model: '', key: '', messages: [{ role: 'user', content: 'Hi' }], signal, ...request });
}

async function all(iterable) {
  let text = '';
  for await (const part of iterable) text += part;
  return text;
}

const bytes = (text) => new TextEncoder().encode(text);

test('an address is one of a server, of its API, or of chat completions', () => {
  for (const address of ['http://llm.test', ' http://llm.test/ ', 'http://llm.test/v1', 'http://llm.test/v1/', URL_, `${URL_}/`]) {
    assert.equal(chatUrl(address).replace(/\/$/, ''), URL_, address);
  }
  assert.equal(chatUrl('https://llm.test/api/v1'), 'https://llm.test/api/v1/chat/completions');
  assert.equal(chatUrl('https://llm.test/openai?api-version=1'), 'https://llm.test/openai/v1/chat/completions?api-version=1');
  for (const address of ['', 'llm.test', 'localhost:11434', 'ftp://llm.test', 'javascript:alert(1)']) assert.equal(chatUrl(address), null, address);
});

test('an answer is the same for any split of its bytes', async () => {
  const whole = bytes(ANSWER);
  for (let cut = 0; cut <= whole.length; cut += 1) {
    answerWith([whole.slice(0, cut), whole.slice(cut)].filter((chunk) => chunk.length > 0));
    assert.equal(await all(ask()), 'Grüße, 😀 ok', `cut at ${cut}`);
  }
  answerWith([...whole].map((byte) => Uint8Array.of(byte)));
  assert.equal(await all(ask()), 'Grüße, 😀 ok');
});

test('a server that only tells the reason of the end, or only the end, has sent a whole answer', async () => {
  for (const answer of [piece('Yes', 'length'), `${piece('Yes')}data: [DONE]`]) {
    answerWith([bytes(answer)]);
    assert.equal(await all(ask()), 'Yes');
  }
});

test('model and key are sent if there are any', async () => {
  const asked = answerWith([bytes(ANSWER)]);
  await all(ask());
  await all(ask({ model: 'small', key: 'secret' }));
  assert.deepEqual(asked.map(({ headers }) => headers.authorization), [undefined, 'Bearer secret']);
  assert.deepEqual(asked.map(({ body }) => JSON.parse(body)), [
    { messages: [{ role: 'user', content: 'Hi' }], stream: true },
    { model: 'small', messages: [{ role: 'user', content: 'Hi' }], stream: true },
  ]);
});

test('each failure has its code, and the field that it is of', async () => {
  const gone = new TypeError('Failed to fetch');
  for (const [chunks, options, expected] of [
    [[bytes('{"error": {"message": "bad key"}}')], { status: 401 }, { code: 'llm_unauthorized', field: 'key' }],
    [[bytes('{"error": "model \\"x\\" not found"}')], { status: 404 }, { code: 'llm_refused', message: /answers 404: model "x" not found$/ }],
    [[bytes('{"detail": [{"msg": "no"}]}')], { status: 422 }, { code: 'llm_refused', message: /answers 422: \[{"msg":"no"}\]$/ }],
    [[bytes('<h1>Bad gateway</h1>')], { status: 502 }, { code: 'llm_refused', message: /answers 502: <h1>Bad gateway/ }],
    [[], { status: 500 }, { code: 'llm_refused', message: /no reason given/ }],
    [[bytes('data: {"error": {"message": "out of memory"}}\n\n')], {}, { code: 'llm_refused', message: /out of memory/ }],
    [[bytes('data: [DONE]\n\n')], {}, { code: 'llm_silent' }],
    [[bytes(piece('Half of '))], {}, { code: 'llm_cut' }],
    [[bytes(piece('Half of ')), gone], {}, { code: 'llm_cut' }],
    [[bytes('{"choices": [{"message": {"content": "not streamed"}}]}')], {}, { code: 'llm_cut' }],
  ]) {
    answerWith(chunks, options);
    await assert.rejects(all(ask()), { name: 'LlmError', ...expected });
  }
});

test('a server that does not allow the page is told from one that is not there', async () => {
  globalThis.fetch = async (_, { mode }) => {
    if (mode !== 'no-cors') throw new TypeError('Failed to fetch');
    return new Response();
  };
  await assert.rejects(all(ask()), { code: 'llm_cors', field: 'url' });
  globalThis.fetch = () => Promise.reject(new TypeError('Failed to fetch'));
  await assert.rejects(all(ask()), { code: 'llm_unreachable', field: 'url' });
});

test('an answer that is stopped ends without an error, and its stream is closed', async () => {
  answerWith([bytes(piece('One ')), bytes(piece('two ')), new TypeError('aborted')]);
  const stop = new AbortController();
  const written = [];
  for await (const text of ask({ signal: stop.signal })) {
    written.push(text);
    if (written.length === 2) stop.abort();
  }
  assert.deepEqual(written, ['One ', 'two ']);
  const asked = answerWith(['One ', 'two ', 'three ', 'four '].map((text) => bytes(piece(text))));
  for await (const text of ask()) if (text) break;
  assert.equal(asked[0].cancelled, true);
});
