/** A call with a server of OpenAI's Realtime API over WebRTC. The playground and the voice agent's own page use it. */

import { MicrophoneUnavailable, RealtimeTTSError } from './errors.js';

const GATHER_MS = 2_000;

/** `agent_unreachable`: it is not there, or does not allow this page; `call_lost`; otherwise a code of the server. */
export class CallError extends RealtimeTTSError {}

/** Events: `event` (detail: an event of the server), `ended` (detail: CallError, or null after `hangUp`). */
export class VoiceCall extends EventTarget {
  /**
   * Ask for the microphone and call.
   * @param {string} address of the server @param {HTMLAudioElement} speaker
   * @param {object} [session] settings of OpenAI's Realtime API
   * @returns {Promise<VoiceCall>} events follow @throws {MicrophoneUnavailable | CallError}
   */
  static async begin(address, speaker, session = {}) {
    const call = new VoiceCall(await openMicrophone(), speaker);
    try {
      await call.#connect(address, session);
    } catch (error) {
      call.#close();
      throw error;
    }
    return call;
  }

  /** Use `VoiceCall.begin`. @param {MediaStream} microphone @param {HTMLAudioElement} speaker */
  constructor(microphone, speaker) {
    super();
    this.microphone = microphone;
    this.peer = new RTCPeerConnection();
    this.channel = this.peer.createDataChannel('oai-events');
    this.peer.ontrack = ({ track }) => (speaker.srcObject = new MediaStream([track]));
  }

  /** Send an event. @param {string} type @param {object} [fields] */
  send(type, fields) {
    if (this.channel.readyState === 'open') this.channel.send(JSON.stringify({ type, ...fields }));
  }

  hangUp() {
    this.#end(null);
  }

  async #connect(address, session) {
    const [track] = this.microphone.getAudioTracks();
    this.peer.addTrack(track, this.microphone);
    await this.peer.setLocalDescription();
    await gathered(this.peer);
    const body = new FormData(); // browsers send a form to another origin without asking it first
    body.set('sdp', this.peer.localDescription.sdp);
    body.set('session', JSON.stringify({ type: 'realtime', ...session }));
    const url = new URL('v1/realtime/calls', address.endsWith('/') ? address : `${address}/`);
    const response = await fetch(url, { method: 'POST', body }).catch(() => {
      throw new CallError(`no answer of ${url}`, { code: 'agent_unreachable' });
    });
    const answer = await response.text();
    if (!response.ok) throw refusal(response.status, answer);
    await this.peer.setRemoteDescription({ type: 'answer', sdp: answer });
    const lost = () => this.#end(new CallError('the call was lost', { code: 'call_lost' }));
    this.peer.onconnectionstatechange = () => this.peer.connectionState === 'failed' && lost();
    this.channel.onclose = lost;
    track.onended = () => this.#end(MicrophoneUnavailable.because('NotFoundError'));
    this.channel.onmessage = ({ data }) => this.dispatchEvent(new CustomEvent('event', { detail: JSON.parse(data) }));
  }

  #end(error) {
    this.#close();
    this.dispatchEvent(new CustomEvent('ended', { detail: error }));
  }

  #close() {
    this.channel.onclose = this.channel.onmessage = this.peer.onconnectionstatechange = null;
    this.peer.close();
    for (const track of this.microphone.getTracks()) {
      track.onended = null;
      track.stop();
    }
  }
}

async function openMicrophone() {
  if (!navigator.mediaDevices?.getUserMedia) throw MicrophoneUnavailable.because('NotSupportedError');
  return navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true, noiseSuppression: true } }).catch((error) => {
    throw MicrophoneUnavailable.because(error.name);
  });
}

function gathered(peer) {
  return new Promise((resolve) => {
    const check = () => peer.iceGatheringState === 'complete' && resolve();
    peer.onicegatheringstatechange = check;
    setTimeout(resolve, GATHER_MS);
    check();
  });
}

/** @param {number} status @param {string} body in OpenAI's form, if the server made it */
function refusal(status, body) {
  let error;
  try {
    ({ error } = JSON.parse(body));
  } catch {
    // of a proxy, or of another program at this address
  }
  return new CallError(error?.message ?? `the voice agent answers ${status}`, { code: error?.code ?? 'agent_unreachable' });
}
