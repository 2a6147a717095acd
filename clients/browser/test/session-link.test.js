import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';

import { SessionLink } from '../session-link.js';

/** The network as a page sees it: a server that is there or not, sockets and requests that it answers. */
class Network {
  constructor() {
    Object.assign(this, { up: true, ready: true, answers: {}, sockets: 0, knocks: 0, offered: [], known: true });
    const network = this;
    globalThis.WebSocket = class {
      static OPEN = 1;
      constructor(url, protocols) {
        network.sockets += 1;
        network.offered.push(protocols);
        queueMicrotask(() => network.answer(this));
      }
      send(frame) {
        queueMicrotask(() => network.receive(this, JSON.parse(frame)));
      }
      close() {}
    };
    globalThis.fetch = async (url) => {
      this.knocks += 1;
      if (!this.up) throw new TypeError('Failed to fetch');
      const path = new URL(url).pathname;
      const [status, body] = this.answers[path] ?? (path === '/readyz' && !this.ready ? [503, {}] : [200, { ok: true }]);
      return { ok: status < 400, status, json: async () => body };
    };
  }

  answer(socket) {
    if (this.up && this.ready && !this.full) {
      socket.readyState = 1;
      this.socket = socket;
      socket.onopen();
    } else socket.onclose({ code: 1006, reason: '' });
  }

  receive(socket, { type }) {
    const say = (message) => socket.onmessage({ data: JSON.stringify(message) });
    if (type === 'session.start') say({ type: 'session.started', session_id: 's', audio: {} });
    else if (type === 'session.resume' && this.known) say({ type: 'session.resumed', session_id: 's', contexts: [] });
    else if (type === 'session.resume') say({ type: 'error', code: 'session_not_found', message: 'gone' });
  }

  cut(code = 1006) {
    this.up = false;
    this.socket.onclose({ code, reason: '' });
  }
}

let network;
let links;
const before = { WebSocket: globalThis.WebSocket, fetch: globalThis.fetch };

beforeEach(() => {
  network = new Network();
  links = [];
  mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });
});
afterEach(async () => {
  // A link that is still reconnecting would go on with real timers and the real network, and the process would not end.
  for (const made of links) made.close(new Error('the test is over'));
  await settle();
  mock.timers.reset();
  Object.assign(globalThis, before);
});

async function link(apiKey) {
  const seen = { states: [], lost: [] };
  const made = new SessionLink('http://server/v1/stream', apiKey, () => '{"type":"session.start"}', {
    frame() {},
    started() {},
    resumed() {},
    lastSequences: () => ({}),
    state: (state) => seen.states.push(state),
    lost: (error) => seen.lost.push(error.code),
  });
  links.push(made);
  await made.start();
  await settle();
  return { made, seen };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

async function pass(ms, done = () => false) {
  for (let passed = 0; passed <= ms; passed += 50) {
    await settle();
    if (done()) return passed;
    mock.timers.tick(50);
  }
  return ms;
}

test('a server that was away is found within 3 s of its return, however long it was away', async () => {
  for (const awayMs of [0, 700, 5_000, 60_000]) {
    const { made } = await link();
    network.cut();
    network.known = false; // a restarted server knows no sessions
    await pass(awayMs);
    network.up = true;
    assert.ok((await pass(10_000, () => made.state === 'open')) <= 3_000, `after ${awayMs} ms away`);
    made.close(new Error('over'));
  }
});

test('a session that the server has lost is replaced at once; a connection lost for too long is given up', async () => {
  const { made, seen } = await link();
  network.known = false; // its process has died, another one answers
  network.socket.onclose({ code: 1006, reason: '' });
  assert.equal(await pass(1_000, () => made.state === 'open'), 0, 'no wait');
  assert.deepEqual(seen.lost, []);
  network.cut();
  const lostAt = performance.now();
  const clock = mock.method(performance, 'now', () => lostAt + 9_000);
  await pass(9_000);
  assert.deepEqual(seen.lost, []);
  clock.mock.mockImplementation(() => lostAt + 11_000);
  await pass(3_000);
  clock.mock.restore();
  assert.deepEqual(seen.lost, ['connection_lost'], 'once');
});

test('reconnects back off from a server that accepts and closes again', async () => {
  const { made } = await link();
  const clock = mock.method(performance, 'now', () => 5_000); // no connection lasts
  const receive = network.receive.bind(network);
  network.receive = (socket, frame) => {
    receive(socket, frame);
    setImmediate(() => socket.onclose?.({ code: 1011, reason: 'internal_error' }));
  };
  const before = network.sockets;
  network.socket.onclose({ code: 1006, reason: '' });
  await pass(6_000);
  clock.mock.restore();
  made.close(new Error('over'));
  const tried = network.sockets - before;
  assert.ok(tried >= 3 && tried <= 10, `${tried} sockets in 6 s`);
});

test('a server that is away is asked over HTTP, not with sockets, which browsers hold back when they keep failing', async () => {
  const { made } = await link();
  const [sockets, knocks] = [network.sockets, network.knocks];
  network.cut();
  await pass(60_000);
  assert.equal(network.sockets, sockets + 1, 'the one at once');
  assert.ok(network.knocks - knocks > 30);
  network.up = true;
  network.ready = false; // it listens, its engine is still loading
  await pass(10_000);
  assert.equal(network.sockets, sockets + 1);
  network.ready = true;
  await pass(3_000, () => made.state === 'open');
  assert.equal(made.state, 'open');
});

test('where a page may not ask over HTTP, sockets are tried all the same', async () => {
  const { fetch } = globalThis;
  globalThis.fetch = async () => {
    throw new TypeError('blocked by CSP');
  };
  const { made } = await link();
  network.cut();
  await pass(5_000);
  network.up = true;
  await pass(3_000, () => made.state === 'open');
  globalThis.fetch = fetch;
  assert.equal(made.state, 'open');
});

test('a key goes into the handshake, not into the address', async () => {
  await link('rtts_secret');
  assert.deepEqual(network.offered, [['realtime-tts.v1', 'realtime-tts.key.rtts_secret']]);
});

test('why a handshake was refused is asked over HTTP', async () => {
  const refused = (code, status) => [status, { code, message: 'no', retryable: status === 503 }];
  network.full = true;
  const codeOf = () => link('rtts_k').catch((error) => error.code);
  assert.equal(await codeOf(), 'handshake_refused');
  network.answers['/readyz'] = refused('draining', 503);
  assert.equal(await codeOf(), 'draining');
  network.answers['/v1/models'] = refused('unauthorized', 401);
  assert.equal(await codeOf(), 'unauthorized');
  network.answers = { '/v1/models': [404, { code: 'not_found', message: 'no' }] };
  assert.equal(await codeOf(), 'connection_lost', 'a proxy that passes the stream on and nothing else');
  network.up = false;
  assert.equal(await codeOf(), 'connection_lost');
});

test('a key that is no longer good ends the reconnecting', async () => {
  const { made, seen } = await link('rtts_k');
  network.answers['/v1/models'] = [401, { code: 'unauthorized', message: 'not active' }];
  network.full = true;
  network.socket.onclose({ code: 1006, reason: '' });
  await pass(1_000);
  assert.equal(made.state, 'closed');
  assert.deepEqual(seen.lost, ['unauthorized']);
});

test('a reason that the server closes with is the error', async () => {
  const { made, seen } = await link();
  network.socket.onclose({ code: 1008, reason: 'slow_consumer' });
  assert.equal(made.state, 'closed');
  assert.deepEqual(seen.lost, ['slow_consumer']);
});
