/** Chat completions of any OpenAI-compatible server, streamed. */

import { RealtimeTTSError } from './errors.js';

const MAX_REASON_CHARS = 300;

/** `field` of an error that the address or the key causes: `url` or `key`. */
export class LlmError extends RealtimeTTSError {}

/** @param {string} address of a server, with or without `/v1` @returns {string | null} address of its chat completions; null: not an http address */
export function chatUrl(address) {
  const url = URL.canParse(address) && new URL(address);
  if (!/^https?:$/.test(url.protocol)) return null;
  const path = url.pathname.replace(/\/+$/, '');
  if (!path.endsWith('/chat/completions')) url.pathname = `${/\/v\d+$/.test(path) ? path : `${path}/v1`}/chat/completions`;
  return url.href;
}

/**
 * Ask for an answer.
 * @param {object} request
 * @param {string} request.url address of chat completions
 * @param {string} request.model empty: the server's own
 * @param {string} request.key empty: none
 * @param {{role: string, content: string}[]} request.messages
 * @param {AbortSignal} request.signal ends the answer without an error
 * @yields {string} each piece of the answer as it arrives
 * @throws {LlmError} `llm_unreachable`, `llm_cors`, `llm_unauthorized`, `llm_refused`, `llm_cut`, `llm_silent`
 */
export async function* writtenBy({ url, model, key, messages, signal }) {
  const headers = { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) };
  const body = JSON.stringify({ ...(model && { model }), messages, stream: true });
  let reader;
  try {
    const response = await fetch(url, { method: 'POST', headers, body, signal }).catch(() => unanswered(url, signal));
    if (!response.ok) throw await refusal(response);
    reader = response.body.getReader();
    yield* pieces(reader);
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    reader?.cancel().catch(() => {});
  }
}

/** @param {ReadableStreamDefaultReader<Uint8Array>} reader of server-sent events @yields {string} what they add to the answer */
async function* pieces(reader) {
  const decoder = new TextDecoder();
  let [line, isSilent, isWhole] = ['', true, false];
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    const lines = (line + decoder.decode(value, { stream: !done })).split('\n');
    line = done ? '' : lines.pop();
    for (const { choices, error, isEnd } of lines.map(parseLine)) {
      if (error) throw new LlmError(`the language model reports: ${reason(error)}`, { code: 'llm_refused' });
      isWhole ||= isEnd || Boolean(choices?.[0]?.finish_reason);
      const text = choices?.[0]?.delta?.content;
      if (!text) continue;
      isSilent = false;
      yield text;
    }
    if (!done) continue;
    if (!isWhole) throw new LlmError('the answer broke off', { code: 'llm_cut' });
    if (isSilent) throw new LlmError('the answer is empty', { code: 'llm_silent' });
    return;
  }
}

/** @param {string} line @returns {{choices?: object[], error?: any, isEnd?: boolean}} */
function parseLine(line) {
  const data = line.startsWith('data:') ? line.slice(5).trim() : '';
  if (data === '[DONE]') return { isEnd: true };
  try {
    return JSON.parse(data) ?? {};
  } catch {
    return {}; // a comment, another field, or the start of an event that broke off
  }
}

/** Find out whether the server is there: then it does not allow this page's origin. */
async function unanswered(url, signal) {
  const code = await fetch(url, { mode: 'no-cors', signal }).then(() => 'llm_cors', () => 'llm_unreachable');
  throw new LlmError(`no answer of ${url}`, { code, field: 'url' });
}

async function refusal(response) {
  const body = await response.text().catch(() => '');
  const refused = `the language model’s server answers ${response.status}: ${reason(body)}`;
  if (response.status !== 401 && response.status !== 403) return new LlmError(refused, { code: 'llm_refused' });
  return new LlmError(refused, { code: 'llm_unauthorized', field: 'key' });
}

/** @param {any} body of an error, JSON or parsed @returns {string} the sentence in it */
function reason(body) {
  let words = body;
  try {
    if (typeof words === 'string') words = JSON.parse(words);
  } catch {
    // plain text
  }
  for (let found; (found = words?.error ?? words?.message ?? words?.detail); ) words = found;
  return (typeof words === 'string' ? words : JSON.stringify(words)).trim().slice(0, MAX_REASON_CHARS) || 'no reason given';
}
