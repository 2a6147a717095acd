// Drives OpenAI's JavaScript client; prints one JSON object. Arguments: base URL, key, what to do, more of it as JSON.
import OpenAI, { APIError } from "openai";

const [baseURL, apiKey, action, more] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const wanted = { model: "gpt-4o-mini-tts", voice: "alloy", response_format: "pcm", ...JSON.parse(more ?? "{}") };

async function bytesOf(response) {
  return (await response.arrayBuffer()).byteLength;
}

const actions = {
  async whole() {
    const response = await client.audio.speech.create(wanted);
    return { bytes: await bytesOf(response), type: response.headers.get("content-type") };
  },
  async turns() {
    const bytes = [];
    for (let turn = 0; turn < 2; turn += 1) bytes.push(await bytesOf(await client.audio.speech.create(wanted)));
    const together = await Promise.all([0, 1].map(() => client.audio.speech.create(wanted).then(bytesOf)));
    return { bytes: [...bytes, ...together] };
  },
  async interrupt() {
    const stop = new AbortController();
    const response = await client.audio.speech.create(wanted, { signal: stop.signal });
    const { value } = await response.body.getReader().read();
    stop.abort();
    return { bytes: value.byteLength };
  },
  async models() {
    const listed = [];
    for await (const model of client.models.list()) listed.push(model.id);
    return { listed, one: (await client.models.retrieve("tts-1")).id };
  },
};

try {
  console.log(JSON.stringify(await actions[action]()));
} catch (error) {
  if (!(error instanceof APIError)) throw error;
  console.log(JSON.stringify({ status: error.status, code: error.code, type: error.type, requestID: error.requestID }));
}
