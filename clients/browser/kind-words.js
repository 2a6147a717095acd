/** What to tell a visitor about each error: what happened, and what helps. */
const KIND_WORDS = {
  audio_unsupported: 'This browser cannot play streamed audio on this page. A current browser over https (or localhost) can.',
  connection_lost: 'The connection to the server was lost. The page reconnects by itself; speak again when it is back.',
  decode_error: 'A piece of the audio arrived damaged and was left out.',
  draining: 'The server is being restarted. Give it a moment, then try again.',
  engine_lost: 'The speech engine stopped in mid-sentence and is being restarted. Try again in a moment.',
  engine_out_of_memory: 'The server ran short of memory. Try again in a moment, perhaps with less text.',
  forbidden: 'This server does not accept connections from this page’s address.',
  limit_exceeded: 'You have used up your share for the moment. Try again a little later.',
  overloaded: 'Every voice is busy right now. Try again in a few seconds.',
  protocol_error: 'The server sent something this page does not understand; it was ignored.',
  slow_consumer: 'Your connection is too slow for the audio. Choose the Opus codec under Advanced, or move closer to the router.',
  text_too_long: 'That is more text than one go may have. Shorten it, or speak it in parts.',
  too_many_contexts: 'Too much is being spoken at once. Let something finish first.',
  too_many_sessions: 'The server has as many listeners as it can take. Try again in a moment.',
  unauthorized: 'This server wants a key before it speaks.',
  unsupported_language: 'This voice does not speak that language.',
  voice_not_found: 'That voice is not on this server any more. Choose another one.',
};

/** @param {{code?: string, message: string}} error @returns {string} */
export function kindWords(error) {
  return KIND_WORDS[error.code] ?? `That did not work: ${error.message}`;
}
