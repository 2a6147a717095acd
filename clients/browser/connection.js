/** A sequence of WebSockets: open with a first frame, detect dead connections, close. Independent of speech. */

import { absoluteUrl } from './address.js';
import { ConnectionLost, ProtocolError, ServerError } from './errors.js';
import { parseMessage, ping, subprotocols } from './protocol.js';

const OPEN_TIMEOUT_MS = 10_000;
const PING_EVERY_MS = 10_000;
const DEAD_AFTER_MS = 25_000; // nothing received after two pings: half-open, which browsers do not detect

/**
 * @typedef {object} ConnectionHandlers
 * @property {(frame: string | ArrayBuffer) => void} frame every frame after the answer to the hello
 * @property {(code: number, reason: string) => void} lost an established socket closed, not by `close()`
 */

export class Connection {
  /** @param {string | URL} url @param {string | undefined} apiKey @param {ConnectionHandlers} handlers */
  constructor(url, apiKey, handlers) {
    this.url = webSocketUrl(url);
    this.subprotocols = subprotocols(apiKey);
    this.handlers = handlers;
    /** @type {WebSocket | null} */
    this.socket = null;
  }

  /**
   * @param {string} hello the first frame to send
   * @param {string[]} answers message types that accept it
   * @param {string} [resume] id of the session to resume, by which a server with several processes finds it
   * @returns {Promise<{type: string, [field: string]: any}>} the answer
   * @throws {ServerError | ConnectionLost | ProtocolError}
   */
  open(hello, answers, resume) {
    const url = new URL(this.url);
    if (resume) url.searchParams.set('resume', resume);
    const socket = new WebSocket(url.href, this.subprotocols);
    socket.binaryType = 'arraybuffer';
    return new Promise((resolve, reject) => {
      const fail = (error) => {
        clearTimeout(timer);
        socket.onmessage = socket.onclose = null;
        socket.close();
        reject(error);
      };
      const timer = setTimeout(() => fail(new ConnectionLost('The server did not answer')), OPEN_TIMEOUT_MS);
      socket.onopen = () => socket.send(hello);
      socket.onclose = ({ code, reason }) => fail(new ConnectionLost(reason || 'The connection could not be opened', code));
      socket.onmessage = ({ data }) => {
        try {
          const answer = parseAnswer(data, answers);
          clearTimeout(timer);
          this.#adopt(socket);
          resolve(answer);
        } catch (error) {
          fail(error);
        }
      };
    });
  }

  /** @param {string} frame @returns {boolean} false if there is no socket to send it on */
  send(frame) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(frame);
    return true;
  }

  close(code = 1000, reason = '') {
    const { socket } = this;
    this.#release();
    socket?.close(code, reason);
  }

  #adopt(socket) {
    this.#release();
    this.socket = socket;
    this.lastReceived = performance.now();
    socket.onmessage = ({ data }) => {
      this.lastReceived = performance.now();
      this.handlers.frame(data);
    };
    socket.onclose = ({ code, reason }) => this.#lost(code, reason);
    this.watch = setInterval(() => this.#checkAlive(), PING_EVERY_MS);
  }

  #checkAlive() {
    if (performance.now() - this.lastReceived > DEAD_AFTER_MS) {
      this.socket?.close(); // a dead line answers no close frame either: do not wait for onclose
      this.#lost(1006, 'The server stopped answering');
    } else this.send(ping());
  }

  #lost(code, reason) {
    this.#release();
    this.handlers.lost(code, reason);
  }

  #release() {
    clearInterval(this.watch);
    if (this.socket) this.socket.onmessage = this.socket.onclose = null;
    this.socket = null;
  }
}

function parseAnswer(frame, answers) {
  if (typeof frame !== 'string') throw new ProtocolError('The server began with a binary frame');
  const message = parseMessage(frame);
  if (message.type === 'error') throw ServerError.fromWire(message);
  if (!answers.includes(message.type)) throw new ProtocolError(`The server began with "${message.type}"`);
  return message;
}

function webSocketUrl(url) {
  const absolute = absoluteUrl(url);
  if (absolute.protocol === 'http:' || absolute.protocol === 'https:') {
    absolute.protocol = absolute.protocol.replace('http', 'ws');
  }
  // Query value by which a front routes all connections of a session to the same host.
  if (!absolute.searchParams.has('sticky')) absolute.searchParams.set('sticky', Math.random().toString(36).slice(2));
  return absolute.href;
}
