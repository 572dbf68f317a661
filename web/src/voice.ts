// Recording in the browser. The recording is a file of the message like any other: stored, shown, sent again by
// Resend and Retry. Loaded when it is first used.

import { attach, recording } from "./state";
import { w } from "./words";

let recorder: MediaRecorder | null = null;

const KINDS: [string, string][] = [
  ["audio/webm;codecs=opus", "webm"],
  ["audio/mp4", "m4a"],
  ["audio/ogg;codecs=opus", "ogg"],
];

export async function toggle(): Promise<void> {
  if (recorder) {
    recorder.stop();
    return;
  }
  let stream: MediaStream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch {
    throw new Error(w.noMicrophone);
  }
  const [kind, ending] = KINDS.find(([name]) => MediaRecorder.isTypeSupported(name)) ?? ["", "webm"];
  const made = new MediaRecorder(stream, kind ? { mimeType: kind } : {});
  const pieces: Blob[] = [];
  const began = performance.now();
  recording.value = 0;
  const timer = window.setInterval(() => (recording.value = Math.round((performance.now() - began) / 1000)), 500);
  made.ondataavailable = (event) => pieces.push(event.data);
  made.onstop = () => {
    window.clearInterval(timer);
    recorder = null;
    recording.value = null;
    for (const track of stream.getTracks()) track.stop();
    if (pieces.length) void attach([new File(pieces, `recording.${ending}`, { type: kind.split(";")[0] })]);
  };
  recorder = made;
  made.start(1000);
}
