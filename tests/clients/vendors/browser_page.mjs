// The JavaScript clients on a page of another origin than the server's; a test bundles it and calls `speak…`.
// The package's index needs Node.js (`node:events`); its client without helpers does not.
import { ElevenLabsClient } from "@elevenlabs/elevenlabs-js/Client";
import OpenAI from "openai";

// Wrong keys have to be refused, not asked for again.
const openai = (url, apiKey) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey, dangerouslyAllowBrowser: true, maxRetries: 0 });
const elevenlabs = (url, apiKey) => new ElevenLabsClient({ baseUrl: url, apiKey });

const actions = {
  async openaiSpeech(url, key) {
    const wanted = { model: "tts-1", voice: "alloy", input: "Hello there.", response_format: "pcm" };
    const response = await openai(url, key).audio.speech.create(wanted);
    return {
      bytes: (await response.arrayBuffer()).byteLength,
      voice: response.headers.get("realtime-tts-voice"),
      notice: response.headers.get("realtime-tts-notice"),
      id: response.headers.get("x-request-id"),
    };
  },
  async openaiModels(url, key) {
    return (await openai(url, key).models.list()).data.map((model) => model.id);
  },
  async elevenlabsSpeech(url, key) {
    const wanted = { text: "Hello there.", modelId: "eleven_flash_v2_5", outputFormat: "pcm_24000" };
    const speaking = elevenlabs(url, key).textToSpeech.stream("slt", wanted, { maxRetries: 0 });
    const { data, rawResponse } = await speaking.withRawResponse();
    let bytes = 0;
    for (const reader = data.getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) return { bytes, voice: rawResponse.headers.get("realtime-tts-voice") };
      bytes += value.byteLength;
    }
  },
  async elevenlabsVoices(url, key) {
    return (await elevenlabs(url, key).voices.search()).voices.map((voice) => voice.voiceId);
  },
};

globalThis.run = async (name, ...args) => {
  try {
    return await actions[name](...args);
  } catch (error) {
    return { error: error.constructor.name, status: error.status ?? error.statusCode ?? null, message: String(error) };
  }
};
