// Drives OpenAI's agents SDK: a turn that is interrupted, then a turn with a tool. Argument: the WebSocket's address.
import { RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { z } from "zod";

const [url] = process.argv.slice(2);
const RATE_HZ = 24_000;
const asked = [];
const weather = tool({
  name: "weather",
  description: "Return the weather of a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    asked.push(city);
    return "say It is sunny.";
  },
});
const session = new RealtimeSession(new RealtimeAgent({ name: "Ann", instructions: "Be brief.", tools: [weather] }), {
  transport: "websocket",
});
const errors = [];
let audioBytes = 0;
let numInterrupted = 0;
session.on("error", ({ error }) => errors.push(error));
session.on("audio", ({ data }) => (audioBytes += data.byteLength));
session.on("audio_interrupted", () => (numInterrupted += 1));

/** Send 100 ms of noise or silence, number times. */
function send(loud, number) {
  for (let index = 0; index < number; index += 1) {
    const samples = Int16Array.from({ length: RATE_HZ / 10 }, () => (loud ? (Math.random() - 0.5) * 30_000 : 0));
    session.sendAudio(samples.buffer);
  }
}

async function until(condition) {
  const end = Date.now() + 90_000;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`waited in vain for ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const spoken = () =>
  session.history
    .filter(({ role, status }) => role === "assistant" && status === "completed")
    .map(({ content }) => content.map((part) => part.transcript ?? part.text).join(""));

await session.connect({ apiKey: "any", url });
send(false, 5), send(true, 8), send(false, 8);
await until(() => audioBytes > RATE_HZ);
send(true, 8);
await until(() => numInterrupted === 1);
send(false, 8);
await until(() => spoken().at(-1) === "It is sunny.");
session.close();
console.log(JSON.stringify({ errors, asked, audioBytes, last: spoken().at(-1) }));
