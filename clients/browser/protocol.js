/**
 * Frames of the native protocol (`realtime-tts.v1`): JSON text frames for control, binary frames for audio.
 * Pure: parses and builds, knows no socket. Field names stay as they are on the wire (snake_case).
 */

import { ProtocolError, ServerError } from './errors.js';

const SUBPROTOCOL = 'realtime-tts.v1';
const KEY_SUBPROTOCOL = 'realtime-tts.key.'; // followed by the key: a browser's WebSocket has no other header, and addresses are logged
const KEY = /^[!#$%&'*+.^_`|~\w-]+$/; // characters allowed in a subprotocol
export const AUDIO_HEADER_BYTES = 20;
const FRAME_VERSION = 1;
const KIND_AUDIO = 1;

/** @param {string} [apiKey] @throws {ServerError} `unauthorized`, without asking the server: the key is malformed */
export function requireKey(apiKey) {
  if (apiKey && !KEY.test(apiKey)) throw new ServerError('This cannot be an API key', { code: 'unauthorized' });
}

/** Return the subprotocols that a socket offers in its handshake. @param {string} [apiKey] @returns {string[]} */
export function subprotocols(apiKey) {
  return apiKey ? [SUBPROTOCOL, KEY_SUBPROTOCOL + apiKey] : [SUBPROTOCOL];
}

/**
 * @typedef {object} AudioPacket
 * @property {number} number context number
 * @property {number} sequence place among everything the server sent for this context, JSON included
 * @property {number} pts the packet's first sample, counted from the start of the context, at the session's rate
 * @property {Uint8Array} payload one Opus packet, or PCM
 */

/**
 * Header, big-endian: version u8, kind u8, flags u16, context number u32, sequence u32, pts in samples u64.
 * @param {ArrayBuffer} buffer
 * @returns {AudioPacket | null} null for a kind this client does not know (a newer server may send some)
 */
export function parseAudioFrame(buffer) {
  if (buffer.byteLength < AUDIO_HEADER_BYTES) {
    throw new ProtocolError(`Binary frame of ${buffer.byteLength} bytes; the header alone has ${AUDIO_HEADER_BYTES}`);
  }
  const view = new DataView(buffer);
  const version = view.getUint8(0);
  if (version !== FRAME_VERSION) throw new ProtocolError(`Binary frame of version ${version}; expected ${FRAME_VERSION}`);
  if (view.getUint8(1) !== KIND_AUDIO) return null;
  const pts = view.getBigUint64(12);
  if (pts > BigInt(Number.MAX_SAFE_INTEGER)) throw new ProtocolError('Binary frame with an impossible timestamp');
  return {
    number: view.getUint32(4),
    sequence: view.getUint32(8),
    pts: Number(pts),
    payload: new Uint8Array(buffer, AUDIO_HEADER_BYTES),
  };
}

/** The inverse of `parseAudioFrame`, for tests and fakes. @param {AudioPacket} packet @returns {ArrayBuffer} */
export function buildAudioFrame({ number, sequence, pts, payload }) {
  const buffer = new ArrayBuffer(AUDIO_HEADER_BYTES + payload.byteLength);
  const view = new DataView(buffer);
  view.setUint8(0, FRAME_VERSION);
  view.setUint8(1, KIND_AUDIO);
  view.setUint32(4, number);
  view.setUint32(8, sequence);
  view.setBigUint64(12, BigInt(pts));
  new Uint8Array(buffer, AUDIO_HEADER_BYTES).set(payload);
  return buffer;
}

/** Required fields and their types, for each server message that the client handles. */
const SERVER_FIELDS = {
  'session.started': { session_id: 'string', audio: 'object' },
  'session.resumed': { session_id: 'string', contexts: 'array' },
  'context.started': { context_id: 'string', sequence: 'number', number: 'number' },
  words: { context_id: 'string', sequence: 'number', words: 'array' },
  flushed: { context_id: 'string', sequence: 'number' },
  'context.done': { context_id: 'string', sequence: 'number', audio_ms: 'number' },
  'context.cancelled': { context_id: 'string', sequence: 'number', played_ms: 'number', spoken_text: 'string' },
  'context.failed': { context_id: 'string', sequence: 'number', code: 'string', message: 'string' },
  'cancel.acknowledged': { state: 'string' },
  'context.held': { context_id: 'string', played_ms: 'number', spoken_text: 'string', spoken_chars: 'number' },
  'context.released': { context_id: 'string', from_ms: 'number' },
  warning: { code: 'string', message: 'string' },
  error: { code: 'string', message: 'string' },
};

const WORD_FIELDS = { text: 'string', start: 'number', end: 'number', start_ms: 'number', end_ms: 'number' };

/**
 * @param {string} frame
 * @returns {{type: string, [field: string]: any}} a message of a type unknown here is returned as it is
 * @throws {ProtocolError} not JSON, not an object, or a field missing or of the wrong type
 */
export function parseMessage(frame) {
  let message;
  try {
    message = JSON.parse(frame);
  } catch {
    throw new ProtocolError('Text frame that is not JSON');
  }
  if (typeOf(message) !== 'object' || typeof message.type !== 'string') {
    throw new ProtocolError('Text frame that is not an object with a "type"');
  }
  requireFields(message, SERVER_FIELDS[message.type] ?? {}, message.type);
  if (message.type === 'words') message.words.forEach((word) => requireFields(word, WORD_FIELDS, 'words'));
  return message;
}

function requireFields(value, fields, where) {
  for (const [name, type] of Object.entries(fields)) {
    const actual = typeOf(value?.[name]);
    if (actual !== type) throw new ProtocolError(`"${where}" with ${name} of type ${actual}; expected ${type}`);
  }
}

function typeOf(value) {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

/**
 * @typedef {object} AudioFormat
 * @property {'opus' | 'pcm_s16le'} codec
 * @property {number} sample_rate Hz
 * @property {number} [frame_ms]
 * @property {number} [bitrate] bits per second, Opus only
 */
/** @typedef {{cfg?: number, steps?: number, seed?: number, language?: string, instructions?: string, volume?: number,
 *   sentence_pause_ms?: number, lexicon?: Record<string, string>, text_type?: 'auto' | 'text' | 'ssml',
 *   mode?: "live"|"clause", openings?: 'on'|'off', speed?: number, adapter?: string}} SpeechParams */

const build = (type, fields) => JSON.stringify({ type, ...fields }); // undefined fields do not get onto the wire

/** @param {{voice?: string, audio?: AudioFormat, params?: SpeechParams}} settings */
export const startSession = (settings) => build('session.start', settings);
/** @param {string} sessionId @param {Record<string, number>} contexts last sequence received of each, −1 for none */
export const resumeSession = (sessionId, contexts) => build('session.resume', { session_id: sessionId, contexts });
/** `settings` count on the message that opens the context only.
 * @param {string} contextId @param {string} text @param {{voice?: string, params?: SpeechParams, draft?: boolean}} [settings] */
export const text = (contextId, text, settings = {}) => build('text', { context_id: contextId, text, ...settings });
/** @param {string} contextId @param {string} [text] in place of the draft's */
export const commit = (contextId, text) => build('commit', { context_id: contextId, text });
/** @param {string} contextId */
export const flush = (contextId) => build('flush', { context_id: contextId });
/** @param {string} contextId */
export const end = (contextId) => build('end', { context_id: contextId });
/** @param {string} [contextId] without it: everything */
export const cancel = (contextId) => build('cancel', { context_id: contextId });
/** @param {string} contextId @param {number} playedMs where the player stops */
export const hold = (contextId, playedMs) => build('hold', { context_id: contextId, at: 'now', played_ms: Math.round(playedMs * 10) / 10 });
/** @param {string} contextId @param {number} [clauseAfterMs] */
export const release = (contextId, clauseAfterMs) =>
  build('release', { context_id: contextId, clause_after_ms: clauseAfterMs });
/** @param {string} contextId @param {number} playedMs */
export const playback = (contextId, playedMs) =>
  build('playback', { context_id: contextId, played_ms: Math.round(playedMs * 10) / 10 });
/** @param {string} [id] */
export const ping = (id) => build('ping', { id });
