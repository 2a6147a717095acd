/** What the server tells over HTTP beside its stream: what it offers, whether it is there, why it took no socket. */

import { ConnectionLost, HandshakeRefused, ServerError } from './errors.js';
import { requireKey } from './protocol.js';

const TIMEOUT_MS = 5_000;
const NOT_OPENED = 1006; // all that a browser says of a socket that was refused, whatever the answer was
const NO_REASON = new Set(['not_found', 'method_not_allowed']); // a proxy that passes the stream on and nothing else

export class ServerHttp {
  /**
   * @param {string | URL} streamUrl of `/v1/stream`, as for `RealtimeTTS.connect`
   * @param {string} [apiKey] @throws {ServerError} `unauthorized`: it cannot be a key
   */
  constructor(streamUrl, apiKey) {
    requireKey(apiKey);
    this.base = new URL(streamUrl, globalThis.location?.href);
    this.base.protocol = this.base.protocol.replace('ws', 'http');
    this.headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
    this.hasAnswered = false;
  }

  /**
   * @param {'models' | 'voices' | '../readyz'} path relative to the stream's address
   * @returns {Promise<object>} the answer's JSON
   * @throws {ServerError | ConnectionLost}
   */
  async get(path) {
    const response = await this.#fetch(path, { headers: this.headers });
    const body = await response?.json().catch(() => null);
    if (response?.ok && body) return body;
    if (body?.code) throw ServerError.fromWire(body);
    throw new ConnectionLost(response ? `The server answered ${response.status}` : 'The server did not answer');
  }

  /** Whether a socket is worth trying. Where a page may not ask (CORS, CSP), it always is. */
  async mayTakeSocket() {
    return (await this.isReady()) || !this.hasAnswered;
  }

  async isReady() {
    // From another origin the answer is opaque, with status 0: that there is one says enough.
    const response = await this.#fetch('../readyz', { mode: 'no-cors' });
    const ready = response !== null && response.status < 500;
    this.hasAnswered ||= ready;
    return ready;
  }

  /**
   * Why a socket was not opened, as far as HTTP knows it better.
   * @param {Error} error what the socket said @returns {Promise<Error>}
   */
  async reasonOf(error) {
    if (!(error instanceof ConnectionLost) || error.closeCode !== NOT_OPENED) return error;
    try {
      await this.get('models');
      await this.get('../readyz');
      return new HandshakeRefused('The server answers, but it took no connection');
    } catch (reason) {
      return reason instanceof ServerError && !NO_REASON.has(reason.code) ? reason : error;
    }
  }

  /** @returns {Promise<Response | null>} null: nobody answered, or this page may not know */
  async #fetch(path, options) {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    return fetch(new URL(path, this.base), { cache: 'no-store', signal, ...options }).catch(() => null);
  }
}
