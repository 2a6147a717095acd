/** With `?test=1`: keeps every sample decoded and every sample played, for tests to read back through `__playground`. */

/** @type {Map<number, {samples: Float32Array, position: number}[]>} */
const decoded = new Map();
/** @type {Map<number, {samples: Float32Array, position: number, time: number}[]>} */
const played = new Map();
let last = null;

function append(map, number, chunk) {
  if (!map.has(number)) map.set(number, []);
  map.get(number).push(chunk);
}

/** Callback for the player, called with all audio that leaves the worklet. */
export function tap({ number, samples, position, time }) {
  append(played, number, { samples, position, time });
}

/** @param {import('./context.js').SpeechContext} context */
export function watch(context) {
  last = context;
  context.addEventListener('audio', ({ detail: { samples, position } }) =>
    append(decoded, context.track, { samples: samples.slice(), position }),
  );
}

/** Base64 of 32-bit floats: as numbers, a second of samples would take a test half a second to read. */
async function joined(chunks = []) {
  const bytes = new Blob(chunks.map(({ samples }) => samples));
  const reader = new FileReader();
  const read = new Promise((resolve) => (reader.onload = resolve));
  reader.readAsDataURL(bytes);
  await read;
  return reader.result.slice(reader.result.indexOf(',') + 1);
}

/**
 * @param {() => import('./realtime-tts.js').RealtimeTTS | null} session
 * @param {import('./voice-switch.js').VoiceSwitch} voiceSwitch
 */
export function expose(session, voiceSwitch) {
  window.__playground = {
    session,
    voiceSwitch,
    /** The context spoken last: number (the player's own: one for each context of this page), state, heardMs, text. */
    last: () => last && { id: last.contextId, number: last.track, state: last.state, heardMs: last.heardMs, text: last.text, timing: last.timing },
    /** Number of a context's samples sent to the loudspeaker. */
    samplesPlayed: (number) => (played.get(number) ?? []).reduce((sum, { samples }) => sum + samples.length, 0),
    samplesDecoded: (number) => (decoded.get(number) ?? []).reduce((sum, { samples }) => sum + samples.length, 0),
    /** The samples themselves. */
    decoded: (number) => joined(decoded.get(number)),
    played: (number) => joined(played.get(number)),
    sampleRate: () => session()?.format.sample_rate,
    audioTime: () => session()?.player?.context.currentTime,
    /** Audio clock time of the last sample played of a context. */
    lastPlayedAt: (number) => (played.get(number) ?? []).at(-1)?.time ?? null,
  };
}
