/**
 * Every error this client raises or reports, in one tree.
 *
 *     RealtimeTTSError            `code`, `retryable`, `field`
 *     ├── ServerError             the server's typed `error` or `context.failed`; `code` as the server sent it
 *     ├── ConnectionLost          the socket is gone and the session could not be resumed; where the server closed it
 *     │                           for a reason, `code` is that reason (`slow_consumer`, `resumed_elsewhere`, …)
 *     ├── HandshakeRefused        the server answers over HTTP but took no socket: full, or a proxy passes none on
 *     ├── ProtocolError           a frame from the server that breaks the protocol
 *     ├── AudioUnsupported        this browser can play none of the codecs the session may use
 *     ├── DecodeError             a packet that the decoder refused
 *     └── MicrophoneUnavailable   refused, missing or in use
 */

export class RealtimeTTSError extends Error {
  /**
   * @param {string} message one sentence for a human
   * @param {{code?: string, retryable?: boolean, field?: string | null, contextId?: string | null}} [details]
   */
  constructor(message, { code = 'client_error', retryable = false, field = null, contextId = null } = {}) {
    super(message);
    this.name = new.target.name;
    this.code = code;
    this.retryable = retryable;
    this.field = field;
    this.contextId = contextId;
  }
}

export class ServerError extends RealtimeTTSError {
  /** @param {{code: string, message: string, retryable?: boolean, field?: string, context_id?: string}} wire */
  static fromWire(wire) {
    return new ServerError(wire.message, {
      code: wire.code,
      retryable: wire.retryable === true,
      field: wire.field ?? null,
      contextId: wire.context_id ?? null,
    });
  }
}

export class ConnectionLost extends RealtimeTTSError {
  /**
   * @param {string} message @param {number | null} [closeCode] the WebSocket close code, where there was one
   * @param {string} [code]
   */
  constructor(message, closeCode = null, code = 'connection_lost') {
    super(message, { code, retryable: true });
    this.closeCode = closeCode;
  }
}

export class HandshakeRefused extends RealtimeTTSError {
  /** @param {string} message */
  constructor(message) {
    super(message, { code: 'handshake_refused', retryable: true });
  }
}

export class ProtocolError extends RealtimeTTSError {
  /** @param {string} message */
  constructor(message) {
    super(message, { code: 'protocol_error' });
  }
}

export class AudioUnsupported extends RealtimeTTSError {
  /** @param {string} message */
  constructor(message) {
    super(message, { code: 'audio_unsupported' });
  }
}

export class DecodeError extends RealtimeTTSError {
  /** @param {string} message @param {string | null} [contextId] */
  constructor(message, contextId = null) {
    super(message, { code: 'decode_error', contextId });
  }
}

const MICROPHONE_CODES = { NotAllowedError: 'microphone_refused', NotFoundError: 'microphone_missing', NotReadableError: 'microphone_busy' };

export class MicrophoneUnavailable extends RealtimeTTSError {
  /** @param {string} name of the browser's own error */
  static because(name) {
    return new MicrophoneUnavailable(`no microphone: ${name}`, { code: MICROPHONE_CODES[name] ?? 'microphone_unsupported' });
  }
}
