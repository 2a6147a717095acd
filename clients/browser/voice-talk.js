/** Spoken turns of a talk: a call with a voice agent, whose turns stand among the typed ones. */

import { VoiceCall } from './voice-call.js';

const DEFAULT_ADDRESS = 'http://localhost:8060';

/**
 * @typedef {object} Page
 * @property {() => object} session settings of OpenAI's Realtime API
 * @property {() => void} begin called before the microphone is asked for
 * @property {(isOn: boolean) => void} called
 * @property {(phase: string, words: string) => void} phase
 * @property {() => void} follow show what was added
 * @property {(error: {code: string, message: string}) => void} fail
 */

export class VoiceTalk {
  /** @type {VoiceCall | null} */
  #call = null;
  /** Whether a call that is being made is still wanted. */
  #isWanted = false;
  /** Turns by the ids of their items, and the newest. @type {Map<string, import('./talk.js').Turn & {text: string}>} */
  #turns = new Map();
  #newest = null;
  #speaks = false;

  /** @param {HTMLButtonElement} button @param {import('./talk.js').Talk} talk @param {Page} page */
  constructor(button, talk, page) {
    Object.assign(this, { button, talk, page, speaker: new Audio() });
    this.speaker.autoplay = true;
  }

  get isOn() {
    return this.#call !== null;
  }

  /** Call, or hang up. */
  async toggle() {
    if (this.#call) return this.#call.hangUp();
    const address = this.talk.agentAddress(DEFAULT_ADDRESS);
    if (address === null) return undefined;
    this.page.begin();
    this.page.phase('idle', 'Calling the voice agent');
    this.button.disabled = this.#isWanted = true;
    try {
      const call = await VoiceCall.begin(address, this.speaker, this.page.session());
      if (!this.#isWanted) return call.hangUp(); // the visitor has left the talk meanwhile
      this.#call = call;
    } catch (error) {
      return this.#isWanted ? this.#ended(error) : undefined;
    } finally {
      this.button.disabled = false;
    }
    this.#call.addEventListener('event', ({ detail }) => this.#events[detail.type]?.(detail));
    this.#call.addEventListener('ended', ({ detail }) => this.#ended(detail));
    return this.#showButton();
  }

  hangUp() {
    if (this.#isWanted && !this.#call) this.page.phase('idle', 'The call is over.'); // it was not answered yet
    this.#isWanted = false;
    this.#call?.hangUp();
  }

  /** Send a typed message. @param {string} text */
  say(text) {
    this.interrupt();
    this.#call.send('conversation.item.create', { item: { type: 'message', role: 'user', content: [{ type: 'input_text', text }] } });
    this.#call.send('response.create');
  }

  /** Stop the answer. */
  interrupt() {
    if (this.#speaks) this.#call?.send('output_audio_buffer.clear');
  }

  #events = {
    'session.created': () => this.#listen(),
    'input_audio_buffer.speech_started': () => this.page.phase(this.#speaks ? 'speaking' : 'idle', 'You are speaking'),
    'input_audio_buffer.speech_stopped': () => this.#speaks || this.#listen(),
    'output_audio_buffer.started': () => {
      this.#speaks = true;
      this.page.phase('speaking', 'Speaking');
    },
    'output_audio_buffer.stopped': () => {
      this.#newest?.lines.finish();
      this.#newest?.settle(this.#newest.text);
      this.#listen();
    },
    'output_audio_buffer.cleared': () => this.#listen(),
    'conversation.item.added': ({ item: { id, role, content } }) => {
      if (role === 'user') this.#ask(id, content?.[0]?.text ?? '…');
      else if (role === 'assistant' && this.#newest) this.#turns.set(id, this.#newest);
    },
    'conversation.item.input_audio_transcription.completed': ({ item_id: id, transcript }) => {
      if (transcript) this.#turns.get(id)?.rename(transcript);
      else this.#turns.get(id)?.drop(); // a noise
    },
    'conversation.item.input_audio_transcription.failed': ({ item_id: id, error }) => {
      this.#turns.get(id)?.drop();
      this.page.fail(error);
    },
    'response.output_audio_transcript.delta': ({ item_id: id, delta }) => this.#write(this.#turns.get(id), delta),
    'conversation.item.truncated': ({ item_id: id }) => this.#call.send('conversation.item.retrieve', { item_id: id }),
    'conversation.item.retrieved': ({ item }) => this.#cut(this.#turns.get(item.id), item.content[0].transcript),
    'response.done': ({ response: { status, status_details: details } }) => status === 'failed' && this.page.fail(details.error),
    error: ({ error }) => this.page.fail(error),
  };

  #listen() {
    this.#speaks = false;
    this.page.phase('idle', 'Listening');
  }

  #ask(id, question) {
    const turn = Object.assign(this.talk.ask(question), { text: '' });
    turn.show();
    this.#turns.set(id, turn);
    this.#newest = turn;
    this.page.follow();
  }

  /** Text of the answer comes with the audio that speaks it. */
  #write(turn, delta) {
    if (!turn) return;
    const from = turn.text.length;
    turn.text += delta;
    turn.lines.write(turn.text);
    turn.lines.addWords([...delta.matchAll(/\S+/g)].map(({ 0: word, index }) => (
      { start: from + index, end: from + index + word.length, startMs: 0, endMs: 0 })));
    turn.lines.hear(1);
    this.page.follow();
  }

  #cut(turn, heard) {
    turn?.lines.cut(heard.length, 'interrupted');
    turn?.settle(heard);
    this.page.follow();
  }

  #ended(error) {
    for (const turn of this.#turns.values()) turn.settle(turn.text); // unless it is known better
    this.#call = this.#newest = null;
    this.#isWanted = false;
    this.#turns.clear();
    this.#speaks = false;
    this.#showButton();
    this.page.phase(error ? 'failed' : 'idle', error ? 'No call' : 'The call is over.');
    if (error) this.page.fail(error);
  }

  #showButton() {
    this.button.setAttribute('aria-pressed', String(this.isOn));
    this.button.title = this.isOn ? 'Hang up' : 'Talk by voice';
    this.button.setAttribute('aria-label', this.button.title);
    this.page.called(this.isOn);
  }
}
