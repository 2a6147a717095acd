/** The page: one WebRTC call of OpenAI's Realtime API, as a browser makes it, with the text of both sides. */

const $ = (id) => document.getElementById(id);

/** @type {{peer: RTCPeerConnection, channel: RTCDataChannel, microphone: MediaStream} | null} */
let call = null;
/** Rows of the transcript by the item's id. @type {Map<string, HTMLElement>} */
const rows = new Map();

async function begin() {
  setState('connecting', 'Connecting');
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true } });
  const peer = new RTCPeerConnection();
  const channel = peer.createDataChannel('oai-events');
  call = { peer, channel, microphone };
  peer.addTrack(microphone.getAudioTracks()[0], microphone);
  peer.ontrack = ({ track }) => ($('speech').srcObject = new MediaStream([track]));
  peer.onconnectionstatechange = () => peer.connectionState === 'failed' && end('The connection was lost.');
  channel.onmessage = ({ data }) => take(JSON.parse(data));
  channel.onclose = () => call && end('The agent has hung up.');
  await peer.setLocalDescription();
  await gathered(peer);
  const headers = { 'Content-Type': 'application/sdp' };
  const response = await fetch('v1/realtime/calls', { method: 'POST', headers, body: peer.localDescription.sdp });
  if (!response.ok) throw new Error((await response.json()).error.message);
  await peer.setRemoteDescription({ type: 'answer', sdp: await response.text() });
}

function gathered(peer) {
  return new Promise((resolve) => {
    const check = () => peer.iceGatheringState === 'complete' && resolve();
    peer.onicegatheringstatechange = check;
    setTimeout(resolve, 2000);
    check();
  });
}

function end(message = '') {
  const { peer, microphone } = call ?? {};
  call = null;
  peer?.close();
  microphone?.getTracks().forEach((track) => track.stop());
  $('call').firstElementChild.textContent = 'Call';
  delete $('call').dataset.calling;
  $('notice').firstElementChild.textContent = message;
  $('notice').hidden = !message;
  setState('idle', 'Not connected');
}

const TAKE = {
  'session.created': () => {
    $('call').firstElementChild.textContent = 'Hang up';
    $('call').dataset.calling = '';
    setState('listening', 'Listening');
  },
  'input_audio_buffer.speech_started': () => setState('hearing', 'You are speaking'),
  'input_audio_buffer.speech_stopped': () => setState('listening', 'Listening'),
  'output_audio_buffer.started': () => setState('speaking', 'Agent is speaking'),
  'output_audio_buffer.stopped': () => setState('listening', 'Listening'),
  'conversation.item.added': ({ item }) => row(item.id, item.role === 'user' ? 'you' : 'bot'),
  'conversation.item.input_audio_transcription.completed': (event) => (row(event.item_id, 'you').textContent = event.transcript),
  'response.output_audio_transcript.delta': (event) => (row(event.item_id, 'bot').textContent += event.delta),
  'conversation.item.truncated': (event) => send('conversation.item.retrieve', { item_id: event.item_id }),
  'conversation.item.retrieved': ({ item }) => (row(item.id, 'bot').textContent = `${item.content[0].transcript} …`),
  'response.done': ({ response }) => response.status === 'failed' && end(response.status_details.error.message),
  error: ({ error }) => console.error(error.message),
};

function take(event) {
  TAKE[event.type]?.(event);
}

function send(type, fields) {
  call?.channel.send(JSON.stringify({ type, ...fields }));
}

/** Return the row of an item. It is made at the item's place in the conversation, empty. */
function row(id, kind) {
  if (!rows.has(id)) {
    $('empty').hidden = true;
    const made = Object.assign(document.createElement('p'), { className: kind });
    rows.set(id, made);
    $('transcript').append(made);
  }
  return rows.get(id);
}

function setState(state, words) {
  $('state').dataset.state = state;
  $('state').lastElementChild.textContent = words;
}

$('call').addEventListener('click', () => (call ? end() : begin().catch((error) => end(error.message))));
addEventListener('pagehide', () => end());
