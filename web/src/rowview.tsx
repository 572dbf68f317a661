// One row of the timeline, inside its own error boundary: a row that cannot be drawn says so and harms no other.

import { Component } from "preact";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { FilePart, Row, Step } from "./api";
import { html } from "./markdown";
import { fate } from "./rows";
import { dropUnheard, panel, resend, resendUnheard, snapshot, turnAct } from "./state";

class Boundary extends Component<{ children: ComponentChildren }, { broken: string | null }> {
  state = { broken: null as string | null };
  static getDerivedStateFromError(error: unknown) {
    return { broken: error instanceof Error ? error.message : String(error) };
  }
  render() {
    return this.state.broken ? (
      <article class="row notice bad">This row could not be drawn ({this.state.broken}). It is stored and whole.</article>
    ) : (
      this.props.children
    );
  }
}

function Markdown({ text }: { text: string }) {
  const made = useMemo(() => html(text), [text]);
  if (!made) return <pre class="plain">{text}</pre>;
  return <div class="markdown" dangerouslySetInnerHTML={{ __html: made }} />;
}

function time(at?: string): string {
  if (!at) return "";
  const when = new Date(at);
  const today = new Date().toDateString() === when.toDateString();
  return when.toLocaleString([], today ? { hour: "2-digit", minute: "2-digit" } : { dateStyle: "medium", timeStyle: "short" });
}

function Files({ files, conversation }: { files: FilePart[]; conversation: string }) {
  if (!files.length) return null;
  return (
    <ul class="files">
      {files.map((file) => {
        const address = `/v1/conversations/${conversation}/attachments/${file.attachment_id}`;
        const picture = /^image\/(png|jpeg|gif|webp)$/.test(file.media_type ?? "");
        return (
          <li key={file.attachment_id}>
            <a href={address} target="_blank" rel="noopener">
              {picture ? <img src={address} alt={file.name || "picture"} loading="lazy" /> : `📎 ${file.name || file.attachment_id}`}
            </a>
          </li>
        );
      })}
    </ul>
  );
}

function Steps({ steps, open }: { steps: Step[]; open?: boolean }) {
  const calls = steps.filter((step) => step.kind === "tool").length;
  const label = [calls ? `${calls} tool call${calls > 1 ? "s" : ""}` : "", steps.some((step) => step.kind === "thinking") ? "thinking" : ""].filter(Boolean).join(", ") || "work";
  return (
    <details class="steps" open={open}>
      <summary>{label}</summary>
      <ol>
        {steps.map((step, index) => (
          <li key={index} class={`step ${step.kind}`}>
            {step.kind === "tool" ? (
              <details>
                <summary>
                  <code>{step.name}</code>{" "}
                  <span class={step.is_error ? "bad" : "quiet"}>
                    {step.result === undefined ? "running" : step.synthetic ? "no result of its own" : step.is_error ? "failed" : "done"}
                  </span>
                </summary>
                <pre class="plain">{JSON.stringify(step.arguments ?? {}, null, 2)}</pre>
                {step.result !== undefined && <pre class={`plain ${step.is_error ? "bad" : ""}`}>{step.result}</pre>}
                {step.cut && <p class="quiet">The result is longer; here it is cut.</p>}
              </details>
            ) : (
              <p class={step.kind === "thinking" ? "quiet" : ""}>{step.text}</p>
            )}
          </li>
        ))}
      </ol>
    </details>
  );
}

function Fate({ row }: { row: Row }) {
  const shown = fate(row);
  const turn = row.turn;
  if (!shown.words) return null;
  return (
    <footer class="fate">
      <button
        type="button"
        class={`mark ${shown.tone}`}
        disabled={!turn}
        title="What is known of this message"
        onClick={() => turn && (panel.value = { kind: "evidence", turn_id: turn.turn_id })}
      >
        <span aria-hidden="true">{shown.mark}</span> {shown.words}
      </button>
      <span class="quiet">{time(row.at)}</span>
      {turn?.state === "failed" && (
        <button type="button" onClick={() => void turnAct(turn, "retry")} title="Same turn, next attempt. What its tools did is kept; nothing is paid twice.">
          Retry
        </button>
      )}
      {(turn?.state === "cancelled" || turn?.state === "failed") && (
        <button type="button" onClick={() => resend(turn)}>
          Resend
        </button>
      )}
      {row.kind === "sending" && (row.problem || (row.again ?? 0) > 1) && (
        <>
          <button type="button" onClick={() => resendUnheard(row)}>
            Resend
          </button>
          <button type="button" onClick={() => dropUnheard(row, true)}>
            Edit
          </button>
        </>
      )}
    </footer>
  );
}

function QueueActions({ row }: { row: Row }) {
  const turn = row.turn;
  if (!turn || turn.state !== "queued") return null;
  const queue = snapshot.value?.queue ?? [];
  const at = queue.findIndex((one) => one.turn_id === turn.turn_id);
  const before = queue[at - 1];
  const afterNext = queue[at + 2];
  const running = Boolean(snapshot.value?.running);
  return (
    <div class="actions" role="group" aria-label="This waiting message">
      <button type="button" disabled={!before} onClick={() => before && void turnAct(turn, "move", { before: before.turn_id })}>
        Up
      </button>
      <button type="button" disabled={at < 0 || at >= queue.length - 1} onClick={() => void turnAct(turn, "move", { before: afterNext?.turn_id ?? null })}>
        Down
      </button>
      {running && (
        <button type="button" onClick={() => void turnAct(turn, "send-now", { mode: "steer" })} title="Give it to the running turn">
          Steer
        </button>
      )}
      <button type="button" onClick={() => void turnAct(turn, "send-now", { mode: "interrupt" })} title="Stop what runs and send this">
        Send now
      </button>
      <button
        type="button"
        onClick={() => {
          const text = prompt("Change the waiting message", turn.text ?? "");
          if (text !== null && text.trim()) void turnAct(turn, "edit", { text });
        }}
      >
        Edit
      </button>
      <button type="button" class="bad" onClick={() => void turnAct(turn, "cancel", { queue: "continue" })}>
        Cancel
      </button>
    </div>
  );
}

function copy(text: string): void {
  void navigator.clipboard.writeText(text);
}

function Body({ row, conversation }: { row: Row; conversation: string }) {
  const text = row.text ?? "";
  switch (row.kind) {
    case "user":
    case "queued":
    case "sending":
      return (
        <article class={`row user ${row.kind}`} tabIndex={0} aria-label={`You: ${text.slice(0, 80)}`}>
          <div class="bubble">
            <Files files={row.attachments ?? []} conversation={conversation} />
            {text && <Markdown text={text} />}
            {row.provenance === "native" && <p class="quiet">typed in the terminal</p>}
          </div>
          <Fate row={row} />
          <QueueActions row={row} />
        </article>
      );
    case "progress":
      return (
        <article class="row progress" tabIndex={0} aria-label="What was done on the way">
          <Steps steps={row.steps ?? []} />
        </article>
      );
    case "aside":
      return (
        <article class="row aside" tabIndex={0}>
          <details>
            <summary>
              {row.standing === "superseded" || row.standing === "leaked" ? "An attempt that was set aside" : "An answer that was not finished"} ({row.standing})
            </summary>
            {text ? <Markdown text={text} /> : <p class="quiet">no words</p>}
          </details>
        </article>
      );
    case "notice":
      return (
        <article class="row notice" tabIndex={0}>
          {text}
        </article>
      );
    case "live":
      return (
        <article class="row answer live" tabIndex={0} aria-busy="true">
          {Boolean(row.steps?.length) && <Steps steps={row.steps ?? []} open />}
          {text ? <Markdown text={text} /> : <p class="quiet working">working</p>}
        </article>
      );
    default:
      return (
        <article class="row answer" tabIndex={0} aria-label={`Answer: ${text.slice(0, 80)}`}>
          <Markdown text={text} />
          <footer class="fate">
            <span class="quiet">{time(row.at)}</span>
            <button type="button" class="hover" onClick={() => copy(text)}>
              Copy
            </button>
          </footer>
        </article>
      );
  }
}

export function RowView({ row, conversation }: { row: Row; conversation: string }) {
  return (
    <Boundary>
      <Body row={row} conversation={conversation} />
    </Boundary>
  );
}
