/** The page: connects, reads the form, speaks, shows. Everything about speech itself is in realtime-tts.js. */

import { copyText } from './copy.js';
import { setIcon, setText } from './elements.js';
import { HoldPolicy } from './hold-policy.js';
import { KeyDialog } from './key-dialog.js';
import { leftOutWords, tunnelWords } from './kind-words.js';
import { Latency, stagesOf } from './latency.js';
import { simulateModel } from './llm-simulator.js';
import { Notice } from './notice.js';
import { NumberField } from './number-field.js';
import { tellDroppedPaste } from './paste.js';
import { Player, RealtimeTTS, ServerHttp } from './realtime-tts.js';
import { SamplePlayer } from './sample-player.js';
import { SAMPLES } from './sample-texts.js';
import {
  NUMBERS, applySettings, linkTo, readSettings, settingsOf, speechParams, speechRequest, storeSettings, storedSettings, takeLink,
} from './settings.js';
import { Take } from './take.js';
import { Takes } from './takes.js';
import { Talk } from './talk.js';
import { TextEditor } from './text-editor.js';
import { Transcript } from './transcript.js';
import { VoiceEditor } from './voice-editor.js';
import { VoiceSwitch } from './voice-switch.js';
import { VoiceTiles } from './voice-tiles.js';
import { Waveform } from './waveform.js';

const STREAM = 'v1/stream';
const RETRY_MS = 1_000;
const CONNECTION_WORDS = { connecting: 'Connecting', open: 'Connected', reconnecting: 'Reconnecting', closed: 'Not connected' };
const HTTP_SAMPLE_RATE = 24_000; // of `pcm`
const END_MS = 50; // so near to its end a recording counts as played
const SPEAK_KEYS = /Mac|iPhone|iPad/.test(navigator.platform) ? '⌘ ↵' : 'Ctrl ↵';
const COPIED_MS = 2_000;
const BEGUN_EARLY = 'begun early';
const WORTH_TELLING_MS = 10; // of time saved
const MUCH_BUFFERED_MS = 100;
const MAX_SEED = 1_000_000; // of those drawn here: short enough to be read
const REVOKE_MS = 60_000; // a download has begun by then
const $ = (id) => document.getElementById(id);
const FIGURES = [...document.querySelectorAll('.metrics [id]')];

const editor = new TextEditor($('stage'), $('lexicon'));
const lines = new Transcript($('transcript-text'));
const waveform = new Waveform($('wave'));
const latency = new Latency($('latency'));
const notice = new Notice($('notice'));
const keys = new KeyDialog($('key-dialog'));
const voiceSwitch = new VoiceSwitch($('voice-switch'), hearVisitor);
const holdPolicy = new HoldPolicy();
const voices = new VoiceTiles($('voices'), { pair: $('pair'), toggle: $('compare'), versus: $('versus') }, $('find-voice'), {
  hear: hearPreview, edit: (voice) => voiceEditor.open(voice), switchTo: hearInstead,
});
const voiceEditor = new VoiceEditor($('edit-dialog'), { rename: renameVoice, remove: deleteVoice });
const takes = new Takes($('takes'), { replay, download, again: (take) => (applySettings($('form'), settingsOf(take)), editor.edit()) });
const preview = new SamplePlayer();
const talk = new Talk(
  { message: $('message'), turns: $('turns'), url: $('llm-url'), model: $('llm-model'), key: $('llm-key'), agent: $('agent-url') },
  { send: () => speak(), draft: draftAnswer, rate: () => Number($('rate').value) },
);
const fields = Object.fromEntries(NUMBERS.map((name) => [name, new NumberField($(name))]));
const hook = new URLSearchParams(location.search).get('test') === '1' ? await import('./probe.js') : null;

/** @type {RealtimeTTS | null} */
let tts = null;
/** @type {import('./context.js').SpeechContext | null} */
let context = null;
/** The context whose text is displayed, also when it is over. */
let staged = null;
/** Where words light up: on the stage, or in the answer of a turn. */
let transcript = lines;
/** The take on the stage. @type {Take | null} */
let shown = null;
/** In which its progress is shown next. */
let frame = 0;
/** The answer to a message that may still be changed. @type {import('./context.js').SpeechContext | null} */
let drafted = null;
/** Spoken turns, once they were asked for. @type {import('./voice-talk.js').VoiceTalk | null} */
let voiceTalk = null;
/** Speech that was asked for and waits: for a connection, or over HTTP for all of it. @type {AbortController | null} */
let waiting = null;
/** Id of the voice whose preview is on its way. @type {string | null} */
let awaited = null;
/** The server's model. @type {string | undefined} */
let model;
/** The server's parameter `openings`; undefined: an older server. @type {{default: 'on' | 'off'} | undefined} */
let openings;
/** The server's settings for voices made by visitors. */
let making = {};
/** Settings of a link or of the last visit, until the server's offer is here. @type {URLSearchParams | null} */
let restored = takeLink() ?? storedSettings();
let underrunsBefore = 0; // of earlier contexts
/** The codec asked for in the session. @type {string | undefined} */
let codec;
let attempts = 0; // to connect; only the last one counts
/** The last attempt to connect. @type {Promise<void>} */
let connecting;
/** Text written when the first audio was heard, for display. @type {string | null} */
let writtenThen = null;

// ---- connection ---------------------------------------------------------------------------------------------------

function connect(state) {
  connecting = tryToConnect(state);
  return connecting;
}

async function tryToConnect(state = 'connecting') {
  const attempt = ++attempts;
  showConnection(state);
  try {
    await loadOffer();
    Player.requireSupport();
    codec = $('codec').value;
    const options = { apiKey: keys.key, audio: { codec }, player: { tap: hook?.tap } };
    const session = await RealtimeTTS.connect(STREAM, options);
    if (attempt === attempts) adopt(session);
    else await session.close();
  } catch (error) {
    if (attempt === attempts) await notConnected(error);
  }
}

function adopt(session) {
  tts = session;
  session.addEventListener('state', ({ detail }) => session === tts && showConnection(detail));
  session.addEventListener('session', () => session === tts && begunAnew());
  session.addEventListener('error', ({ detail }) => session === tts && sessionError(detail));
  showFormat();
  showConnection(session.state);
}

/** Ask for a key, show the error, or retry after a delay, depending on the error. */
async function notConnected(error) {
  if (error.code === 'audio_unsupported' && !isSecureContext) return showInsecure();
  showConnection('closed');
  if (error.code === 'unauthorized' && (await keys.ask())) return connect();
  notice.show(error);
  if (!error.retryable) return undefined;
  const attempt = attempts;
  showConnection('reconnecting');
  setTimeout(() => attempt === attempts && connect('reconnecting'), RETRY_MS);
  return undefined;
}

async function reconnect() {
  const old = tts;
  tts = null;
  const interrupted = interrupt();
  await old?.close(); // not after the server's answer: it may be away
  await interrupted;
  await connect();
}

/** Handle a new session, whose server may be a different one. */
function begunAnew() {
  showFormat();
  loadOffer().catch(() => {}); // keep the previous offer
}

function sessionError(error) {
  if (drafted && error.contextId === drafted.contextId) dropDraft(); // it is opened again when the message is sent
  else requestFailed(error);
}

function requestFailed(error) {
  if (error.code === 'unauthorized') return reconnect(); // and ask for the current key
  if (error.code === 'voice_not_found') loadOffer().catch(() => {}); // it was deleted elsewhere
  return notice.show(error);
}

const http = () => new ServerHttp(STREAM, keys.key);

/** Load the server's voices and parameter ranges. */
async function loadOffer(chooseVoice) {
  const [models, offered] = await Promise.all([http().get('models'), http().get('voices')]);
  const [{ id, params = {}, text = {}, voice_making: voiceMaking } = {}] = models.data ?? [];
  model = id;
  openings = params.openings;
  editor.limits = text;
  for (const [name, field] of Object.entries(fields)) field.setRange(params[name]);
  showAdapters(params.adapter?.choices ?? [], restored?.get('adapter'));
  making = voiceMaking;
  $('style-field').hidden = !voiceMaking?.instructions; // the model takes no description
  $('style').disabled = $('style-field').hidden;
  $('new-voice').hidden = making === undefined; // an older server
  voices.show(offered.voices, chooseVoice ?? restored?.get('voice'), restored?.get('versus'));
  const missing = restored?.get('voice');
  if (missing && voices.chosen !== missing) sayAboutVoices(`The voice ${missing} is not on this server.`);
  restored = null;
}

/** The choice stays if it is still there. @param {string[]} names of what is loaded, perhaps nothing @param {string} [wanted] */
function showAdapters(names, wanted) {
  const select = $('adapter');
  const chosen = wanted ?? select.value;
  select.replaceChildren(new Option('None', ''), ...names.map((name) => new Option(name)));
  select.value = names.includes(chosen) ? chosen : '';
  $('adapter-field').hidden = names.length === 0;
}

// ---- voices -------------------------------------------------------------------------------------------------------

async function hearPreview(voice) {
  const again = awaited === voice.id || (preview.playing && preview.of === voice.id);
  interrupt();
  if (again) return;
  awaited = voice.id;
  voices.showHeard(voice.id, true);
  try {
    const recording = await http().preview(voice.id);
    if (awaited !== voice.id) return; // it was stopped, or another one was asked for
    awaited = null;
    await preview.play(recording, voice.id);
  } catch (error) {
    if (awaited === voice.id) stopPreview();
    requestFailed(error);
  }
}

/** Stop a preview or a replay, also a preview that is on its way. */
function stopPreview() {
  awaited = null;
  preview.stop();
  voices.showHeard();
}

async function voiceMade(voice) {
  await loadOffer(voice.id);
  sayAboutVoices([`${voice.name} is ready.`, ...(voice.warnings ?? []).map(({ message }) => sentence(message))].join(' '));
}

async function renameVoice(id, name) {
  await http().changeVoice(id, { name });
  await loadOffer();
  sayAboutVoices(`Renamed to ${name}.`);
}

async function deleteVoice(id) {
  const name = voices.titleOf(id);
  await http().deleteVoice(id).catch((error) => {
    if (error.code !== 'voice_not_found') throw error; // otherwise it was deleted elsewhere
  });
  await loadOffer();
  sayAboutVoices(`${name} was deleted.`);
}

function sayAboutVoices(words) {
  $('voice-note').textContent = words;
  $('voice-note').hidden = words === '';
}

const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}.`;

// ---- speaking -----------------------------------------------------------------------------------------------------

/** @param {number} [seed] in place of the form's */
async function speak(seed) {
  const text = isTalk() ? talk.message.value : editor.text;
  if (!text.trim()) return edit();
  const wrong = Object.values(fields).filter((field) => !field.check());
  if (wrong.length > 0) return wrong[0].reveal();
  if (isTalk() && voiceTalk?.isOn) return voiceTalk.say(text, (talk.message.value = ''));
  if (isTalk() && !talk.check()) return undefined;
  if ($('insecure').hidden && (!tts || tts.state === 'closed') && !(await connectFirst())) return undefined;
  if (!$('insecure').hidden) return speakWhole();
  if (context) interrupt();
  stopPreview();
  sayAboutVoices('');
  bringStageIntoView();
  return speakWith(voices.chosen, text, seed);
}

/** Wait for a connection, for speech that was asked for. @returns {Promise<boolean>} false: there is none, or it was stopped */
async function connectFirst() {
  interrupt(); // what was asked for before it
  const connected = $('connection').dataset.state === 'connecting' ? connecting : reconnect();
  const asked = new AbortController();
  waiting = asked;
  setPhase('speaking', 'Waiting for the server');
  await connected;
  if (asked.signal.aborted) return false;
  waiting = null;
  const canSpeak = tts !== null || !$('insecure').hidden;
  if (!canSpeak) setPhase('failed', 'Not spoken');
  return canSpeak;
}

/** @param {string | undefined} voice its id @param {string} text @param {number} [seed] */
function speakWith(voice, text, seed) {
  const settings = readSettings($('form'));
  if (seed !== undefined) settings.set('seed', seed);
  const askedAt = performance.now();
  const early = takeDraft(text.trim());
  const next = early ?? openContext(voice, settings, text.trim());
  if (isTalk()) next.timing.askedAt = askedAt;
  next.turn?.show();
  const take = new Take({ voice, voiceName: voices.titleOf(voice), settings, text });
  if (early) take.origin = BEGUN_EARLY; // also if it is interrupted
  begin(next, take);
  if (!early) write(next, text);
  else {
    transcript.write(early.text);
    keepEndInSight();
  }
}

/**
 * Hear the text in one of the pinned voices, with the seed of the take on the stage. Speech that was made before goes on at the
 * current word.
 * @param {string} id
 */
function hearInstead(id) {
  const isSame = shown?.text === editor.text;
  if (isSame && isBusy() && shown.voice === id) return undefined;
  const seed = isSame ? context?.chosen.seed ?? shown.seed : undefined;
  const isOver = !isBusy() && waveform.heardMs >= (shown?.audioMs ?? 0) - END_MS;
  const at = isSame && !isOver ? transcript.words.findLast(({ startMs }) => startMs <= waveform.heardMs)?.start : undefined;
  voices.choose(id);
  const take = takes.find({ settings: readSettings($('form')), text: editor.text, voice: id, seed });
  if (!take) return speak(seed);
  return replay(take, take.words.find(({ start }) => start === at)?.startMs);
}

/** @param {string | undefined} voice @param {URLSearchParams} settings @param {string} text @param {object} [options] */
function openContext(voice, settings, text, options) {
  if (isTalk()) settings.set('source', 'llm'); // of an answer
  const opened = tts.open({ voice, params: { ...memoryParams(), ...speechParams(settings) }, ...options });
  opened.writing = new AbortController();
  if (isTalk()) opened.turn = talk.ask(text);
  return opened;
}

/** Begin with the answer to a message that may still be changed: nothing of it is heard before the message is sent. */
function draftAnswer(question) {
  dropDraft();
  if (!question || context || !isTalk() || voiceTalk?.isOn || tts?.state !== 'open' || Object.values(fields).some((field) => !field.check())) return;
  drafted = openContext(voices.chosen, readSettings($('form')), question, { draft: true });
  Object.assign(drafted, { begunAt: performance.now(), question: questionNow(question) });
  write(drafted, question);
}

/** Return the question with the settings that its answer depends on. */
const questionNow = (question) => JSON.stringify([question, voices.chosen, readSettings($('form')).toString(), talk.settings]);

/** Return the draft of this question's answer, committed; null: there is none. */
function takeDraft(question) {
  if (drafted?.state !== 'open' || drafted.question !== questionNow(question)) return dropDraft(), null;
  const early = drafted;
  drafted = null;
  early.savedMs = (early.timing.sentAt ?? performance.now()) - early.begunAt; // the model's time
  early.commit();
  return early;
}

function dropDraft() {
  const early = drafted;
  drafted = null;
  early?.writing.abort();
  early?.turn.drop();
  early?.cancel();
}

/** Return how a take's beginning was made, if not as usual. @param {import('./context.js').SpeechContext} target @param {import('./context.js').Outcome} outcome */
function originOf({ savedMs }, { draftUsed, openingUsed, ttfaMs }) {
  if (openingUsed) return 'from memory';
  if (savedMs === undefined) return '';
  const saved = savedMs + (draftUsed ? Math.max(0, latency.usualServerMs - ttfaMs) : 0);
  return saved >= WORTH_TELLING_MS ? `${BEGUN_EARLY}: ${Math.round(saved)} ms saved` : BEGUN_EARLY;
}

/**
 * Ask for a beginning from memory, where there is one with the same seed. In a talk answers begin alike, so they have one
 * seed; otherwise each take has its own, unless the server keeps openings of its own for the default seed.
 */
function memoryParams() {
  if (openings === undefined) return {};
  const seed = isTalk() || openings.default === 'on' ? undefined : Math.floor(Math.random() * Math.min(MAX_SEED, Number($('seed').max) + 1));
  return { openings: 'on', seed };
}

/** Speak over HTTP, on a page that browsers allow no streamed audio. The speech plays when all of it is made. */
async function speakWhole() {
  interrupt();
  const settings = readSettings($('form'));
  const voice = voices.chosen;
  const take = new Take({ voice, voiceName: voices.titleOf(voice), settings, text: settings.get('text') });
  const asked = new AbortController();
  waiting = asked;
  notice.clear();
  bringStageIntoView();
  setPhase('speaking', 'Waiting for all of the speech');
  try {
    const pcm = await http().speech(speechRequest(settings, model, 'pcm'), asked.signal);
    take.addPcm(await pcm.arrayBuffer(), HTTP_SAMPLE_RATE);
  } catch (error) {
    if (asked.signal.aborted) return undefined;
    waiting = null;
    setPhase('failed', 'Not spoken');
    return requestFailed(error);
  }
  if (asked.signal.aborted) return undefined; // another one may be under way
  waiting = null;
  takes.add(take);
  return replay(take);
}

/** Return whether the text is sent piece by piece. */
const isStreamed = () => $('form').elements.source.value === 'llm';
/** Return whether messages are sent to a language model. */
const isTalk = () => $('stage').dataset.source === 'talk';

/** Return the pieces of an answer or of the text. @returns {AsyncIterable<string>} */
function piecesOf(target, text, signal) {
  return target.turn ? target.turn.answer(signal) : simulateModel(text, { rate: () => Number($('rate').value), signal });
}

async function write(target, text) {
  const { signal } = target.writing;
  try {
    if (!target.turn && !isStreamed()) target.send(text);
    else {
      for await (const token of piecesOf(target, text, signal)) {
        if (target.state !== 'open' || signal.aborted) break;
        target.send(token);
        if (target !== context) continue;
        transcript.write(target.text);
        if (target.turn) keepEndInSight();
      }
    }
  } catch (error) {
    if (target === drafted) return dropDraft(); // the model is asked again when the message is sent
    notice.show(error); // too long, or the language model failed: accepted text is spoken
    talk.show(error);
  }
  if (target === context) transcript.write(target.text);
  if (!signal.aborted) target.end();
  return undefined;
}

function begin(next, take) {
  context = staged = next;
  shown = take;
  underrunsBefore = tts.player.underruns;
  writtenThen = null;
  $('m-timing').textContent = '–';
  hook?.watch(next);
  transcript = next.turn?.lines ?? lines;
  transcript.clear();
  waveform.show(take.loudness, { live: true });
  notice.clear();
  $('left-out').hidden = true;
  $('stage').dataset.view = next.turn ? 'edit' : 'words';
  setPhase('speaking', speakingWords());
  const current = (handler) => (event) => next === context && handler(event);
  next.addEventListener('words', current(({ detail }) => showWords(next, detail)));
  next.addEventListener('restarted', current(({ detail }) => transcript.takeBack(detail.ms)));
  next.addEventListener('audio', ({ detail }) => take.add(detail));
  const leftOut = []; // spans, told as they are found
  next.addEventListener('warning', current(({ detail }) => {
    if (detail.code !== 'unspeakable_text') return;
    leftOut.push(...detail.spans);
    showLeftOut(next, leftOut);
  }));
  next.addEventListener('done', current(({ detail }) => {
    next.serverMs = detail.ttfaMs;
    take.mended = detail.mended ?? 0;
    take.origin = originOf(next, detail);
  }));
  next.addEventListener('failed', current(({ detail }) => fail(next, detail)));
  next.addEventListener('finished', current(() => finish(next)));
  keepShowing();
}

async function interrupt() {
  const [target, take, written] = [context, shown, transcript];
  dropDraft();
  voiceTalk?.interrupt();
  stopPreview();
  if (waiting) setPhase('interrupted', 'Stopped before it began');
  waiting?.abort();
  waiting = null;
  if (!target) return;
  target.writing.abort();
  context = null;
  if (target.track === null) setPhase('interrupted', 'Stopped before it began'); // the server may be away and not answer
  const spoken = await target.cancel();
  take.cutMs = spoken.playedMs;
  target.turn?.settle(spoken.spokenText);
  if (target.turn || staged === target) { // otherwise something newer is written there
    written.write(target.text);
    written.cut(spoken.spokenChars, 'interrupted');
  }
  keep(target, take);
  if (target.turn) keepEndInSight(); // the take has made the stage lower
  if (staged !== target) return;
  showHeard(spoken.playedMs);
  waveform.draw();
  setPhase('interrupted', `Interrupted after ${seconds(spoken.playedMs)}: ${heardWords(spoken.spokenText)} heard`);
}

/** Hold the speech at the first sound of the visitor; a longer one ends it, and after a nod it goes on. */
function hearVisitor(activity) {
  if (!context && activity.speaking && isBusy()) interrupt(); // a replay
  const action = holdPolicy.update(activity, context !== null && context.heldMs === null);
  if (action === 'cancel') interrupt();
  else if (action) setHeld(action === 'hold');
}

/** Hold the speech at the end of its word, or let it go on. */
const toggleHold = () => setHeld(context?.heldMs === null);

/** @param {boolean} isHeld */
async function setHeld(isHeld) {
  const target = context;
  if (!target || (target.heldMs !== null) === isHeld) return;
  const change = isHeld ? target.hold() : target.release();
  showHold();
  await change.catch(() => {}); // the speech is over, which is shown
  showHold();
}

function showHold() {
  $('hold').hidden = context === null;
  if (context === null) return;
  $('hold').querySelector('span').textContent = context.heldMs === null ? 'Hold' : 'Go on';
  $('phase').textContent = speakingWords();
}

const heardWords = (text) => (text.trim() ? wordsOf(text) : 'no whole word');

function wordsOf(text) {
  const words = text.trim().split(/\s+/).filter(Boolean).length;
  return `${words} ${words === 1 ? 'word' : 'words'}`;
}

function finish(target) {
  showProgressOnce(target);
  transcript.finish();
  context = null;
  keep(target, shown);
  if (target.state === 'failed') {
    const { spokenChars, spokenText } = target.spokenByClock();
    target.turn?.settle(spokenText);
    transcript.cut(spokenChars, target.track === null ? 'not spoken' : 'stopped here');
    return setPhase('failed', target.track === null ? 'Not spoken' : `Stopped early${target.isCutOff ? ': the connection was lost' : ''}`);
  }
  target.turn?.settle(target.text);
  if (target.text === '') { // it was too long, or the language model wrote nothing
    target.turn?.takeBack();
    edit();
    return setPhase('failed', 'Not spoken');
  }
  if (target.audioMs > 0) return setPhase('finished', `Finished: ${seconds(target.audioMs)} of speech.`);
  $('left-out').hidden = true; // all of the text was left out: shown only once
  return setPhase('finished', 'Nothing in this text can be spoken.');
}

/** Show why nothing more follows. What has arrived is still heard, and can be stopped. */
function fail(target, error) {
  notice.show(error);
  target.isCutOff = error.code === 'connection_lost';
  target.writing.abort();
}

// ---- takes --------------------------------------------------------------------------------------------------------

/** Keep what was spoken, and offer it for replay. @param {import('./context.js').SpeechContext} target @param {Take} take */
function keep(target, take) {
  Object.assign(take, { text: target.text, words: target.words, seed: target.chosen.seed, voice: target.chosen.voice ?? take.voice });
  take.isWhole = target.state === 'done' && take.audioMs > target.audioMs - END_MS; // also if it was interrupted after that
  if (take.stages) latency.add(take.stages, take.origin);
  if (take === shown) take.figures = Object.fromEntries(FIGURES.map((element) => [element.id, element.textContent]));
  if (take.audioMs === 0) return;
  takes.add(take);
  if (take === shown) offer(take);
}

/** Enable replay and downloads of the take on the stage. @param {Take} take */
function offer(take) {
  const { heardMs } = waveform;
  waveform.show(take.loudness, { cutMs: take.cutMs, heardMs });
  $('position').max = waveform.spanMs;
  showHeard(heardMs);
  showTakeControls();
}

/** Put a take on the stage. @param {Take} take */
function stage(take) {
  staged = null;
  shown = take;
  transcript = lines;
  transcript.show(take.text, take.words);
  $('left-out').hidden = true;
  $('stage').dataset.view = 'words';
  for (const [id, words] of Object.entries(take.figures)) $(id).textContent = words;
  latency.show(take.stages, take.origin);
  offer(take);
}

/** @param {Take} take @param {number} [fromMs] */
async function replay(take, fromMs = 0) {
  interrupt();
  stage(take);
  setPhase('replaying', `Replaying${speakerWords()}`);
  showPosition(fromMs);
  await preview.play(take.wav, take, fromMs);
}

/** Start or stop the replay of the take on the stage. */
function toggleReplay() {
  if (preview.playing && preview.of === shown) return preview.stop();
  const atEnd = waveform.heardMs >= shown.audioMs - END_MS;
  return replay(shown, $('stage').dataset.phase === 'replayed' && !atEnd ? waveform.heardMs : 0);
}

/** Move the replay, or the place where it will begin. @param {number} ms */
function seek(ms) {
  if (preview.playing && preview.of === shown) return preview.seek(ms);
  if ($('stage').dataset.phase !== 'replayed') stage(shown); // without the mark of an interruption
  setPhase('replayed', 'Ready to replay from here.');
  return showPosition(Math.min(ms, shown.audioMs));
}

function previewChanged({ detail }) {
  const { of, playing } = preview;
  voices.showHeard(playing ? of : undefined);
  if (!(of instanceof Take) || of !== shown) return;
  if (playing) return keepShowing();
  if (detail?.atEnd) showPosition(of.audioMs); // a busy page may have shown an earlier one last
  setPhase('replayed', waveform.heardMs < of.audioMs - END_MS ? 'Replay stopped.' : 'Replayed to the end.');
}

/** @param {number} ms of the take on the stage */
function showPosition(ms) {
  const word = transcript.hear(ms);
  if (word) keepInSight(word);
  showHeard(ms);
  waveform.draw();
}

/** @param {Take} take @param {'wav' | 'mp3'} format @param {HTMLElement} pressed shows that the server makes it */
async function download(take, format, pressed) {
  if (pressed.ariaBusy === 'true') return undefined;
  const link = document.createElement('a');
  pressed.ariaBusy = 'true';
  try {
    link.href = URL.createObjectURL(format === 'wav' ? take.wav : await http().speech(speechRequest(settingsOf(take), model, format)));
  } catch (error) {
    return requestFailed(error);
  } finally {
    pressed.ariaBusy = 'false';
  }
  link.download = take.fileName(format);
  link.click();
  return setTimeout(() => URL.revokeObjectURL(link.href), REVOKE_MS);
}

/** Keep the seed of the take on the stage for the next ones, or let it go. */
function toggleSeed() {
  fields.seed.input.value = isSeedKept() ? '' : shown.seed;
  showSeed();
}

const isSeedKept = () => shown?.seed !== undefined && fields.seed.number === shown.seed;

function showSeed() {
  const { seed } = shown ?? {};
  $('keep-seed').disabled = seed === undefined;
  $('keep-seed').lastElementChild.textContent = seed === undefined ? 'Seed' : `Seed ${seed}`;
  $('keep-seed').setAttribute('aria-pressed', String(isSeedKept()));
  $('keep-seed').setAttribute('aria-label', seed === undefined ? 'Keep seed' : `Keep seed ${seed}`);
}

/** Return the settings of the form, with some text. */
function currentSettings() {
  const settings = readSettings($('form'));
  if (!settings.has('text')) settings.set('text', SAMPLES[0].text);
  return settings;
}

async function copyLink() {
  const done = await copyText(linkTo($('form')));
  $('copy-link').textContent = done ? 'Link copied' : 'Not copied';
  setTimeout(() => ($('copy-link').textContent = 'Copy link'), COPIED_MS);
}

/** Return the address of the server, without a slash at its end. */
const baseAddress = () => new URL('.', location.href).href.replace(/\/$/, '');

// ---- showing ------------------------------------------------------------------------------------------------------

function keepShowing() {
  cancelAnimationFrame(frame); // one speech may follow another within a frame
  frame = requestAnimationFrame(showProgress);
}

function showProgress() {
  if (context) {
    showProgressOnce(context);
    if (context.state === 'open' && $('phase').textContent !== speakingWords()) setPhase('speaking', speakingWords());
  } else if (preview.playing && preview.of === shown) showPosition(preview.positionMs);
  else return;
  keepShowing();
}

function showProgressOnce(target) {
  showPosition(target.heardMs);
  const { player } = tts ?? {};
  if (target.timing.audibleAt !== null) target.bufferMs ??= player?.targetMs ?? 0; // it may grow later
  shown.stages = stagesOf(target.timing, target.serverMs, target.bufferMs);
  latency.show(shown.stages, shown.origin);
  if (shown.stages) writtenThen ??= target.ended ? 'all of it' : wordsOf(target.text);
  setText($('m-written'), writtenThen ?? '–');
  if (player) setText($('m-underruns'), String(player.underruns - underrunsBefore));
}

function showWords(target, words) {
  transcript.write(target.text);
  transcript.addWords(words);
  $('m-timing').textContent = words.at(-1)?.timing ?? '–';
}

function speakingWords() {
  if (tts?.state === 'reconnecting' && tts.player.bufferedMs === 0) return 'Waiting for the server';
  if (context?.turn && context.text === '') return 'Waiting for the language model';
  if (context && context.heldMs !== null) return 'Held at the end of a word';
  if (tts?.player?.targetMs > MUCH_BUFFERED_MS) return 'Audio arrives late: buffering more';
  return `Speaking${speakerWords()}`;
}

/** Return whose voice is heard, if two are pinned. */
const speakerWords = () => (voices.pair.length > 0 && !isTalk() ? `: ${shown.voiceName}` : '');

function showHeard(heardMs) {
  waveform.heardMs = heardMs;
  const [heard, made] = [clock(heardMs), clock(waveform.loudness.madeMs)];
  setText($('heard-time'), `${heard} heard`);
  setText($('made-time'), `${made} made`);
  $('position').value = heardMs;
  const words = `${heard} of ${made}`;
  if ($('position').getAttribute('aria-valuetext') !== words) $('position').setAttribute('aria-valuetext', words);
}

function setPhase(phase, words) {
  $('stage').dataset.phase = phase;
  $('phase').textContent = words;
  showSpeak();
  $('hold').hidden = context === null;
  showTakeControls();
  $('wave').setAttribute('aria-label', `Waveform: ${words}`);
}

/** Show what the button does. */
function showSpeak() {
  const busy = isBusy();
  $('speak').classList.toggle('stop', busy);
  $('speak').querySelector('span').textContent = busy ? 'Stop' : isTalk() ? 'Send' : 'Speak';
  $('speak').querySelector('kbd').textContent = busy ? 'Esc' : isTalk() ? '↵' : SPEAK_KEYS;
  $('speak').setAttribute('aria-keyshortcuts', busy ? 'Escape' : 'Control+Enter Meta+Enter');
  setIcon($('speak'), busy ? 'stop' : 'play');
}

/** Show the text or the conversation, and its settings. */
function showSource() {
  const before = $('stage').dataset.source;
  const source = $('arrival').disabled ? 'typed' : $('form').elements.source.value;
  $('streamed').hidden = source === 'typed';
  if (source === before) return;
  if (isTalk() || source === 'talk') {
    interrupt();
    voiceTalk?.hangUp();
    $('stage').dataset.view = 'edit';
  }
  $('stage').dataset.source = $('form').dataset.source = source;
  $('llm').hidden = !isTalk();
  document.querySelector('.rate').hidden = isTalk();
  $('listen-title').textContent = isTalk() ? 'Talk' : 'Text';
  $('edit-text').textContent = isTalk() ? 'Back' : 'Edit';
  showSpeak();
}

/** Show the text or the conversation in place of the words spoken, ready to be written. */
function edit() {
  editor.edit();
  if (isTalk()) talk.message.focus();
}

/** Return whether there is something to stop. */
const isBusy = () => ['speaking', 'replaying'].includes($('stage').dataset.phase);

function showTakeControls() {
  const replaying = $('stage').dataset.phase === 'replaying';
  for (const id of ['position', 'replay', 'save-wav', 'save-mp3']) $(id).disabled = context !== null || !shown?.audioMs;
  $('replay').lastElementChild.textContent = replaying ? 'Pause' : 'Replay';
  setIcon($('replay'), replaying ? 'pause' : 'play');
  showSeed();
}

function showConnection(state) {
  $('connection').dataset.state = state;
  $('connection').lastElementChild.textContent = CONNECTION_WORDS[state];
  if (state === 'open') notice.connected();
}

function showFormat() {
  const { model, audio } = tts.session;
  const parts = [model?.split('/').at(-1), audio.codec === 'opus' ? 'Opus' : 'PCM', `${audio.sample_rate / 1000} kHz`];
  $('model').textContent = parts.filter(Boolean).join(' · ');
}

function showLeftOut(target, spans) {
  $('left-out').textContent = leftOutWords(target.text, spans);
  $('left-out').hidden = false;
}

function showInsecure() {
  const { command, address } = tunnelWords(location);
  $('tunnel').textContent = command;
  Object.assign($('tunnel-address'), { href: address, textContent: address });
  $('insecure').hidden = false;
  $('arrival').disabled = $('versus').disabled = $('codec').disabled = true;
  showSource();
  for (const id of ['arrival', 'voice-switch']) $(id).hidden = true; // they need a stream
  showConnection('open');
}

function keepInSight(word) {
  const box = $('transcript');
  const [top, bottom] = [word.offsetTop, word.offsetTop + word.offsetHeight];
  if (top < box.scrollTop || bottom > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 3;
}

/** Show as much as possible of an answer that is being written. */
function keepEndInSight() {
  const box = $('transcript');
  box.scrollTop = Math.max(box.scrollTop, Math.min(box.scrollHeight - box.clientHeight, transcript.element.offsetTop));
}

function bringStageIntoView() {
  const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
  if (matchMedia('(max-width: 40rem), (max-width: 56rem) and (min-height: 30.01rem)').matches) $('stage').scrollIntoView({ behavior: calm ? 'auto' : 'smooth' });
}

/** Return a function that loads at its first call. @template T @param {() => Promise<T>} load @returns {() => Promise<T>} */
function once(load) {
  let loaded;
  return () => (loaded ??= load());
}

const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
const clock = (ms) => `${Math.floor(ms / 60_000)}:${((ms % 60_000) / 1000).toFixed(1).padStart(4, '0')}`;

// ---- controls -----------------------------------------------------------------------------------------------------

$('form').addEventListener('submit', (event) => (event.preventDefault(), speak()));
$('speak').addEventListener('click', (event) => isBusy() && (event.preventDefault(), interrupt()));
$('hold').addEventListener('click', toggleHold);
$('edit-dialog').addEventListener('close', () => voices.focus(voiceEditor.voice.id));
$('dismiss').addEventListener('click', () => notice.clear());
preview.addEventListener('change', previewChanged);
$('replay').addEventListener('click', toggleReplay);
$('position').addEventListener('input', () => seek(Number($('position').value)));
$('transcript').addEventListener('click', ({ target }) => {
  const fromMs = transcript.startOf(target);
  if (fromMs !== undefined && !context) replay(shown, fromMs);
});
$('save-wav').addEventListener('click', ({ currentTarget }) => download(shown, 'wav', currentTarget));
$('save-mp3').addEventListener('click', ({ currentTarget }) => download(shown, 'mp3', currentTarget));
$('keep-seed').addEventListener('click', toggleSeed);
$('copy-link').addEventListener('click', copyLink);
for (const event of ['input', 'change']) {
  $('seed').addEventListener(event, showSeed);
  $('rate').addEventListener(event, () => ($('rate-out').textContent = `${$('rate').value} tokens/s`));
}
for (const option of $('form').elements.source) option.addEventListener('change', showSource);
$('edit-text').addEventListener('click', edit);
$('new-talk').addEventListener('click', () => (voiceTalk?.hangUp(), interrupt(), talk.clear(), edit()));
document.addEventListener('keydown', (event) => {
  if (document.querySelector('dialog[open]')) return;
  if (event.key === 'Escape') interrupt();
  if (event.key === '.' && (event.ctrlKey || event.metaKey)) toggleHold();
  if (event.key === 'b' && (event.ctrlKey || event.metaKey) && $('pair').offsetHeight > 0) {
    event.preventDefault(); // Firefox would show its bookmarks
    $('pair').querySelector('[aria-pressed="false"]').click();
  }
  if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault(); // Enter would also press the button that has the focus
  speak();
});

tellDroppedPaste(document);
$('form').addEventListener('change', ({ target }) => restored?.delete(target.name)); // a choice made before the server's offer is here counts

// Dialogs that most visits do not need are loaded when they are opened first.
const makerLoaded = once(async () => {
  const { VoiceMaker } = await import('./voice-maker.js');
  return new VoiceMaker($('voice-dialog'), (fields) => http().addVoice(fields), voiceMade);
});
const codeLoaded = once(async () => {
  const { CodeDialog } = await import('./code-dialog.js');
  return new CodeDialog($('code-dialog'), () => ({ base: baseAddress(), model, settings: currentSettings(), hasKey: keys.key !== undefined }));
});
const voiceTalkLoaded = once(async () => {
  const { VoiceTalk } = await import('./voice-talk.js');
  return (voiceTalk = new VoiceTalk($('by-voice'), talk, {
    session: () => ({ audio: { output: { voice: voices.chosen } } }),
    begin: () => (interrupt(), voiceSwitch.turnOff(), notice.clear(), edit()),
    called: (isOn) => (voiceSwitch.element.hidden = isOn),
    phase: setPhase,
    follow: () => ($('transcript').scrollTop = $('transcript').scrollHeight),
    fail: (error) => notice.show(error),
  }));
});
$('by-voice').addEventListener('click', async () => (await voiceTalkLoaded()).toggle());
$('new-voice').addEventListener('click', async () => (interrupt(), (await makerLoaded()).open(making)));
$('use-code').addEventListener('click', async () => (await codeLoaded()).open());

// A page kept for "back" would keep its session and its speech on the server; a clean close frees both at once.
addEventListener('pagehide', () => (storeSettings($('form')), voiceSwitch.turnOff(), voiceTalk?.hangUp(), preview.stop(), $('voice-dialog').close(), tts?.close()));
addEventListener('pageshow', ({ persisted }) => persisted && reconnect());

applySettings($('form'), restored ?? new URLSearchParams({ text: SAMPLES[0].text }));
$('codec').addEventListener('change', () => $('codec').value !== codec && reconnect());
// A browser may end a page in the background without `pagehide`.
document.addEventListener('visibilitychange', () => document.hidden && storeSettings($('form')));
addEventListener('hashchange', () => {
  const linked = takeLink(); // none: a jump within the page
  if (!linked) return;
  restored = linked;
  applySettings($('form'), linked);
  edit();
  loadOffer().catch((error) => notice.show(error));
});
hook?.expose(() => tts, voiceSwitch);
setPhase('idle', 'Ready when you are.');
await connect();
