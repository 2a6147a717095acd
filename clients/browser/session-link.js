/** The session as the server knows it: started once, resumed after a broken connection, started anew when lost. */

import { Connection } from './connection.js';
import { ConnectionLost, RealtimeTTSError, ServerError } from './errors.js';
import * as protocol from './protocol.js';
import { ServerHttp } from './server-http.js';

const POLICY_VIOLATION = 1008; // slow consumer, too many errors, not allowed: a retry would fail too
const [FIRST_RETRY_MS, MAX_RETRY_MS] = [200, 1_500]; // a restarted server is found within 3 s
const RESUME_WINDOW_S = 10; // if the server does not send one
const LASTING_MS = 1_000; // shorter connections count as failed: the third attempt is delayed

/** @typedef {'connecting' | 'open' | 'reconnecting' | 'closed'} LinkState */
/**
 * @typedef {object} LinkHandlers
 * @property {(frame: string | ArrayBuffer) => void} frame
 * @property {(state: LinkState) => void} state
 * @property {(session: object) => void} started a session began: the server's `session.started`
 * @property {() => Record<string, number>} lastSequences of the contexts to go on with, asked when resuming
 * @property {(contexts: {context_id: string, [field: string]: any}[]) => void} resumed what the server knows of them
 * @property {(error: RealtimeTTSError) => void} lost the contexts cannot continue: the server was unreachable for too long,
 *   or the link is closed. If the server no longer has the session, a new one starts at once (`started`).
 */

export class SessionLink {
  /**
   * @param {string | URL} url @param {string | undefined} apiKey
   * @param {() => string} hello makes the `session.start` frame @param {LinkHandlers} handlers
   */
  constructor(url, apiKey, hello, handlers) {
    this.http = new ServerHttp(url, apiKey);
    this.hello = hello;
    this.handlers = handlers;
    /** @type {LinkState} */
    this.state = 'connecting';
    this.session = null;
    this.numShort = 0; // connections in a row that did not last
    this.openedAt = 0;
    this.connection = new Connection(url, apiKey, {
      frame: (frame) => handlers.frame(frame),
      lost: (code, reason) => this.#connectionLost(code, reason),
    });
  }

  /** @throws {RealtimeTTSError} */
  async start() {
    const session = await this.#open(this.hello(), 'session.started');
    if (this.state === 'closed') return this.connection.close();
    this.session = session;
    this.handlers.started(session);
    this.#setState('open');
    this.http.isReady(); // checks whether this page may ask, for later outages
    return undefined;
  }

  /** @param {string} frame @returns {boolean} false while there is no connection */
  send(frame) {
    return this.connection.send(frame);
  }

  /** @param {RealtimeTTSError} error what open contexts fail with */
  close(error) {
    if (this.state === 'closed') return;
    this.connection.close(1000, 'done');
    this.#setState('closed');
    this.handlers.lost(error);
  }

  #connectionLost(code, reason) {
    if (code === POLICY_VIOLATION) this.close(new ConnectionLost('The server closed the session', code, reason || undefined));
    else {
      const lasted = performance.now() - this.openedAt >= LASTING_MS;
      this.numShort = lasted ? 0 : this.numShort + 1;
      this.#setState('reconnecting');
      this.#reconnect(performance.now());
    }
  }

  async #reconnect(lostAt) {
    const windowMs = (this.session.limits?.resume_window_s ?? RESUME_WINDOW_S) * 1000;
    let [resumable, inTime, worthTrying] = [true, true, this.numShort < 2];
    let delay = Math.min(FIRST_RETRY_MS * 2 ** Math.max(0, this.numShort - 2), MAX_RETRY_MS);
    for (; this.state === 'reconnecting'; delay = Math.min(2 * delay, MAX_RETRY_MS)) {
      if (inTime && performance.now() - lostAt > windowMs) {
        resumable = inTime = false;
        this.handlers.lost(new ConnectionLost('The connection was lost for too long to go on with what was being said'));
      }
      if (worthTrying) {
        const error = await this.#attempt(resumable);
        if (error === null) return;
        if (error.code === 'session_not_found') {
          resumable = false;
          continue;
        }
        if (error instanceof ServerError && !error.retryable) return this.close(error);
      }
      await new Promise((resolve) => setTimeout(resolve, delay * (0.75 + Math.random() / 2)));
      // Browsers delay the sockets of a page for seconds after repeated failures, but not its HTTP requests.
      worthTrying = await this.http.mayTakeSocket();
    }
  }

  /** @returns {Promise<RealtimeTTSError | null>} null: connected, or closed meanwhile */
  async #attempt(resumable) {
    try {
      await (resumable ? this.#resume() : this.start());
      return null;
    } catch (error) {
      if (!(error instanceof RealtimeTTSError)) throw error;
      return error;
    }
  }

  async #open(hello, answer, resume) {
    try {
      return await this.connection.open(hello, [answer], resume);
    } catch (error) {
      throw await this.http.reasonOf(error);
    }
  }

  async #resume() {
    const hello = protocol.resumeSession(this.session.session_id, this.handlers.lastSequences());
    const answer = await this.#open(hello, 'session.resumed', this.session.session_id);
    if (this.state === 'closed') return this.connection.close();
    this.#setState('open');
    this.handlers.resumed(answer.contexts);
    return undefined;
  }

  #setState(state) {
    if (this.state === state) return;
    if (state === 'open') this.openedAt = performance.now();
    this.state = state;
    this.handlers.state(state);
  }
}
