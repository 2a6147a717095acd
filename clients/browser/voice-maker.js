/** The dialog in which a visitor makes a voice: record it, take a file, or describe it. */

import { kindWords } from './kind-words.js';
import { SamplePlayer } from './sample-player.js';
import { MAX_S, VoiceRecorder } from './voice-recorder.js';

const [QUIETEST_DB, LOUDEST_DB] = [-60, -10]; // the ends of the level
const SAY = { record: 'Record', again: 'Record again', stop: 'Stop' };

/**
 * Return the first error in the entered fields, in their order on the form.
 * @param {{source: string, recording: Blob | null, instructions: string, name: string, consent: boolean, by: string, scope: string}} entered
 * @param {'required' | 'attested' | 'off'} policy @returns {[string, string] | null} which control, and what to say
 */
export function firstFault({ source, recording, instructions, name, consent, by, scope }, policy) {
  if (source === 'record' && !recording) return ['record', 'Record a few seconds of speech first.'];
  if (source === 'file' && !recording) return ['file', 'Choose a recording first.'];
  if (source === 'describe' && !instructions) return ['instructions', 'Describe the voice in a few words.'];
  if (!name) return ['voice-name', 'Give the voice a name.'];
  if (source === 'describe' || policy === 'off') return null;
  if (!consent) return ['consent', 'Without the speaker’s consent a voice is not cloned.'];
  if (policy === 'required' && !by) return ['consent-by', 'This server requires the name of the person who consents.'];
  if (policy === 'required' && !scope) return ['consent-scope', 'This server requires the use that is consented to.'];
  return null;
}

/** The fields of `POST /v1/voices`. @param {Parameters<typeof firstFault>[0] & {said: string}} entered */
export function voiceForm({ source, recording, instructions, said, name, consent, by, scope }) {
  if (source === 'describe') return { name, instructions };
  const spoken = said ? { reference: recording, prompt: recording, prompt_text: said } : { reference: recording };
  return {
    name,
    ...spoken,
    ...(consent && { consent: 'true' }),
    ...(by && { consent_by: by }),
    ...(scope && { consent_scope: scope }),
  };
}

export class VoiceMaker {
  /** @type {VoiceRecorder | null} */
  #recorder = null;
  /** @type {{record: Blob | null, file: Blob | null}} */
  #recordings = { record: null, file: null };
  #asking = false;

  /**
   * @param {HTMLDialogElement} dialog
   * @param {(fields: object) => Promise<object>} add sends the form of a voice; its result is given to `onMade`
   * @param {(voice: {id: string, name: string, warnings: object[]}) => void} onMade
   */
  constructor(dialog, add, onMade) {
    this.dialog = dialog;
    this.form = dialog.querySelector('form');
    this.add = add;
    this.onMade = onMade;
    this.player = new SamplePlayer();
    this.policy = 'attested';
    const on = (id, event, handler) => this.#get(id).addEventListener(event, handler);
    on('record', 'click', () => this.#toggleRecording());
    on('listen-back', 'click', () => (this.player.playing ? this.player.stop() : this.player.play(this.#recording)));
    on('file', 'change', ({ target }) => ((this.#recordings.file = target.files[0] ?? null), this.#show()));
    on('cancel-voice', 'click', () => this.dialog.close());
    for (const option of this.form.elements['made-of']) option.addEventListener('change', () => this.#changeSource());
    this.player.addEventListener('change', () => this.#show());
    this.form.addEventListener('submit', (event) => (event.preventDefault(), this.#make()));
    dialog.addEventListener('close', () => this.#tidy());
  }

  /** @param {{instructions?: boolean, consent?: 'required' | 'attested' | 'off'}} [making] as the server told it */
  open({ instructions = false, consent = 'attested' } = {}) {
    if (this.#isBusy) return this.dialog.showModal(); // it was closed before the server had made the voice
    this.policy = consent;
    this.#get('describe-choice').hidden = !instructions;
    this.form.reset();
    this.#recordings = { record: null, file: null };
    this.#say('');
    this.#show();
    return this.dialog.showModal();
  }

  /** Whether the server is making a voice. */
  get #isBusy() {
    return this.form.getAttribute('aria-busy') === 'true';
  }

  get #source() {
    return this.form.elements['made-of'].value;
  }

  get #recording() {
    return this.#recordings[this.#source] ?? null;
  }

  async #toggleRecording() {
    if (this.#asking) return;
    this.player.stop();
    if (this.#recorder) return this.#stopRecording();
    this.#asking = true;
    this.#say('');
    try {
      const recorder = await VoiceRecorder.start();
      if (!this.dialog.open) return void (await recorder.stop());
      this.#recorder = recorder;
      this.#get('said').value ||= this.#get('sentence').textContent;
      recorder.addEventListener('level', ({ detail }) => this.#showLevel(detail));
      recorder.addEventListener('time', ({ detail }) => (this.#get('recorded').textContent = `${detail.toFixed(1)} s of ${MAX_S}`));
      recorder.addEventListener('ended', () => this.#stopRecording());
    } catch (error) {
      this.#say(kindWords(error));
    } finally {
      this.#asking = false;
    }
    return this.#show();
  }

  async #stopRecording() {
    const recorder = this.#recorder;
    this.#recorder = null;
    if (recorder) this.#recordings.record = await recorder.stop();
    this.#showLevel(QUIETEST_DB);
    this.#show();
  }

  async #changeSource() {
    this.player.stop();
    await this.#stopRecording();
    if (this.#get('said').value === this.#get('sentence').textContent) this.#get('said').value = '';
    this.#say('');
    this.#show();
  }

  async #make() {
    if (this.#isBusy) return;
    await this.#stopRecording();
    this.player.stop();
    const text = (id) => this.#get(id).value.trim();
    const entered = {
      source: this.#source, recording: this.#recording, instructions: text('instructions'), said: text('said'),
      name: text('voice-name'), consent: this.#get('consent').checked, by: text('consent-by'), scope: text('consent-scope'),
    };
    const fault = firstFault(entered, this.policy);
    if (fault) return this.#refuse(...fault);
    this.#say('');
    this.#busy(true);
    try {
      const voice = await this.add(voiceForm(entered));
      this.dialog.close();
      this.onMade(voice);
    } catch (error) {
      this.#say(kindWords(error));
    } finally {
      this.#busy(false);
    }
    return undefined;
  }

  #refuse(id, words) {
    this.#say(words, id);
    this.#get(id).focus();
  }

  #show() {
    const [source, recording, recorder] = [this.#source, this.#recording, this.#recorder];
    this.form.dataset.source = source;
    this.#get('record').setAttribute('aria-pressed', String(recorder !== null));
    this.#get('record').querySelector('span').textContent = recorder ? SAY.stop : recording ? SAY.again : SAY.record;
    if (!recorder && !recording) this.#get('recorded').textContent = '';
    this.#get('listen-back').disabled = !recording || recorder !== null;
    this.#get('listen-back').textContent = this.player.playing ? 'Stop' : 'Listen';
    this.#get('consent-fields').hidden = source === 'describe' || this.policy === 'off';
    this.#get('consent-details').hidden = this.policy !== 'required';
  }

  #showLevel(levelDb) {
    const share = (levelDb - QUIETEST_DB) / (LOUDEST_DB - QUIETEST_DB);
    this.#get('record-level').style.transform = `scaleX(${Math.min(1, Math.max(0, share)).toFixed(3)})`;
  }

  #busy(busy) {
    this.form.setAttribute('aria-busy', String(busy));
    this.#get('make-voice').disabled = busy;
    this.#get('make-voice').textContent = busy ? 'Making the voice …' : 'Make the voice';
  }

  /** Show an error, at its control if it has one. @param {string} words @param {string} [id] */
  #say(words, id) {
    const fault = this.#get('voice-fault');
    this.form.querySelector('[aria-invalid]')?.removeAttribute('aria-invalid');
    if (id) {
      const control = this.#get(id);
      control.setAttribute('aria-invalid', 'true');
      control.setAttribute('aria-describedby', fault.id);
      control.closest('.field, .recording, label').after(fault);
    } else this.#get('keeps').before(fault);
    fault.textContent = words;
  }

  async #tidy() {
    this.player.stop();
    await this.#stopRecording();
    if (!this.#isBusy) this.#recordings = { record: null, file: null };
  }

  #get(id) {
    return this.dialog.querySelector(`#${id}`);
  }
}
