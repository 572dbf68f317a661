// One row of the timeline, inside its own error boundary: a row that cannot be drawn says so and harms no other.

import { Component } from "preact";
import type { ComponentChildren } from "preact";
import { Suspense } from "preact/compat";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { later } from "./later";
import type { Row, Step } from "./api";
import { html } from "./markdown";
import { fate, keptResults } from "./rows";
import * as s from "./state";
import { w } from "./words";

const QueueActions = later(() => import("./queue"));
const Between = later(() => import("./between"));
const Files = later(() => import("./files"));
const Change = later(() => import("./change"));
const StepList = later(() => import("./steps"));

class Boundary extends Component<{ children: ComponentChildren }, { broken: string | null }> {
  state = { broken: null as string | null };
  static getDerivedStateFromError(error: unknown) {
    return { broken: error instanceof Error ? error.message : String(error) };
  }
  render() {
    return this.state.broken ? <article class="row notice bad">{w.rowBroken(this.state.broken)}</article> : this.props.children;
  }
}

/** Put `text` on the clipboard, also where the page came over plain http. */
async function copy(text: string): Promise<void> {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  s.spoken.value = w.copied;
}

function Markdown({ text }: { text: string }) {
  const made = useMemo(() => html(text), [text]);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    for (const code of place.current?.querySelectorAll("pre > code") ?? []) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy hover";
      button.textContent = w.copy;
      button.title = w.copyCode;
      // The code as it was written: the last line break is the renderer's.
      button.onclick = () => void copy((code.textContent ?? "").replace(/\n$/, ""));
      const pre = code.parentElement!;
      pre.tabIndex = 0;
      const around = document.createElement("div");
      around.className = "code";
      pre.replaceWith(around);
      around.append(pre, button);
    }
  }, [made]);
  if (!made) return <pre class="plain" tabIndex={0} dir="auto">{text}</pre>;
  return <div ref={place} class="markdown" dir="auto" dangerouslySetInnerHTML={{ __html: made }} />;
}

function time(at?: string): string {
  if (!at) return "";
  const when = new Date(at);
  const today = new Date().toDateString() === when.toDateString();
  return when.toLocaleString([], today ? { hour: "2-digit", minute: "2-digit" } : { dateStyle: "medium", timeStyle: "short" });
}

/** What was done on the way, folded; the list is loaded and drawn when it is opened. */
function Steps({ steps, conversation, open }: { steps: Step[]; conversation: string; open?: boolean }) {
  const [shown, show] = useState(Boolean(open));
  const calls = steps.filter((step) => step.kind === "tool").length;
  const label = [calls ? w.toolCalls(calls) : "", steps.some((step) => step.kind === "thinking") ? w.thinking : ""].filter(Boolean).join(", ") || w.work;
  return (
    <details class="steps" open={open} onToggle={(event) => event.currentTarget.open && show(true)}>
      <summary>{label}</summary>
      {shown && (
        <Suspense fallback={null}>
          <StepList steps={steps} conversation={conversation} />
        </Suspense>
      )}
    </details>
  );
}

/** Why a waiting message waits, as far as the lane says; its evidence says more. */
function why(position: number | null): string {
  if (s.snapshot.value?.lane.paused) return w.whyWaits.paused;
  return (position ?? 1) > 1 ? w.whyWaits.ahead : s.snapshot.value?.running ? w.whyWaits.running : "";
}

function Fate({ row }: { row: Row }) {
  const shown = fate(row);
  const turn = row.turn;
  if (!shown.words) return null;
  const kept = turn?.state === "failed" ? keptResults(s.history.value, turn.turn_id) : 0;
  return (
    <footer class="fate">
      <button
        type="button"
        class={`mark ${shown.tone}`}
        disabled={!turn}
        title={w.fateTitle}
        onClick={() => turn && (s.panel.value = { kind: "evidence", turn_id: turn.turn_id })}
      >
        <span aria-hidden="true">{shown.mark}</span> {shown.words}
      </button>
      {turn?.state === "queued" && <span class="quiet">{why(turn.position)}</span>}
      <time class="quiet" dateTime={row.at}>
        {time(row.at)}
      </time>
      {turn?.state === "failed" && (
        <>
          <button type="button" onClick={() => void s.turnAct(turn, "retry")} title={w.retryTitle}>
            {w.retry}
          </button>
          {kept > 0 && <span class="quiet">{w.retryKeeps(kept)}</span>}
        </>
      )}
      {(turn?.state === "cancelled" || turn?.state === "failed") && (
        <button type="button" onClick={() => s.resend(row, turn)} title={w.resendTitle}>
          {w.resend}
        </button>
      )}
      {row.kind === "sending" && (row.problem || (row.again ?? 0) > 1) && (
        <>
          <button type="button" onClick={() => s.resendUnheard(row)}>
            {w.resend}
          </button>
          <button type="button" onClick={() => s.dropUnheard(row, true)}>
            {w.edit}
          </button>
        </>
      )}
    </footer>
  );
}

let dragged: Row | null = null;

/** What a waiting row does when it is dragged, or moved by Alt and the arrow keys. */
function moving(row: Row) {
  const turn = row.turn;
  if (row.kind !== "queued" || !turn || turn.state !== "queued") return {};
  return {
    draggable: s.editing.value !== turn.turn_id,
    onDragStart: (event: DragEvent) => {
      dragged = row;
      event.dataTransfer?.setData("text/plain", row.text ?? "");
    },
    onDragOver: (event: DragEvent) => {
      if (dragged) event.preventDefault();
    },
    onDrop: (event: DragEvent) => {
      const moved = dragged?.turn;
      dragged = null;
      if (!moved || moved.turn_id === turn.turn_id) return;
      event.preventDefault();
      void s.moveTo(moved, s.queue.value.indexOf(turn.turn_id));
    },
    onKeyDown: (event: KeyboardEvent) => {
      if (!event.altKey || (event.key !== "ArrowUp" && event.key !== "ArrowDown") || event.target !== event.currentTarget) return;
      event.preventDefault();
      event.stopPropagation();
      void s.moveTo(turn, s.queue.value.indexOf(turn.turn_id) + (event.key === "ArrowUp" ? -1 : 1));
    },
  };
}

function Body({ row, conversation }: { row: Row; conversation: string }) {
  const text = row.text ?? "";
  const marks = { tabIndex: 0, "data-kind": row.kind, "data-turn": row.turn_id, "data-key": row.key };
  switch (row.kind) {
    case "user":
    case "queued":
    case "sending":
      return (
        <article class={`row user ${row.kind}`} {...marks} {...moving(row)} data-state={row.turn?.state ?? "sending"} aria-label={w.you(text.slice(0, 80))}>
          {/* The editor stays when the message is taken meanwhile: what was written in it is not lost. */}
          {row.turn && s.editing.value === row.turn_id ? (
            <Suspense fallback={null}><Change row={row} /></Suspense>
          ) : (
            <div class="bubble">
              {Boolean(row.attachments?.length) && (
                <Suspense fallback={null}>
                  <Files files={row.attachments!} conversation={conversation} />
                </Suspense>
              )}
              {text && <Markdown text={text} />}
              {row.provenance === "native" && <p class="quiet">{w.inTerminal}</p>}
            </div>
          )}
          <Fate row={row} />
          {row.kind === "queued" && (
            <Suspense fallback={<div class="actions" />}>
              <QueueActions row={row} />
            </Suspense>
          )}
        </article>
      );
    case "progress":
      return (
        <article class="row progress" {...marks} aria-label={w.onTheWay}>
          <Steps steps={row.steps ?? []} conversation={conversation} />
        </article>
      );
    case "aside":
      return (
        <article class="row aside" {...marks}>
          <details>
            <summary>
              {w.aside(row.standing ?? "")} <span class="quiet">({w.asideWhy[row.standing ?? ""] ?? row.standing})</span>
            </summary>
            {Boolean(row.steps?.length) && <Steps steps={row.steps ?? []} conversation={conversation} />}
            {text ? <Markdown text={text} /> : <p class="quiet">{w.noWords}</p>}
          </details>
        </article>
      );
    case "notice":
      return (
        <article class="row notice" {...marks}>
          {text}
        </article>
      );
    case "compacted":
    case "resumed":
    case "session":
      return (
        <article class={`row between ${row.kind}`} {...marks}>
          <Suspense fallback={text.slice(0, 80)}>
            <Between row={row} at={time(row.at)} />
          </Suspense>
        </article>
      );
    case "live":
      return (
        <article class="row answer live" {...marks} aria-busy="true" aria-label={w.writing}>
          {Boolean(row.steps?.length) && <Steps steps={row.steps ?? []} conversation={conversation} open />}
          {text ? <Markdown text={text} /> : <p class="quiet working">{w.working}</p>}
        </article>
      );
    default:
      return (
        <article class="row answer" {...marks} aria-label={w.answer(text.slice(0, 80))}>
          <Markdown text={text} />
          <footer class="fate">
            <time class="quiet" dateTime={row.at}>
              {time(row.at)}
            </time>
            <button type="button" class="hover" onClick={() => void copy(text)}>
              {w.copy}
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
