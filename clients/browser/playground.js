/** The page: connects, reads the form, speaks, shows. Everything about speech itself is in realtime-tts.js. */

import { kindWords } from './kind-words.js';
import { simulateModel } from './llm-simulator.js';
import { RealtimeTTS } from './realtime-tts.js';
import { SAMPLES } from './sample-texts.js';
import { Transcript } from './transcript.js';
import { Waveform } from './waveform.js';

const RETRY_MS = 3_000;
const CONNECTION_WORDS = { connecting: 'Connecting', open: 'Connected', reconnecting: 'Reconnecting', closed: 'Not connected' };
const $ = (id) => document.getElementById(id);

const transcript = new Transcript($('transcript-text'));
const waveform = new Waveform($('wave'));
const hook = new URLSearchParams(location.search).get('test') === '1' ? await import('./probe.js') : null;

/** @type {RealtimeTTS | null} */
let tts = null;
/** @type {import('./context.js').SpeechContext | null} */
let context = null;
let writing = new AbortController();
let underrunsBefore = 0; // of earlier contexts

// ---- connection ---------------------------------------------------------------------------------------------------

async function connect() {
  showConnection('connecting');
  const audio = { codec: $('codec').value };
  try {
    const session = await RealtimeTTS.connect('v1/stream', { audio, player: { tap: hook?.tap } });
    session.addEventListener('state', ({ detail }) => session === tts && showConnection(detail));
    session.addEventListener('error', ({ detail }) => showError(detail));
    tts = session;
    const { model, audio: format } = session.session;
    $('model').textContent = [model?.split('/').at(-1), format.codec === 'opus' ? 'Opus' : 'PCM', `${format.sample_rate / 1000} kHz`].filter(Boolean).join(' · ');
    showConnection(session.state);
  } catch (error) {
    showConnection('closed');
    showError(error);
    if (error.retryable) setTimeout(() => !tts && connect(), RETRY_MS);
  }
}

async function reconnect() {
  const old = tts;
  tts = null;
  await interrupt();
  await old?.close();
  await connect();
}

async function loadVoices() {
  const response = await fetch('v1/voices').catch(() => null);
  if (!response?.ok) return; // the default voice needs no list
  const body = await response.json();
  for (const voice of body.voices ?? body.data ?? body) {
    const name = voice.name ?? voice.id;
    $('voice').add(new Option(voice.description ? `${name}: ${voice.description}` : name, voice.id ?? name));
  }
}

// ---- speaking -----------------------------------------------------------------------------------------------------

async function speak() {
  const text = $('text').value;
  if (!text.trim()) return $('text').focus();
  if (!tts || tts.state === 'closed') {
    await reconnect();
    if (!tts) return undefined;
  }
  if (context) interrupt();
  const number = (value) => (value === '' ? undefined : Number(value));
  const params = { steps: number($('steps').value), cfg: number($('cfg').value), seed: number($('seed').value) };
  begin(tts.open({ voice: $('voice').value || undefined, params }));
  bringStageIntoView();
  return write(context, text);
}

async function write(target, text) {
  writing = new AbortController();
  const { signal } = writing;
  if ($('form').elements.source.value === 'typed') target.send(text);
  else {
    for await (const token of simulateModel(text, { rate: () => Number($('rate').value), signal })) {
      if (target.state !== 'open' || signal.aborted) break;
      target.send(token);
      if (target === context) transcript.write(target.text);
    }
  }
  if (target === context) transcript.write(target.text);
  if (!signal.aborted) target.end();
}

function begin(next) {
  context = next;
  underrunsBefore = tts.player.underruns;
  hook?.watch(next);
  transcript.clear();
  waveform.clear();
  hideError();
  $('empty').hidden = true;
  setPhase('speaking', 'Speaking');
  const current = (handler) => (event) => next === context && handler(event);
  next.addEventListener('words', current(({ detail }) => (transcript.write(next.text), transcript.addWords(detail))));
  next.addEventListener('audio', current(({ detail }) => waveform.add(detail.samples, detail.position, detail.sampleRate)));
  next.addEventListener('done', current(({ detail }) => (next.serverMs = detail.ttfaMs)));
  next.addEventListener('failed', current(({ detail }) => fail(next, detail)));
  next.addEventListener('finished', current(() => finish(next)));
  requestAnimationFrame(showProgress);
}

async function interrupt() {
  const target = context;
  if (!target) return;
  writing.abort();
  context = null;
  const spoken = await target.cancel();
  if (context) return; // something newer is on stage
  showHeard(spoken.playedMs);
  waveform.cutMs = spoken.playedMs;
  waveform.draw();
  transcript.write(target.text);
  transcript.cut(spoken.spokenChars, 'interrupted');
  setPhase('interrupted', `Interrupted after ${seconds(spoken.playedMs)}: ${heardWords(spoken.spokenText)} heard`);
}

function heardWords(text) {
  const words = text.trim().split(/\s+/).filter(Boolean).length;
  if (words === 0) return 'no whole word';
  return `${words} ${words === 1 ? 'word' : 'words'}`;
}

function finish(target) {
  showProgressOnce(target);
  transcript.finish();
  context = null;
  if (target.state === 'failed') return transcript.cut(target.spokenByClock().spokenChars, 'stopped here');
  const nothing = target.audioMs === 0;
  setPhase('finished', nothing ? 'There was nothing to say in that.' : `Finished: ${seconds(target.audioMs)} of speech.`);
}

function fail(target, error) {
  showError(error);
  setPhase('failed', 'Stopped early');
  writing.abort();
}

// ---- showing ------------------------------------------------------------------------------------------------------

function showProgress() {
  if (!context) return;
  showProgressOnce(context);
  requestAnimationFrame(showProgress);
}

function showProgressOnce(target) {
  const word = transcript.hear(target.heardMs);
  if (word) keepInSight(word);
  showHeard(target.heardMs);
  waveform.draw();
  const { sentAt, decodedAt, audibleAt } = target.timing;
  $('m-decoded').textContent = milliseconds(decodedAt && decodedAt - sentAt);
  $('m-audible').textContent = milliseconds(audibleAt && audibleAt - sentAt);
  $('m-server').textContent = milliseconds(target.serverMs);
  if (tts?.player) {
    $('m-buffer').textContent = `${Math.round(tts.player.targetMs)} ms`;
    $('m-underruns').textContent = tts.player.underruns - underrunsBefore;
  }
}

function showHeard(heardMs) {
  waveform.heardMs = heardMs;
  $('heard-time').textContent = `${clock(heardMs)} heard`;
  $('made-time').textContent = `${clock(waveform.madeMs)} made`;
}

function setPhase(phase, words) {
  $('stage').dataset.phase = phase;
  $('phase').textContent = words;
  $('interrupt').disabled = phase !== 'speaking';
  $('wave').setAttribute('aria-label', `Waveform: ${words}`);
}

function showConnection(state) {
  $('connection').dataset.state = state;
  $('connection').lastElementChild.textContent = CONNECTION_WORDS[state];
}

function showError(error) {
  const code = Object.assign(document.createElement('code'), { textContent: error.code ?? error.name });
  $('notice').firstElementChild.replaceChildren(`${kindWords(error)} `, code);
  $('notice').hidden = false;
}

function hideError() {
  $('notice').hidden = true;
}

function keepInSight(word) {
  const box = $('transcript');
  const [top, bottom] = [word.offsetTop, word.offsetTop + word.offsetHeight];
  if (top < box.scrollTop || bottom > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 3;
}

function bringStageIntoView() {
  const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
  if (matchMedia('(max-width: 56rem)').matches) $('stage').scrollIntoView({ behavior: calm ? 'auto' : 'smooth' });
}

const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
const milliseconds = (ms) => (ms === null || ms === undefined ? '–' : `${Math.round(ms)} ms`);
const clock = (ms) => `${Math.floor(ms / 60_000)}:${((ms % 60_000) / 1000).toFixed(1).padStart(4, '0')}`;

// ---- controls -----------------------------------------------------------------------------------------------------

for (const { name, text } of SAMPLES) {
  const button = Object.assign(document.createElement('button'), { type: 'button', textContent: name });
  button.addEventListener('click', () => ($('text').value = text));
  $('samples').append(button);
}
$('text').value = SAMPLES[0].text;
$('form').addEventListener('submit', (event) => (event.preventDefault(), speak()));
$('interrupt').addEventListener('click', () => (interrupt(), $('speak').focus()));
$('dismiss').addEventListener('click', hideError);
$('codec').addEventListener('change', reconnect);
$('rate').addEventListener('input', () => ($('rate-out').textContent = `${$('rate').value} tokens/s`));
for (const option of $('form').elements.source) {
  option.addEventListener('change', () => ($('rate-field').hidden = $('form').elements.source.value !== 'llm'));
}
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') interrupt();
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) speak();
});

// A page kept for "back" would keep its session and its speech on the server; a clean close frees both at once.
addEventListener('pagehide', () => tts?.close());
addEventListener('pageshow', ({ persisted }) => persisted && reconnect());

loadVoices();
await connect();
hook?.expose(() => tts);
