/** One call with the bot: microphone, peer connection, and the data channel for messages in both directions. */

const REPORT_MS = 40;
const GATHER_MS = 2_000; // limit for a STUN server that does not answer
const CONNECT_MS = 20_000;
const RTP_HZ = 48_000;
const WRAP = 2 ** 32;

export class CallError extends Error {
  /** @param {string} code @param {string} [message] */
  constructor(code, message = code) {
    super(message);
    this.code = code;
  }
}

/**
 * Events: `told` (a message from the bot; see webrtc_bot.py), `tick` (levels and positions changed), `ended` (an error,
 * or null after hanging up).
 */
export class Call extends EventTarget {
  /**
   * @param {HTMLAudioElement} speaker
   * @param {() => void} onMicrophone called when the microphone is open and the connection begins
   * @returns {Promise<Call>} when audio flows in both directions
   * @throws {CallError}
   */
  static async begin(speaker, onMicrophone) {
    const microphone = await openMicrophone();
    onMicrophone();
    const call = new Call(microphone, speaker);
    try {
      await call.#connect();
    } catch (error) {
      call.#close();
      throw error;
    }
    return call;
  }

  /** @param {MediaStream} microphone @param {HTMLAudioElement} speaker */
  constructor(microphone, speaker) {
    super();
    this.microphone = microphone;
    this.speaker = speaker;
    this.isOver = false;
    this.myLevel = 0; // 0…1, root mean square
    this.arrivingLevel = 0;
    /** RTP timestamp of the audio being played, null before the first. @type {number | null} */
    this.playedRtp = null;
    /** RTP timestamp at which playing was stopped. @type {number | null} */
    this.silentFrom = null;
    /** RTP timestamp from which on the stream has no audio of the cut turn. @type {number | null} */
    this.silentUntil = null;
    /** @type {RTCRtpReceiver | null} */
    this.receiver = null;
  }

  /** The bot's playback. */
  get botLevel() {
    return this.silentFrom === null ? this.arrivingLevel : 0;
  }

  /** Stop playback at once, then tell the bot. */
  interrupt() {
    this.#silence();
    this.#say({ type: 'interrupt' });
  }

  /** @param {boolean} muted */
  mute(muted) {
    for (const track of this.microphone.getAudioTracks()) track.enabled = !muted;
  }

  hangUp() {
    this.#end(null);
  }

  async #connect() {
    this.context = new AudioContext();
    this.mine = this.#meter(this.microphone);
    this.connection = new RTCPeerConnection({ iceServers: await (await ask('ice')).json() });
    this.channel = this.connection.createDataChannel('control');
    this.connection.addTrack(this.microphone.getAudioTracks()[0], this.microphone);
    this.connection.ontrack = ({ receiver, track }) => {
      this.receiver = receiver;
      this.speaker.muted = false;
      this.speaker.srcObject = new MediaStream([track]);
      this.arriving = this.#meter(this.speaker.srcObject);
      this.speaker.play().catch(() => {}); // where autoplay is refused, it is allowed with the microphone
    };
    this.channel.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    const opened = new Promise((resolve, reject) => {
      this.channel.onopen = resolve;
      this.connection.onconnectionstatechange = () => {
        if (this.connection.connectionState === 'failed') reject(new CallError('unreachable'));
      };
      this.timer = setTimeout(() => reject(new CallError('unreachable')), CONNECT_MS);
    });
    opened.catch(() => {}); // until it is awaited
    await this.connection.setLocalDescription();
    await gathered(this.connection);
    const { sdp, type } = this.connection.localDescription;
    const answer = await ask('offer', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ sdp, type }) });
    await this.connection.setRemoteDescription(await answer.json());
    await opened;
    clearTimeout(this.timer);
    this.channel.onclose = () => this.#end(new CallError('lost'));
    this.connection.onconnectionstatechange = () => {
      if (this.connection.connectionState === 'failed') this.#end(new CallError('lost'));
    };
    this.microphone.getAudioTracks()[0].onended = () => this.#end(new CallError('microphone_lost'));
    this.timer = setInterval(() => this.#tick(), REPORT_MS);
  }

  #receive(message) {
    if (message.type === 'cut') {
      this.silentUntil = message.rtp;
      this.#silence();
      this.#say({ type: 'cut', turn: message.turn, rtp: this.silentFrom });
    }
    this.dispatchEvent(new CustomEvent('told', { detail: message }));
  }

  /** Stop playback. Audio that the browser has already given to the loudspeaker is still heard. */
  #silence() {
    if (this.silentFrom !== null) return;
    this.#look();
    this.silentFrom = this.playedRtp ?? 0;
    this.speaker.muted = true;
  }

  #tick() {
    const before = this.playedRtp;
    this.#look();
    if (this.silentUntil !== null && this.playedRtp !== null && distance(this.silentUntil, this.playedRtp) >= 0) {
      this.silentFrom = this.silentUntil = null;
      this.speaker.muted = false;
    }
    if (this.silentFrom === null && this.playedRtp !== before) {
      const latency = Math.round((this.context.outputLatency || 0) * RTP_HZ);
      this.#say({ type: 'played', rtp: (this.playedRtp - latency + WRAP) % WRAP });
    }
    this.dispatchEvent(new Event('tick'));
  }

  #look() {
    const [source] = this.receiver?.getSynchronizationSources() ?? [];
    if (source) this.playedRtp = source.rtpTimestamp;
    this.myLevel = levelOf(this.mine);
    this.arrivingLevel = levelOf(this.arriving);
  }

  /** @param {MediaStream} stream */
  #meter(stream) {
    const analyser = new AnalyserNode(this.context, { fftSize: 1024 });
    this.context.createMediaStreamSource(stream).connect(analyser);
    return analyser;
  }

  #say(message) {
    if (this.channel.readyState === 'open') this.channel.send(JSON.stringify(message));
  }

  #end(error) {
    if (this.isOver) return;
    this.#close();
    this.dispatchEvent(new CustomEvent('ended', { detail: error }));
  }

  #close() {
    this.isOver = true;
    clearInterval(this.timer);
    clearTimeout(this.timer);
    for (const track of this.microphone.getTracks()) track.stop();
    this.connection?.close();
    this.context?.close();
    this.speaker.srcObject = null;
  }
}

/** @param {number} from @param {number} to RTP timestamps @returns {number} samples from one to the other, also backwards */
export function distance(from, to) {
  return ((to - from + WRAP + WRAP / 2) % WRAP) - WRAP / 2;
}

function levelOf(analyser) {
  if (!analyser) return 0;
  const samples = new Float32Array(analyser.fftSize);
  analyser.getFloatTimeDomainData(samples);
  return Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length);
}

async function openMicrophone() {
  if (!navigator.mediaDevices?.getUserMedia) throw new CallError(isSecureContext ? 'unsupported' : 'insecure');
  try {
    return await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true },
    });
  } catch (error) {
    throw new CallError(error.name, error.message);
  }
}

/** @throws {CallError} an error of the bot, or `no_bot` */
async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new CallError('no_bot');
  }
  if (response.ok) return response;
  const { code, message } = await response.json().catch(() => ({}));
  throw new CallError(code ?? 'no_bot', message);
}

function gathered(connection) {
  return new Promise((resolve) => {
    if (connection.iceGatheringState === 'complete') return resolve();
    setTimeout(resolve, GATHER_MS);
    connection.addEventListener('icegatheringstatechange', () => connection.iceGatheringState === 'complete' && resolve());
  });
}
