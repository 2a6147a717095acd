/** The form's values as `URLSearchParams`: text, voice, parameters. The same for takes, links and requests. */

/** Return the values that are not empty. @param {HTMLFormElement} form @returns {URLSearchParams} */
export function readSettings(form) {
  return new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ''));
}

/** Set all controls; those without a value get their default. @param {HTMLFormElement} form @param {URLSearchParams} settings */
export function applySettings(form, settings) {
  for (const control of form.elements) {
    if (!control.name) continue;
    const value = settings.get(control.name);
    if (control.type === 'radio') control.checked ||= value === control.value;
    else control.value = value ?? control.querySelector('option')?.value ?? control.defaultValue;
    control.dispatchEvent(new Event('change'));
  }
}

const STORED_AS = 'realtime-tts.settings';

/** Return the settings of the link that opened the page, once; null: it has none. @returns {URLSearchParams | null} */
export function takeLink() {
  const linked = new URLSearchParams(location.hash.slice(1));
  if (!linked.get('text')) return null;
  history.replaceState(null, '', location.pathname + location.search); // a reload keeps what is changed from now on
  return linked;
}

/** Return the settings of the last visit; null: there are none. @returns {URLSearchParams | null} */
export function storedSettings() {
  try {
    const stored = localStorage.getItem(STORED_AS);
    return stored ? new URLSearchParams(stored) : null;
  } catch {
    return null; // storage is blocked
  }
}

/** Keep the settings in this browser for the next visit. @param {HTMLFormElement} form */
export function storeSettings(form) {
  try {
    localStorage.setItem(STORED_AS, readSettings(form));
  } catch {
    // as above, or full
  }
}

/** Return the page's address with the settings. They stand behind `#`, so that no server receives them. @param {HTMLFormElement} form */
export function linkTo(form) {
  return new URL(`#${readSettings(form)}`, location.href).href;
}

/** @param {import('./take.js').Take} take @returns {URLSearchParams} settings that give the same speech again */
export function settingsOf({ settings, text, voice, seed }) {
  const same = new URLSearchParams(settings);
  for (const [name, value] of Object.entries({ text, voice, seed })) if (value !== undefined) same.set(name, value);
  same.delete('versus');
  return same;
}

export const NUMBERS = ['speed', 'volume', 'sentence_pause_ms', 'steps', 'cfg', 'seed'];
const WORDS = ['language', 'text_type', 'instructions', 'adapter'];

/** @param {string} lines `word = respelling` each @returns {Record<string, string>} */
export function parseLexicon(lines) {
  const entries = lines.split('\n').map((line) => line.split('=').map((part) => part.trim()));
  return Object.fromEntries(entries.filter(([word, respelling]) => word && respelling));
}

/** Return the speech parameters, with `mode` for a text that is sent piece by piece. @param {URLSearchParams} settings */
export function speechParams(settings) {
  const params = {};
  for (const name of NUMBERS) if (settings.get(name)) params[name] = Number(settings.get(name));
  for (const name of WORDS) if (settings.get(name)) params[name] = settings.get(name);
  const lexicon = parseLexicon(settings.get('lexicon') ?? '');
  if (Object.keys(lexicon).length > 0) params.lexicon = lexicon;
  if (settings.get('source') === 'llm') params.mode = settings.get('mode');
  return params;
}

/** Return the body of `POST /v1/audio/speech`. @param {URLSearchParams} settings @param {string} model @param {string} format */
export function speechRequest(settings, model, format) {
  const { mode, ...params } = speechParams(settings); // a whole text has no mode
  return { model, input: settings.get('text'), voice: settings.get('voice') ?? undefined, response_format: format, ...params };
}
