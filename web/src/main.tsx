// The page: conversations at the side, the timeline in the middle, the composer below, details beside it.

import { render } from "preact";
import { Suspense } from "preact/compat";
import { useEffect } from "preact/hooks";
import { later } from "./later";
import { Composer } from "./composer";
import { Sidebar } from "./sidebar";
import * as s from "./state";
import "./style.css";
import { Timeline } from "./timelineview";
import { w } from "./words";

const Panel = later(() => import("./panel"));
const Card = later(() => import("./cards"));

function Banners() {
  const paused = s.snapshot.value?.lane.paused;
  return (
    <div class="banners" aria-live="polite">
      {s.signedOut.value && <p class="banner bad">{w.signedOut}</p>}
      {!s.online.value && !s.signedOut.value && <p class="banner wait">{s.snapshot.value?.running ? w.offlineRunning : w.offline}</p>}
      {s.trouble.value && s.online.value && !s.signedOut.value && <p class="banner wait">{w.trouble(s.trouble.value)}</p>}
      {paused && (
        <p class="banner wait">
          {w.paused(paused)}{" "}
          <button type="button" onClick={() => void s.laneAct("resume")}>
            {w.goOn}
          </button>
        </p>
      )}
      {s.problem.value && (
        <p class="banner bad" role="alert">
          {s.problem.value}{" "}
          <button type="button" onClick={() => (s.problem.value = null)}>
            {w.close}
          </button>
        </p>
      )}
      {s.undo.value && (
        <p class="banner">
          {w.deleted(s.undo.value.title)}{" "}
          <button type="button" onClick={() => void s.bringBack()}>
            {w.undo}
          </button>
        </p>
      )}
    </div>
  );
}

function step(by: number): void {
  const list = s.conversations.value;
  const at = list.findIndex((one) => one.conversation_id === s.chosen.value);
  const next = list[at + by];
  if (next) void s.open(next.conversation_id);
}

function keys(event: KeyboardEvent): void {
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
  if (event.isComposing || (event.target instanceof Element && event.target.closest(".xterm"))) return;
  if (event.key === "Escape") {
    if (s.panel.value) s.panel.value = null;
    else if (s.sidebar.value) s.sidebar.value = false;
    else void s.stop();
  } else if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    event.preventDefault();
    s.sidebar.value = true;
    document.getElementById("search")?.focus();
  } else if (event.altKey && event.key.toLowerCase() === "n") {
    event.preventDefault();
    void s.newConversation().then(() => document.getElementById("composer")?.focus());
  } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
    event.preventDefault();
    step(event.key === "ArrowUp" ? -1 : 1);
  } else if (event.ctrlKey && event.key === "End") {
    document.getElementById("composer")?.focus();
    document.querySelector<HTMLButtonElement>(".down")?.click();
  } else if (event.key === "?" && !typing) {
    s.panel.value = { kind: "keys" };
  } else if ((event.key === "PageUp" || event.key === "PageDown") && !typing) {
    const articles = [...document.querySelectorAll<HTMLElement>(".timeline article")];
    const at = articles.indexOf(document.activeElement as HTMLElement);
    const next = articles[at < 0 ? articles.length - 1 : at + (event.key === "PageUp" ? -1 : 1)];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }
}

function Bar() {
  const lane = s.snapshot.value?.lane;
  const waits = s.queue.value.length;
  return (
    <header class="bar">
      <button type="button" class="burger" aria-label={w.conversations} aria-expanded={s.sidebar.value} onClick={() => (s.sidebar.value = !s.sidebar.value)}>
        ☰
      </button>
      <h1 dir="auto">{s.chosen.value ? s.titleOf(s.chosen.value) : w.name}</h1>
      {waits > 0 && <span class="quiet waits">{w.waitingCount(waits)}</span>}
      {s.chosen.value && !lane?.paused && waits > 0 && (
        <button type="button" title={w.pauseTitle} onClick={() => void s.laneAct("pause")}>
          {w.pause}
        </button>
      )}
      {s.agent.value?.runner === "retained" && (
        <button type="button" onClick={() => (s.panel.value = { kind: "terminal" })}>
          {w.terminal}
        </button>
      )}
      {s.chosen.value && (
        <button type="button" class="feed" aria-label={w.seen} onClick={() => (s.panel.value = { kind: "feed" })}>
          <span class="wide">{w.seen}</span>
          <span class="narrow" aria-hidden="true">
            {w.seenShort}
          </span>
        </button>
      )}
    </header>
  );
}

function App() {
  useEffect(() => {
    void s.begin();
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  }, []);
  const title = s.chosen.value ? s.titleOf(s.chosen.value) : w.name;
  useEffect(() => {
    document.title = title === w.name ? title : `${title} · ${w.name}`;
  }, [title]);
  const open = s.panel.value;
  return (
    <div class={`page ${open ? `with-panel ${open.kind === "feed" || open.kind === "terminal" ? "wide-panel" : ""}` : ""}`}>
      <Sidebar />
      <main>
        <Bar />
        <Banners />
        <Timeline />
        <Suspense fallback={null}>
          {s.waiting.value.map((one) => (
            <Card key={one.approval_id} one={one} />
          ))}
        </Suspense>
        <Composer />
        <p class="hidden" role="status">
          {s.spoken.value}
        </p>
      </main>
      {open && (
        <Suspense fallback={<aside class="panel" aria-label={w.details} />}>
          <Panel />
        </Suspense>
      )}
      {s.sidebar.value && <button type="button" class="shade" aria-label={w.closeList} onClick={() => (s.sidebar.value = false)} />}
    </div>
  );
}

render(<App />, document.getElementById("app")!);
