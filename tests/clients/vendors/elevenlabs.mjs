// Drives ElevenLabs' JavaScript client. Argument: a list of {url, key, action, voice, wanted} as JSON; prints an object
// with the answers. One process for all, since the package takes seconds to load.
import { setTimeout as sleep } from "node:timers/promises";
import { ElevenLabsClient, ElevenLabsError } from "@elevenlabs/elevenlabs-js";

async function bytesOf(stream) {
  let bytes = 0;
  for await (const chunk of stream) bytes += chunk.length;
  return bytes;
}

async function numAtWork(url) {
  const figures = await (await fetch(`${url}/metrics`)).text();
  return figures.match(/^realtime_tts_engine_(running|waiting|parked)\b.* [1-9]/gm)?.length ?? 0;
}

const actions = {
  async turns({ textToSpeech }, { voice, wanted }) {
    const speak = async () => bytesOf(await textToSpeech.stream(voice, wanted));
    const whole = await bytesOf(await textToSpeech.convert(voice, wanted));
    return { bytes: [whole, await speak(), ...(await Promise.all([speak(), speak()]))] };
  },
  async timed({ textToSpeech }, { voice, wanted }) {
    const found = await textToSpeech.convertWithTimestamps(voice, wanted);
    const pieces = [];
    for await (const piece of await textToSpeech.streamWithTimestamps(voice, wanted)) pieces.push(piece);
    return {
      whole: found.alignment.characters.join(""),
      streamed: pieces.flatMap((piece) => piece.alignment?.characters ?? []).join(""),
      bytes: [found, ...pieces].map((piece) => Buffer.from(piece.audioBase64, "base64").length),
    };
  },
  async interrupt({ textToSpeech }, { url, voice, wanted }) {
    const stop = new AbortController();
    const stream = await textToSpeech.stream(voice, wanted, { abortSignal: stop.signal });
    const { value } = await stream.getReader().read();
    while (!(await numAtWork(url))) await sleep(20);
    stop.abort();
    for (let waited = 0; waited < 250 && (await numAtWork(url)); waited += 1) await sleep(20);
    return { bytes: value.length, atWork: await numAtWork(url) };
  },
  async catalogue({ voices, models }) {
    const listed = (await voices.getAll()).voices;
    return {
      voices: listed.map((voice) => voice.voiceId),
      found: (await voices.search()).voices.length,
      models: (await models.list()).map((model) => model.modelId),
      one: (await voices.get(listed[0].voiceId)).name,
    };
  },
};

const answers = [];
for (const asked of JSON.parse(process.argv[2])) {
  const client = new ElevenLabsClient({ baseUrl: asked.url, apiKey: asked.key, maxRetries: 0 });
  try {
    answers.push(await actions[asked.action](client, asked));
  } catch (error) {
    if (!(error instanceof ElevenLabsError)) throw error;
    answers.push({ status: error.statusCode, body: error.body });
  }
}
console.log(JSON.stringify({ answers }));
