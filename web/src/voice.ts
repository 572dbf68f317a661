// Recording in the browser. The recording is a file of the message like any other: stored, shown, sent again by
// Resend and Retry. Where a transcriber is set up, its words are asked for once and go with it. Loaded when first used.

import { call, Problem, upload } from "./api";
import type { FilePart } from "./api";
import { addFiles, withWords } from "./draft";
import * as s from "./state";
import { w as say } from "./words-beside";

let recorder: MediaRecorder | null = null;

const KINDS: [string, string][] = [
  ["audio/webm;codecs=opus", "webm"],
  ["audio/mp4", "m4a"],
  ["audio/ogg;codecs=opus", "ogg"],
];

/** Words may take long to come; a message that is sent before they came goes without them. */
const WORDS_MS = 180_000;

/** The words of a recording; null where nobody writes recordings down. */
async function wordsOf(file: FilePart): Promise<string | null> {
  try {
    return (await call<{ transcript: string }>("POST", `/v1/attachments/${file.attachment_id}/transcript`, {}, {}, WORDS_MS)).transcript;
  } catch (error) {
    if (error instanceof Problem && error.code === "transcriber_missing") return null;
    throw error;
  }
}

/** Store the recording, then have it written down. What fails after it was stored loses nothing: the file is there. */
const keep = (recorded: File) =>
  s.act(async () => {
    const into = s.chosen.value;
    s.uploading.value += 1;
    try {
      const file = await upload(recorded);
      addFiles(into, [file]);
      const words = await wordsOf(file);
      if (words !== null) withWords(into, file.attachment_id, words);
    } finally {
      s.uploading.value -= 1;
    }
  });

export async function toggle(): Promise<void> {
  if (recorder) {
    recorder.stop();
    return;
  }
  let stream: MediaStream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch {
    throw new Error(say.waiting.noMicrophone);
  }
  const [kind, ending] = KINDS.find(([name]) => MediaRecorder.isTypeSupported(name)) ?? ["", "webm"];
  const made = new MediaRecorder(stream, kind ? { mimeType: kind } : {});
  const pieces: Blob[] = [];
  const began = performance.now();
  s.recording.value = 0;
  const timer = window.setInterval(() => (s.recording.value = Math.round((performance.now() - began) / 1000)), 500);
  made.ondataavailable = (event) => pieces.push(event.data);
  made.onstop = () => {
    window.clearInterval(timer);
    recorder = null;
    s.recording.value = null;
    for (const track of stream.getTracks()) track.stop();
    if (pieces.length) void keep(new File(pieces, `recording.${ending}`, { type: kind.split(";")[0] }));
  };
  recorder = made;
  made.start(1000);
}
