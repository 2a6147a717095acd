/** The server's address as a program may write it. */

const HOST_AND_PORT = /^(localhost|[\w-]+(\.[\w-]+)+|\[[\da-f:.]+\])(:\d+)?(\/|$)|^[\w-]+:\d+(\/|$)/i;
const STREAM_PATH = '/v1/stream';

/**
 * Accepts ws(s):// and http(s)://, `host:port` without a scheme as the Python client does, and paths relative to the page.
 * An address without a path means `/v1/stream`.
 * @param {string | URL} url @returns {URL} @throws {TypeError} it is no address
 */
export function absoluteUrl(url) {
  const text = String(url);
  const isHost = HOST_AND_PORT.test(text);
  const isRelative = !isHost && !/^[a-z]+:\/\//i.test(text);
  const scheme = globalThis.location?.protocol === 'https:' ? 'wss' : 'ws';
  const absolute = new URL(isHost ? `${scheme}://${text}` : text, globalThis.location?.href);
  if (!isRelative && absolute.pathname === '/') absolute.pathname = STREAM_PATH;
  return absolute;
}
