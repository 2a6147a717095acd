/** Programs that say the text on the page: filled with its text, voice and settings. Each runs as it is. */

import { speechParams, speechRequest } from './settings.js';

/** Parameters that the plugins for LiveKit and Pipecat take. */
const PLUGIN_PARAMS = new Set(['steps', 'cfg', 'seed', 'mode', 'language', 'instructions']);
const OPENAI_FIELDS = new Set(['model', 'input', 'voice', 'response_format', 'speed', 'instructions']);

/** A value as Python code; its strings are JSON's. @param {string | number} value */
const python = (value) => JSON.stringify(value);
const pythonDict = (values) => `{${Object.entries(values).map(([name, value]) => `"${name}": ${python(value)}`).join(', ')}}`;
/** @param {string} text as one word of a shell */
const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const isEmpty = (values) => Object.keys(values).length === 0;
/** Lines that are there, each indented. */
const lines = (indent, ...parts) => parts.filter(Boolean).map((part) => `${' '.repeat(indent)}${part}\n`).join('');

/**
 * @typedef {object} Moment of the page
 * @property {string} base address of the server, without a slash at its end
 * @property {string} model @property {URLSearchParams} settings the form's @property {boolean} hasKey the server requires a key
 */

/** By kind of program: its name, the guide about it, and its text. @type {Record<string, {name: string, guide: string, write: (moment: Moment) => string}>} */
export const PROGRAMS = {
  curl: {
    name: 'curl',
    guide: 'docs/guides/clients.md',
    write: ({ base, model, settings, hasKey }) => `curl -f ${base}/v1/audio/speech \\
${hasKey ? '  -H "Authorization: Bearer $REALTIME_TTS_API_KEY" \\\n' : ''}  -H 'Content-Type: application/json' \\
  -d ${shell(JSON.stringify(speechRequest(settings, model, 'wav')))} \\
  -o speech.wav
`,
  },
  python: {
    name: 'Python',
    guide: 'clients/python/README.md',
    write: ({ base, settings, hasKey }) => `# pip install ./clients/python
import asyncio
${hasKey ? 'import os\n' : ''}import wave

from realtime_tts_client import AudioFormat, connect

TEXT = ${python(settings.get('text'))}  # or an async iterator over what your model writes


async def main():
    audio = AudioFormat("pcm_s16le", sample_rate=24000)
    async with connect(${python(socket(base))}, audio=audio${pythonKey(hasKey)}) as session:
        context = session.speak(${['TEXT', ...pythonVoice(settings)].join(', ')})
        with wave.open("speech.wav", "wb") as file:
            file.setparams((1, 2, 24000, 0, "NONE", ""))
            async for samples in context.pcm("int16"):
                file.writeframes(samples.tobytes())


asyncio.run(main())
`,
  },
  javascript: {
    name: 'JavaScript',
    guide: 'clients/browser/README.md',
    write: ({ base, settings, hasKey }) => `// A module of a page. At another address than the server's: copy clients/browser, and allow the page's origin.
import { RealtimeTTS } from ${JSON.stringify(`${base}/realtime-tts.js`)};

const tts = await RealtimeTTS.connect(${JSON.stringify(`${socket(base)}/v1/stream`)}${hasKey ? ", { apiKey: prompt('API key') }" : ''});
const context = tts.open(${JSON.stringify({ voice: settings.get('voice') ?? undefined, params: speechParams(settings) })}); // after a click
context.send(${JSON.stringify(settings.get('text'))}); // again for each piece that your model writes
context.end();
await context.finished; // heard to the end; \`await context.cancel()\` interrupts and returns what was heard
`,
  },
  openai: {
    name: 'OpenAI',
    guide: 'docs/guides/clients.md',
    write: ({ base, model, settings, hasKey }) => {
      const fields = Object.entries(speechRequest(settings, model, 'wav')).filter(([, value]) => value !== undefined);
      const own = Object.fromEntries(fields.filter(([name]) => !OPENAI_FIELDS.has(name)));
      return `# pip install openai
${hasKey ? 'import os\n\n' : ''}from openai import OpenAI

client = OpenAI(base_url=${python(`${base}/v1`)}${pythonKey(hasKey) || ', api_key="any"'})
with client.audio.speech.with_streaming_response.create(
${lines(4, ...fields.filter(([name]) => OPENAI_FIELDS.has(name)).map(([name, value]) => `${name}=${python(value)},`), !isEmpty(own) && `extra_body=${pythonDict(own)},`)}) as response:
    response.stream_to_file("speech.wav")
`;
    },
  },
  livekit: {
    name: 'LiveKit',
    guide: 'docs/guides/agents.md',
    write: ({ base, settings, hasKey }) => `# pip install ./clients/python ./agents/livekit-plugins-realtime-tts
import asyncio
${hasKey ? 'import os\n' : ''}
from livekit.plugins import realtime_tts


async def main():
    tts = realtime_tts.TTS(${[python(socket(base)), ...pluginArguments(settings)].join(', ')}${pythonKey(hasKey)})
    # In your agent: AgentSession(stt=…, llm=…, vad=…, tts=tts)
    frame = await tts.synthesize(${python(settings.get('text'))}).collect()
    with open("speech.wav", "wb") as file:
        file.write(frame.to_wav_bytes())
    await tts.aclose()


asyncio.run(main())
${leftOut(settings)}`,
  },
  pipecat: {
    name: 'Pipecat',
    guide: 'docs/guides/agents.md',
    write: ({ base, settings, hasKey }) => `# pip install ./clients/python ./agents/pipecat-realtime-tts
import asyncio
${hasKey ? 'import os\n' : ''}import wave

from pipecat.frames.frames import EndFrame, TTSAudioRawFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.workers.runner import WorkerRunner
from pipecat_realtime_tts import RealtimeTTSService


class Recorder(FrameProcessor):
    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            file.writeframes(frame.audio)
        await self.push_frame(frame, direction)


async def main():
    tts = RealtimeTTSService(
        url=${python(socket(base))}${pythonKey(hasKey)},
        settings=RealtimeTTSService.Settings(${pluginArguments(settings).join(', ')}),
    )
    # In your agent: Pipeline([transport.input(), stt, user_aggregator, llm, tts, transport.output(), …])
    worker = PipelineWorker(Pipeline([tts, Recorder()]), params=PipelineParams(audio_out_sample_rate=24000))
    await worker.queue_frames([TTSSpeakFrame(${python(settings.get('text'))}), EndFrame()])
    runner = WorkerRunner()
    await runner.add_workers(worker)
    await runner.run()


with wave.open("speech.wav", "wb") as file:
    file.setparams((1, 2, 24000, 0, "NONE", ""))
    asyncio.run(main())
${leftOut(settings)}`,
  },
};

/** @param {string} base @returns {string} the same address for WebSockets */
function socket(base) {
  return base.replace(/^http/, 'ws');
}

/** The last argument of a client, from the environment: a key is never shown. */
function pythonKey(hasKey) {
  return hasKey ? ', api_key=os.environ["REALTIME_TTS_API_KEY"]' : '';
}

function pythonVoice(settings) {
  const params = speechParams(settings);
  const voice = settings.get('voice');
  return [voice && `voice=${python(voice)}`, !isEmpty(params) && `params=${pythonDict(params)}`].filter(Boolean);
}

function pluginArguments(settings) {
  const params = Object.entries(speechParams(settings)).filter(([name]) => PLUGIN_PARAMS.has(name));
  return Object.entries({ voice: settings.get('voice') ?? undefined, ...Object.fromEntries(params) })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name}=${python(value)}`);
}

function leftOut(settings) {
  const names = Object.keys(speechParams(settings)).filter((name) => !PLUGIN_PARAMS.has(name));
  return names.length > 0 ? `# Not available in this plugin: ${names.join(', ')}.\n` : '';
}
