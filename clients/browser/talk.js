/** Talk to a language model: its address and key, and the turns on the stage. */

import { Chat } from './chat.js';
import { make } from './elements.js';
import { chatUrl, writtenBy } from './llm.js';
import { simulateModel } from './llm-simulator.js';
import { Transcript } from './transcript.js';

/** Answers where no language model is set. */
const SCRIPT = [
  'I heard you. No language model is set, so my answers are scripted. Send something while I speak, and I stop at once. '
    + 'What you did not hear is struck out, and a model would not be told that it said it.',
  'You can also hold me: I stop at the end of a word, and go on from there when you like. '
    + 'Or switch on the interruption by voice, and simply begin to speak.',
  'That is all that I was given to say. Enter the address of a language model, and it will answer you in my place.',
];
const FAULTS = {
  address: 'An address that begins with http:// or https://, or nothing.',
  llm_cors: 'Its server does not allow this page.',
  llm_unauthorized: 'Its server did not accept this key.',
  llm_unreachable: 'No answer from this address.',
};

const REST_MS = 400; // after the last key, a message may be complete
const SENTENCE_END = /[.?!…]["'”’)]*\s*$/;

/**
 * @typedef {object} Turn
 * @property {Transcript} lines of the answer
 * @property {(question: string) => void} rename change what was asked
 * @property {(signal: AbortSignal) => AsyncIterable<string>} answer
 * @property {(heard: string) => void} settle called once with the text that was heard
 * @property {() => void} show put it on the stage, and empty the message's field
 * @property {() => void} drop forget it
 * @property {() => void} takeBack forget it, as it had no answer, and restore the message
 */

export class Talk {
  /**
   * @param {{message: HTMLTextAreaElement, turns: HTMLElement, url: HTMLInputElement, model: HTMLInputElement, key: HTMLInputElement, agent: HTMLInputElement}} elements
   * @param {{send: () => void, draft: (question: string) => void, rate: () => number}} page `draft` is called with a message that may
   *   be complete, and with nothing when it changes; `rate` of scripted answers, tokens a second
   */
  constructor({ message, turns, ...fields }, { send, draft, rate }) {
    Object.assign(this, { message, turns, fields, rate, chat: new Chat() });
    let timer;
    message.addEventListener('input', () => {
      clearTimeout(timer);
      draft('');
      timer = setTimeout(() => this.#mayBeAsked && draft(message.value.trim()), REST_MS);
    });
    for (const [name, input] of Object.entries(fields)) keep(name, input);
    message.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.ctrlKey || event.metaKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
  }

  /** Return whether the settings can be used, and show what is wrong. */
  check() {
    const address = this.fields.url.value.trim();
    const isWrong = address !== '' && chatUrl(address) === null;
    this.#tell('url', isWrong ? FAULTS.address : '');
    this.#tell('key', '');
    if (isWrong) this.fields.url.focus();
    return !isWrong;
  }

  /** Return the voice agent's address, or show what is wrong with it and return null. @param {string} otherwise if the field is empty */
  agentAddress(otherwise) {
    const address = this.fields.agent.value.trim() || otherwise;
    const isWrong = chatUrl(address) === null;
    this.#tell('agent', isWrong ? FAULTS.address : '');
    return isWrong ? null : address;
  }

  /** Show at a field what is wrong with it. @param {{code?: string, field?: string | null}} error */
  show({ code, field }) {
    if (code in FAULTS) this.#tell(field, FAULTS[code]);
  }

  /** Address, model and key. */
  get settings() {
    return ['url', 'model', 'key'].map((name) => this.fields[name].value.trim());
  }

  /** Make a turn, whose answer can be asked for before it is shown. @param {string} question @returns {Turn} */
  ask(question) {
    const turn = this.chat.ask(question);
    const words = make('p', {});
    const asked = make('p', { textContent: question });
    const items = [item('asked', 'You', asked), item('answer', 'Answer', words)];
    const drop = () => {
      this.chat.takeBack(turn);
      for (const element of items) element.remove();
    };
    return {
      lines: new Transcript(words),
      rename: (said) => (turn.question = asked.textContent = said),
      answer: (signal) => this.#answer(turn, signal),
      settle: turn.settle,
      show: () => {
        this.message.value = '';
        this.turns.append(...items);
        this.turns.parentElement.scrollTop = this.turns.parentElement.scrollHeight;
      },
      drop,
      takeBack: () => {
        drop();
        this.message.value ||= question;
      },
    };
  }

  /** Begin a new conversation. */
  clear() {
    this.chat.clear();
    this.turns.replaceChildren();
  }

  /** Whether the answer may be asked for ahead: of a model, which may cost money, only after a whole sentence. */
  get #mayBeAsked() {
    const address = this.fields.url.value.trim();
    return address === '' || (chatUrl(address) !== null && SENTENCE_END.test(this.message.value));
  }

  async* #answer(turn, signal) {
    const [url, model, key] = this.settings;
    const messages = await this.chat.messages(turn);
    if (signal.aborted) return;
    if (url) yield* writtenBy({ url: chatUrl(url), model, key, messages, signal });
    else yield* simulateModel(SCRIPT[this.chat.numberOf(turn) % SCRIPT.length], { rate: this.rate, signal });
  }

  #tell(name, words) {
    const input = this.fields[name];
    input.setAttribute('aria-invalid', String(words !== ''));
    document.getElementById(`${input.id}-fault`).textContent = words;
  }
}

/** Keep a field's value in this browser, that of a key for the tab only. @param {string} name @param {HTMLInputElement} input */
function keep(name, input) {
  const [storage, stored] = [name === 'key' ? 'sessionStorage' : 'localStorage', `realtime-tts.llm-${name}`];
  try {
    input.value = globalThis[storage].getItem(stored) ?? '';
    input.addEventListener('input', () => globalThis[storage].setItem(stored, input.value));
  } catch {
    // storage is blocked: the value lives as long as the page
  }
}

function item(className, speaker, words) {
  return make('li', { className }, make('span', { className: 'hidden', textContent: `${speaker}: ` }), words);
}
