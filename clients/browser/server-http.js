/** HTTP requests beside the stream: the server's offer, its readiness, the reason why it refused a socket. */

import { absoluteUrl } from './address.js';
import { ConnectionLost, HandshakeRefused, ServerError } from './errors.js';
import { requireKey } from './protocol.js';

const TIMEOUT_MS = 5_000;
const MAKING_TIMEOUT_MS = 120_000; // upload, check and encoding of a recording; synthesis of a preview
const SPEECH_TIMEOUT_MS = 600_000; // of 20,000 characters on a small machine
const NOT_OPENED = 1006; // the only code a browser gives for a refused socket
const OPENAI_TOO_LONG = 'string_above_max_length';
const NO_REASON = new Set(['not_found', 'method_not_allowed']); // from a proxy that forwards the stream only

export class ServerHttp {
  /**
   * @param {string | URL} streamUrl of `/v1/stream`, as for `RealtimeTTS.connect`
   * @param {string} [apiKey] @throws {ServerError} `unauthorized`: it cannot be a key
   */
  constructor(streamUrl, apiKey) {
    requireKey(apiKey);
    this.base = absoluteUrl(streamUrl);
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
   * @param {Record<string, string | number | boolean | Blob | undefined>} fields of `POST /v1/voices` (docs/guides/voices.md)
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

  /** Delete a voice; works while the page is being closed, too. @param {string} id of an added voice */
  async deleteVoice(id) {
    await this.#ask(`voices/${encodeURIComponent(id)}`, { method: 'DELETE', keepalive: true });
  }

  /** Return a sample sentence in a voice. @param {string} id @returns {Promise<Blob>} a WAV file */
  async preview(id) {
    return (await this.#ask(`voices/${encodeURIComponent(id)}/preview`, { timeoutMs: MAKING_TIMEOUT_MS })).blob();
  }

  /**
   * Return a whole text's speech.
   * @param {object} request of `POST /v1/audio/speech` @param {AbortSignal} [signal] stops the server, too
   * @returns {Promise<Blob>} @throws {ServerError | ConnectionLost}
   */
  async speech(request, signal = AbortSignal.timeout(SPEECH_TIMEOUT_MS)) {
    const options = { method: 'POST', body: JSON.stringify(request), signal };
    return (await this.#ask('audio/speech', { ...options, headers: { ...this.headers, 'Content-Type': 'application/json' } })).blob();
  }

  /** Return whether to try a socket. Always true if the page may not ask (CORS, CSP). */
  async mayTakeSocket() {
    return (await this.isReady()) || !this.hasAnswered;
  }

  async isReady() {
    // From another origin the answer is opaque, with status 0: any answer means that the server is reachable.
    const response = await this.#fetch('../readyz', { mode: 'no-cors' });
    const ready = response !== null && response.status < 500;
    this.hasAnswered ||= ready;
    return ready;
  }

  /**
   * Return the error of an unopened socket, with the reason from HTTP if it gives a better one.
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
    const problem = body?.error ?? body; // `audio/speech` answers as OpenAI does
    if (problem?.code) throw ServerError.fromWire({ ...problem, code: problem.code === OPENAI_TOO_LONG ? 'text_too_long' : problem.code });
    throw new ConnectionLost(response ? `The server answered ${response.status}` : 'The server did not answer');
  }

  /** @returns {Promise<Response | null>} null: no answer, or the page may not read it */
  async #fetch(path, { timeoutMs = TIMEOUT_MS, ...options } = {}) {
    const signal = AbortSignal.timeout(timeoutMs);
    return fetch(new URL(path, this.base), { cache: 'no-store', signal, ...options }).catch(() => null);
  }
}
