// Where a person writes: one way to send for every control, and files, and a recording.

import { useLayoutEffect, useRef } from "preact/hooks";
import * as s from "./state";
import { clock } from "./rows";
import { w } from "./words";

async function record(): Promise<void> {
  await s.act(async () => (await import("./voice")).toggle());
}

const MicrophoneIcon = () => (
  <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round">
    <rect x="5.5" y="1.5" width="5" height="8" rx="2.5" />
    <path d="M3 7.5a5 5 0 0 0 10 0M8 12.5v2" />
  </svg>
);

export function Composer() {
  const box = useRef<HTMLTextAreaElement>(null);
  const running = Boolean(s.snapshot.value?.running);
  useLayoutEffect(() => {
    const area = box.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, window.innerHeight * 0.4)}px`;
  }, [s.draft.value]);
  const key = (event: KeyboardEvent) => {
    // Enter that ends a composition (IME) chooses a word; it never sends.
    if (event.key !== "Enter" || event.isComposing || event.keyCode === 229) return;
    if (event.shiftKey) return;
    event.preventDefault();
    if (!s.uploading.value) s.send(event.ctrlKey || event.metaKey ? "steer" : s.mode.value);
  };
  return (
    <form
      class="composer"
      aria-label={w.message}
      onSubmit={(event) => {
        event.preventDefault();
        s.send();
      }}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        if (event.dataTransfer?.files.length) void s.attach(event.dataTransfer.files);
      }}
    >
      {(s.files.value.length > 0 || s.uploading.value > 0) && (
        <ul class="files">
          {s.files.value.map((file) => (
            <li key={file.attachment_id} class="chip">
              📎 {file.transcript ? <q dir="auto">{file.transcript}</q> : file.name}{" "}
              <button
                type="button"
                aria-label={w.removeFile(file.name ?? "")}
                onClick={() => {
                  s.files.value = s.files.value.filter((one) => one !== file);
                  s.keepDraft();
                }}
              >
                ✕
              </button>
            </li>
          ))}
          {s.uploading.value > 0 && <li class="quiet">{w.uploading}</li>}
        </ul>
      )}
      <textarea
        id="composer"
        ref={box}
        rows={1}
        dir="auto"
        aria-label={w.message}
        placeholder={running ? w.messageRunning : w.message}
        value={s.draft.value}
        onInput={(event) => {
          s.draft.value = event.currentTarget.value;
          s.keepDraft();
        }}
        onKeyDown={key}
        onPaste={(event) => {
          const pasted = event.clipboardData?.files;
          if (pasted?.length) void s.attach(pasted);
        }}
      />
      <div class="buttons">
        <label class="attach" title={w.attach}>
          <input
            type="file"
            multiple
            class="hidden"
            onChange={(event) => {
              if (event.currentTarget.files?.length) void s.attach(event.currentTarget.files);
              event.currentTarget.value = "";
            }}
          />
          <span aria-hidden="true">+</span>
          <span class="hidden">{w.attach}</span>
        </label>
        {"mediaDevices" in navigator && "MediaRecorder" in window && (
          <button
            type="button"
            class={s.recording.value === null ? "" : "stop"}
            aria-label={s.recording.value === null ? w.record : w.recordStop(clock(s.recording.value))}
            title={w.record}
            onClick={() => void record()}
          >
            {s.recording.value === null ? <MicrophoneIcon /> : `■ ${clock(s.recording.value)}`}
          </button>
        )}
        {running && (
          <select aria-label={w.how} value={s.mode.value} onChange={(event) => (s.mode.value = event.currentTarget.value as s.Mode)}>
            <option value="queue">{w.modes.queue}</option>
            <option value="steer">{w.modes.steer}</option>
            <option value="interrupt">{w.modes.interrupt}</option>
          </select>
        )}
        <span class="grow" />
        {running && (
          <button type="button" class="stop" onClick={() => void s.stop()}>
            {w.stop}
          </button>
        )}
        <button type="submit" class="primary" disabled={(!s.draft.value.trim() && s.files.value.length === 0) || s.uploading.value > 0}>
          {w.send}
        </button>
      </div>
    </form>
  );
}
