/** Messages for the visitor about each error: cause and remedy. */
const KIND_WORDS = {
  agent_unreachable: 'No voice agent answers at its address. Start one beside the server with “make agent”. If it speaks through another server than this page’s, start it with --allowed-origin and this page’s address.',
  audio_unsupported: 'This browser cannot play streamed audio. A current Chrome, Edge, Firefox or Safari can.',
  call_lost: 'The call was lost: the voice agent has hung up, or cannot be reached any more.',
  connection_lost: 'The connection to the server was lost. The page reconnects by itself; speak again when it is back.',
  decode_error: 'A piece of the audio arrived damaged and was left out.',
  draining: 'The server is being restarted. Give it a moment, then try again.',
  engine_loading: 'The model is being loaded. Try again in a moment.',
  engine_lost: 'The speech engine stopped and is being restarted. Try again in a moment.',
  engine_out_of_memory: 'The server ran short of memory. Try again in a moment, perhaps with less text.',
  forbidden: 'This server does not accept connections from this page’s address.',
  handshake_refused: 'The server answers, but it took no connection: it may be full, or a proxy before it passes no WebSockets on.',
  rate_limited: 'That was more text than you may have in a minute. Try again a little later.',
  invalid_api_key: 'The voice agent requires a key, and pages have none. Start it without REALTIME_SERVER_API_KEY.',
  llm_cors: 'The language model’s server is there, but it does not allow this page. Allow this page’s origin on it (CORS).',
  llm_cut: 'The language model’s answer broke off. What arrived is spoken.',
  llm_silent: 'The language model wrote nothing. Send the message again.',
  llm_unauthorized: 'The language model’s server did not accept the key.',
  llm_unreachable: 'The language model does not answer at this address. Is its server running? From an https page it needs https, too, except on localhost.',
  limit_exceeded: 'You have used up your share for the moment. Try again a little later.',
  microphone_busy: 'The microphone could not be opened: another program may be using it.',
  microphone_missing: 'There is no microphone. Connect one, then switch this on again.',
  microphone_refused: 'The microphone was refused. Allow it in the browser’s settings for this page, then switch this on again.',
  microphone_unsupported: 'This browser gives this page no microphone.',
  overloaded: 'Every voice is busy right now. Try again in a few seconds.',
  protocol_error: 'The server sent something this page does not understand; it was ignored.',
  audio_decode_error: 'This recording cannot be read, or it is longer than a minute. WAV, FLAC, MP3, M4A, Ogg and WebM can be.',
  recording_clipped: 'The recording is distorted: it was too loud. Move back from the microphone, or turn it down, and try again.',
  recording_silent: 'There is nothing to hear in the recording. Is the right microphone chosen?',
  recording_too_quiet: 'The speech is too quiet. Come closer to the microphone and try again.',
  recording_too_short: 'That was too short. Two seconds are needed; ten are better.',
  recording_without_speech: 'There is hardly any speech in the recording. Speak for some seconds more.',
  too_many_voices: 'You have as many voices as this server keeps for you. Delete one first.',
  voice_exists: 'One of your voices has this name. Choose another one.',
  resumed_elsewhere: 'This session went on in another window. Press Speak for a new one here.',
  slow_consumer: 'Your connection is too slow for the audio. Choose the Opus codec under Advanced, or move closer to the router.',
  text_too_long: 'The text is longer than this server accepts at once. Shorten it, or speak it in parts.',
  too_many_contexts: 'Too much is being spoken at once. Let something finish first.',
  too_many_sessions: 'The server has as many listeners as it can take. Try again in a moment.',
  unauthorized: 'This server requires an API key. Press Speak to enter one.',
  unsupported_language: 'This voice does not speak that language.',
  voice_not_found: 'That voice is not on this server any more. Choose another one.',
};
const [MAX_SHOWN, MAX_SHOWN_CHARS] = [5, 24];

/** @param {{code?: string, message: string, contextId?: string | null}} error @returns {string} */
export function kindWords(error) {
  // Without a context nothing was cut off: speech cannot begin yet, at the first start or later.
  const code = error.code === 'engine_lost' && error.contextId == null ? 'engine_loading' : error.code;
  return KIND_WORDS[code] ?? `That did not work: ${error.message}`;
}

/** @param {string} text @param {[number, number][]} spans UTF-16 offsets of what could not be spoken @returns {string} */
export function leftOutWords(text, spans) {
  const parts = excerpts(text, spans);
  return parts ? `Left out, since this voice cannot speak it: ${parts}` : 'Some of it was left out: this voice cannot speak it.';
}

/** @param {string} text @param {[number, number][]} spans UTF-16 offsets of what cannot be spoken @returns {string} empty: all of it can be */
export function unspokenWords(text, spans) {
  return spans.length > 0 ? `This voice cannot speak: ${excerpts(text, spans)}` : '';
}

function excerpts(text, spans) {
  const parts = [...new Set(spans.map(([start, end]) => text.slice(start, end).trim()))].filter(Boolean);
  const shown = parts.slice(0, MAX_SHOWN).map((part) => (part.length > MAX_SHOWN_CHARS ? `${part.slice(0, MAX_SHOWN_CHARS)}…` : part));
  const more = parts.length > MAX_SHOWN ? ' and more' : '';
  return `${shown.join('  ')}${more}`;
}

/** Address of this page that works without https. @param {{hostname: string, port: string}} location */
export function tunnelWords({ hostname, port }) {
  const local = port || '8000';
  return { command: `ssh -L ${local}:localhost:${port || '80'} ${hostname}`, address: `http://localhost:${local}/` };
}
