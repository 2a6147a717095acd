/** What the server tells over HTTP beside its stream: what it offers, whether it is there, why it took no socket. */

import { ConnectionLost, HandshakeRefused, ServerError } from './errors.js';
import { requireKey } from './protocol.js';

const TIMEOUT_MS = 5_000;
const MAKING_TIMEOUT_MS = 120_000; // a recording is sent, looked at and encoded; a preview is spoken
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
    const body = await (await this.#ask(path)).json().catch(() => null);
    if (body) return body;
    throw new ConnectionLost('The server answered something else');
  }

  /**
   * @param {Record<string, string | number | boolean | Blob | undefined>} fields of `POST /v1/voices` (docs/voices.md)
   * @returns {Promise<{id: string, name: string, warnings: {code: string, message: string}[]}>}
   * @throws {ServerError | ConnectionLost}
   */
  async addVoice(fields) {
    const body = new FormData();
    for (const [name, value] of Object.entries(fields)) if (value !== undefined) body.append(name, value);
    return (await this.#ask('voices', { method: 'POST', body, timeoutMs: MAKING_TIMEOUT_MS })).json();
  }

  /** @param {string} id of an added voice @param {{name?: string, description?: string}} change */
  async changeVoice(id, change) {
    const body = JSON.stringify(change);
    return (await this.#ask(`voices/${encodeURIComponent(id)}`, { method: 'PATCH', body })).json();
  }

  /** Also while the page is being left. @param {string} id of an added voice */
  async deleteVoice(id) {
    await this.#ask(`voices/${encodeURIComponent(id)}`, { method: 'DELETE', keepalive: true });
  }

  /** A sentence in a voice. @param {string} id @returns {Promise<Blob>} a WAV file */
  async preview(id) {
    return (await this.#ask(`voices/${encodeURIComponent(id)}/preview`, { timeoutMs: MAKING_TIMEOUT_MS })).blob();
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

  async #ask(path, options) {
    const response = await this.#fetch(path, { headers: this.headers, ...options });
    if (response?.ok) return response;
    const body = await response?.json().catch(() => null);
    if (body?.code) throw ServerError.fromWire(body);
    throw new ConnectionLost(response ? `The server answered ${response.status}` : 'The server did not answer');
  }

  /** @returns {Promise<Response | null>} null: nobody answered, or this page may not know */
  async #fetch(path, { timeoutMs = TIMEOUT_MS, ...options } = {}) {
    const signal = AbortSignal.timeout(timeoutMs);
    return fetch(new URL(path, this.base), { cache: 'no-store', signal, ...options }).catch(() => null);
  }
}
