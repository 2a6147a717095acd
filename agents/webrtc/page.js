/** The page: buttons, state, levels, and the text spoken and heard. The call itself is in call.js. */

import { Call, distance } from './call.js';

const $ = (id) => document.getElementById(id);
const RTP_PER_MS = 48;
const STATE_WORDS = {
  idle: 'Not connected',
  microphone: 'Waiting for microphone',
  connecting: 'Connecting',
  listening: 'Listening',
  hearing: 'You are speaking',
  speaking: 'Bot is speaking',
  failed: 'Not connected',
};
const ERROR_WORDS = {
  NotAllowedError: 'The microphone was refused. Allow it in the browser’s settings for this page, then call again.',
  NotFoundError: 'There is no microphone. Connect one, then call again.',
  NotReadableError: 'The microphone could not be opened: another program may be using it.',
  insecure: 'Browsers give the microphone to https and localhost pages only. Open this page over one of them.',
  unsupported: 'This browser cannot make calls. A current Chrome, Edge, Firefox or Safari can.',
  microphone_lost: 'The microphone was taken away. Call again when it is back.',
  no_bot: 'The bot does not answer. It may have been stopped.',
  busy: 'The bot has as many callers as it can take. Try again in a moment.',
  connection_failed: 'The bot cannot reach its speech server.',
  overloaded: 'Every voice is busy right now. Try again in a few seconds.',
  unreachable: 'There was no way through to the bot: a firewall may be between you. A TURN server helps (--ice-server).',
  lost: 'The connection to the bot was lost.',
  engine_lost: 'The speech engine stopped and is being restarted. The bot goes on with its next answer.',
};

/** @type {Call | null} */
let call = null;
/** @type {Map<number, {row: HTMLElement, words: {element: HTMLElement, space: Text, startMs: number, endMs: number}[], over: boolean}>} */
let turns = new Map();
/** Latest start of speech: turn, RTP timestamp, milliseconds into the turn. */
let run = null;
let callerSpeaks = false;

// ---- the call -----------------------------------------------------------------------------------------------------

async function begin() {
  clear();
  setState('microphone');
  $('call').disabled = true;
  try {
    call = await Call.begin($('speech'), () => setState('connecting'));
  } catch (error) {
    return ended(error);
  } finally {
    $('call').disabled = false;
  }
  call.addEventListener('told', ({ detail }) => take(detail));
  call.addEventListener('tick', showProgress);
  call.addEventListener('ended', ({ detail }) => ended(detail));
  if (test) window.__call = call;
  $('call').dataset.calling = '';
  $('call').lastElementChild.textContent = 'Hang up';
  $('mute').disabled = false;
  setState('listening');
  return undefined;
}

function ended(error) {
  call = null;
  delete $('call').dataset.calling;
  $('call').lastElementChild.textContent = 'Call';
  $('mute').disabled = $('interrupt').disabled = true;
  $('mute').setAttribute('aria-pressed', 'false');
  showLevel('my-level', 0);
  showLevel('bot-level', 0);
  if (error) showError(error.code ?? error.name, error.message);
  setState(error ? 'failed' : 'idle');
}

function take(message) {
  if (message.type === 'run') run = message;
  else if (message.type === 'words') addWords(message);
  else if (message.type === 'heard') showHeard(message);
  else if (message.type === 'asked') addRow('you', message.text);
  else if (message.type === 'hearing') callerSpeaks = message.speaking;
  else if (message.type === 'failed') showError(message.code, message.message);
}

function interrupt() {
  if (call && !$('interrupt').disabled) call.interrupt();
}

// ---- showing ------------------------------------------------------------------------------------------------------

function addRow(kind, text = '') {
  $('empty').hidden = true;
  const row = Object.assign(document.createElement('p'), { className: kind, textContent: text });
  $('transcript').append(row);
  $('transcript').scrollTop = $('transcript').scrollHeight;
  return row;
}

function turnOf(number) {
  if (!turns.has(number)) turns.set(number, { row: addRow('bot'), words: [], over: false });
  return turns.get(number);
}

function addWords({ turn, words }) {
  const { row, words: known } = turnOf(turn);
  for (const { text, start_ms: startMs, end_ms: endMs } of words) {
    const element = Object.assign(document.createElement('span'), { textContent: text.trimStart() });
    const space = document.createTextNode(text.slice(0, text.length - text.trimStart().length));
    row.append(space, element);
    known.push({ element, space, startMs, endMs });
  }
  $('transcript').scrollTop = $('transcript').scrollHeight;
}

/** Show the bot's report of a finished turn. */
function showHeard({ turn, text }) {
  const shown = turnOf(turn);
  shown.over = true;
  let position = 0;
  const unheard = document.createElement('s');
  for (const { element, space } of shown.words) {
    element.classList.remove('now');
    position += space.data.length + element.textContent.length;
    element.classList.toggle('heard', position <= text.length);
    if (position > text.length) unheard.append(space, element);
  }
  if (unheard.childNodes.length > 0) {
    const marker = Object.assign(document.createElement('span'), { className: 'cut', textContent: 'interrupted' });
    shown.row.append(marker, unheard);
    unheard.firstChild.data = ''; // the marker stands there
  } else if (shown.words.length === 0) shown.row.remove();
}

function showProgress() {
  showLevel('my-level', call.myLevel);
  showLevel('bot-level', call.botLevel);
  const turn = run && turns.get(run.turn);
  const speaking = Boolean(turn) && !turn.over && call.silentFrom === null && call.playedRtp !== null;
  if (speaking) light(turn, run.start_ms + distance(run.rtp, call.playedRtp) / RTP_PER_MS);
  $('interrupt').disabled = !speaking;
  setState(callerSpeaks ? 'hearing' : speaking ? 'speaking' : 'listening');
}

function light({ words }, playedMs) {
  for (const { element, startMs, endMs } of words) {
    element.classList.toggle('heard', startMs <= playedMs);
    element.classList.toggle('now', startMs <= playedMs && playedMs < endMs);
  }
}

/** A square root shows quiet speech; a linear scale would show its loudest vowel only. */
function showLevel(id, level) {
  $(id).firstElementChild.style.transform = `scaleX(${Math.min(1, Math.sqrt(level) * 1.4).toFixed(3)})`;
}

function setState(state) {
  if ($('state').dataset.state === state) return;
  $('state').dataset.state = state;
  $('state').lastElementChild.textContent = STATE_WORDS[state];
}

function showError(code, message) {
  $('notice').firstElementChild.textContent = ERROR_WORDS[code] ?? `That did not work: ${message}`;
  $('notice').hidden = false;
}

function clear() {
  $('notice').hidden = true;
  for (const row of $('transcript').querySelectorAll('.bot, .you')) row.remove();
  turns = new Map();
  run = null;
  callerSpeaks = false;
}

// ---- controls -----------------------------------------------------------------------------------------------------

const test = new URLSearchParams(location.search).get('test') === '1';
$('call').addEventListener('click', () => (call ? call.hangUp() : begin()));
$('interrupt').addEventListener('click', interrupt);
$('mute').addEventListener('click', () => {
  const muted = $('mute').getAttribute('aria-pressed') !== 'true';
  $('mute').setAttribute('aria-pressed', String(muted));
  call?.mute(muted);
});
$('dismiss').addEventListener('click', () => ($('notice').hidden = true));
addEventListener('keydown', ({ key }) => key === 'Escape' && interrupt());
addEventListener('pagehide', () => call?.hangUp());
