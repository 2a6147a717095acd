/** The page: one call with the voice agent, with the text of both sides. */

import { kindWords } from './kind-words.js';
import { VoiceCall } from './voice-call.js';

const $ = (id) => document.getElementById(id);

/** @type {VoiceCall | null} */
let call = null;
/** Rows of the transcript by the item's id. @type {Map<string, HTMLElement>} */
const rows = new Map();

async function begin() {
  setState('connecting', 'Connecting');
  tell(null);
  $('call').disabled = true; // a second call would be heard beside this one, and never hung up
  try {
    call = await VoiceCall.begin(location.href, $('speech'));
  } catch (error) {
    return ended(error);
  } finally {
    $('call').disabled = false;
  }
  call.addEventListener('event', ({ detail }) => TAKE[detail.type]?.(detail));
  call.addEventListener('ended', ({ detail }) => ended(detail));
  return undefined;
}

/** @param {import('./errors.js').RealtimeTTSError | null} error */
function ended(error) {
  call = null;
  $('call').firstElementChild.textContent = 'Call';
  delete $('call').dataset.calling;
  tell(error);
  setState('idle', 'Not connected');
}

/** @param {{code?: string, message: string} | null} error */
function tell(error) {
  $('notice').firstElementChild.textContent = error ? kindWords(error) : '';
  $('notice').hidden = !error;
}

const TAKE = {
  'session.created': () => {
    $('call').firstElementChild.textContent = 'Hang up';
    $('call').dataset.calling = '';
    setState('listening', 'Listening');
  },
  'input_audio_buffer.speech_started': () => setState('hearing', 'You are speaking'),
  'input_audio_buffer.speech_stopped': () => setState('listening', 'Listening'),
  'output_audio_buffer.started': () => setState('speaking', 'Agent is speaking'),
  'output_audio_buffer.stopped': () => setState('listening', 'Listening'),
  'conversation.item.added': ({ item }) => row(item.id, item.role === 'user' ? 'you' : 'bot'),
  'conversation.item.input_audio_transcription.completed': ({ item_id: id, transcript }) => {
    if (transcript) write(id, 'you', transcript);
    else row(id, 'you').remove(); // a noise
  },
  'conversation.item.input_audio_transcription.failed': ({ item_id: id, error }) => {
    row(id, 'you').remove();
    tell(error);
  },
  'response.output_audio_transcript.delta': ({ item_id: id, delta }) => write(id, 'bot', row(id, 'bot').textContent + delta),
  'conversation.item.truncated': (event) => call?.send('conversation.item.retrieve', { item_id: event.item_id }),
  'conversation.item.retrieved': ({ item }) => (row(item.id, 'bot').textContent = `${item.content[0].transcript} …`),
  'response.done': ({ response }) => {
    if (response.status !== 'failed') return;
    call?.hangUp();
    ended(response.status_details.error);
  },
  error: ({ error }) => console.error(error.message),
};

/** Return the row of an item. It is made at the item's place in the conversation, empty. */
function row(id, kind) {
  if (!rows.has(id)) {
    $('empty').hidden = true;
    const made = Object.assign(document.createElement('p'), { className: kind });
    rows.set(id, made);
    $('transcript').append(made);
  }
  return rows.get(id);
}

/** Write the text of an item, and keep the end of the conversation in sight. */
function write(id, kind, text) {
  row(id, kind).textContent = text;
  $('transcript').scrollTop = $('transcript').scrollHeight;
}

function setState(state, words) {
  $('state').dataset.state = state;
  $('state').lastElementChild.textContent = words;
}

$('call').addEventListener('click', () => (call ? call.hangUp() : begin()));
addEventListener('pagehide', () => call?.hangUp());
