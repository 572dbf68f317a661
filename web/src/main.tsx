// The page: conversations at the side, the timeline in the middle, the composer below, details beside it.

import { render } from "preact";
import { lazy, Suspense } from "preact/compat";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { VList } from "virtua";
import type { VListHandle } from "virtua";
import type { Approval, Conversation } from "./api";
import { RowView } from "./rowview";
import * as s from "./state";
import "./style.css";

const Panel = lazy(() => import("./panel"));

const STATES: Record<string, { mark: string; words: string }> = {
  running: { mark: "●", words: "running" },
  waiting: { mark: "⏸", words: "waits for you" },
  queued: { mark: "◷", words: "queued" },
  paused: { mark: "❚❚", words: "paused" },
  failed: { mark: "!", words: "failed" },
  idle: { mark: "", words: "" },
};

function ConversationRow({ one }: { one: Conversation }) {
  const state = STATES[one.state] ?? { mark: "", words: one.state };
  return (
    <li class={one.conversation_id === s.chosen.value ? "chosen" : ""}>
      <button type="button" class="title" aria-current={one.conversation_id === s.chosen.value} onClick={() => void s.open(one.conversation_id)}>
        <span class="name">{one.title || "New conversation"}</span>
        {state.mark && (
          <span class={`state ${one.state}`} title={state.words}>
            <span aria-hidden="true">{state.mark}</span>
            <span class="hidden">{state.words}</span>
          </span>
        )}
      </button>
      <details class="menu">
        <summary aria-label={`More for ${one.title || "this conversation"}`}>⋯</summary>
        <div>
          <button
            type="button"
            onClick={() => {
              const title = prompt("New title", one.title);
              if (title !== null) void s.rename(one.conversation_id, title);
            }}
          >
            Rename
          </button>
          <button type="button" onClick={() => void s.archive(one)}>
            {one.archived ? "Take out of the archive" : "Archive"}
          </button>
          <a href={`/v1/conversations/${one.conversation_id}/export`} download={`${one.conversation_id}.jsonl`}>
            Export
          </a>
          <button type="button" class="bad" onClick={() => void s.remove(one)}>
            Delete
          </button>
        </div>
      </details>
    </li>
  );
}

function Sidebar() {
  const wanted = s.search.value.toLowerCase();
  const shown = s.conversations.value.filter((one) => one.title.toLowerCase().includes(wanted));
  return (
    <nav class={`sidebar ${s.sidebar.value ? "open" : ""}`} aria-label="Conversations">
      <header>
        <strong>Turnkeeper</strong>
        <button type="button" class="primary" onClick={() => void s.newConversation()}>
          New
        </button>
      </header>
      <input
        id="search"
        type="search"
        placeholder="Search titles"
        aria-label="Search titles"
        value={s.search.value}
        onInput={(event) => (s.search.value = event.currentTarget.value)}
      />
      {s.agents.value.length > 1 && (
        <label class="quiet agent">
          New with{" "}
          <select
            onChange={(event) => {
              const agent = event.currentTarget.value;
              if (agent) void s.newConversation(agent);
              event.currentTarget.value = "";
            }}
          >
            <option value="">agent …</option>
            {s.agents.value.map((agent) => (
              <option key={agent}>{agent}</option>
            ))}
          </select>
        </label>
      )}
      <ul>
        {shown.map((one) => (
          <ConversationRow key={one.conversation_id} one={one} />
        ))}
        {shown.length === 0 && <li class="quiet empty">{wanted ? "No title has these words." : "No conversation yet."}</li>}
      </ul>
      <footer>
        <label>
          <input
            type="checkbox"
            checked={s.showArchived.value}
            onChange={(event) => {
              s.showArchived.value = event.currentTarget.checked;
              void s.act(s.loadConversations);
            }}
          />{" "}
          archive
        </label>
        <button type="button" onClick={() => (s.panel.value = { kind: "keys" })}>
          Keys
        </button>
        {"Notification" in window && Notification.permission === "default" && (
          <button type="button" onClick={() => void Notification.requestPermission()}>
            Notify me
          </button>
        )}
      </footer>
    </nav>
  );
}

function Timeline() {
  const list = useRef<VListHandle>(null);
  const follow = useRef(true);
  const rows = s.rows.value;
  const first = rows[0]?.key ?? "";
  const before = useRef({ first, count: 0, last: "" });
  // Rows were put in front only if the row that was first is still there, further down.
  const moved = before.current.first !== first && rows.some((row) => row.key === before.current.first);
  useLayoutEffect(() => {
    before.current = { first, count: rows.length, last: rows.at(-1)?.key ?? "" };
    if (follow.current && rows.length) list.current?.scrollToIndex(rows.length - 1, { align: "end" });
  });
  useEffect(() => {
    follow.current = true;
  }, [s.chosen.value]);
  const byPerson = () => {
    const handle = list.current;
    if (handle) follow.current = handle.scrollOffset + handle.viewportSize >= handle.scrollSize - 40;
  };
  if (!s.chosen.value && rows.length === 0) return <div class="timeline blank">Write something to begin.</div>;
  if (rows.length === 0) return <div class="timeline blank">{s.loading.value ? "loading" : "Nothing has been said yet."}</div>;
  return (
    <div class="timeline" role="feed" aria-busy={Boolean(s.live.value)} aria-label="Messages" onWheel={byPerson} onTouchMove={byPerson} onKeyUp={byPerson} onPointerUp={byPerson}>
      <VList
        ref={list as never}
        shift={moved}
        class="list"
        onScroll={(offset: number) => {
          if (offset < 600 && s.older.value !== null) void s.loadOlder();
        }}
      >
        {rows.map((row) => (
          <div key={row.key} class="slot">
            <RowView row={row} conversation={s.chosen.value ?? ""} />
          </div>
        ))}
      </VList>
      {!follow.current && (
        <button
          type="button"
          class="down"
          onClick={() => {
            follow.current = true;
            list.current?.scrollToIndex(rows.length - 1, { align: "end" });
          }}
        >
          Newest ↓
        </button>
      )}
    </div>
  );
}

function Countdown({ until }: { until?: string }) {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => set(Date.now()), 1000);
    return () => window.clearInterval(timer);
  }, []);
  if (!until) return null;
  const left = Math.max(0, Math.round((Date.parse(until) - now) / 1000));
  const two = (number: number) => String(number).padStart(2, "0");
  const hours = Math.floor(left / 3600);
  const clock = `${hours ? `${hours}:` : ""}${hours ? two(Math.floor(left / 60) % 60) : Math.floor(left / 60)}:${two(left % 60)}`;
  return <span class="quiet">{left === 0 ? "expired" : `${clock} left`}</span>;
}

function Card({ one }: { one: Approval }) {
  if (one.kind !== "approval") {
    const choices = [...(one.choices ?? one.offers ?? []), "give_up"];
    return (
      <section class="card" aria-label="A turn needs you">
        <p>
          <strong>A turn needs you.</strong> {one.sentence}
        </p>
        <div class="actions">
          {choices.map((choice) => (
            <button key={choice} type="button" onClick={() => void s.choose(one, choice)}>
              {choice.replaceAll("_", " ")}
            </button>
          ))}
        </div>
      </section>
    );
  }
  return (
    <section class="card" aria-label={`Approve ${one.name}?`}>
      <p>
        <strong>
          Run <code>{one.name}</code>?
        </strong>{" "}
        <Countdown until={one.expires_at} />
      </p>
      <pre class="plain">{JSON.stringify(one.arguments, null, 2)}</pre>
      <div class="actions">
        <button type="button" class="primary" onClick={() => void s.decide(one, "approve")}>
          Approve once
        </button>
        <button type="button" onClick={() => void s.decide(one, "deny")}>
          Deny
        </button>
      </div>
    </section>
  );
}

function Composer() {
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
    s.send(event.ctrlKey || event.metaKey ? "steer" : s.mode.value);
  };
  return (
    <form
      class="composer"
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
      {s.files.value.length > 0 && (
        <ul class="files">
          {s.files.value.map((file) => (
            <li key={file.attachment_id}>
              📎 {file.name}{" "}
              <button type="button" aria-label={`Remove ${file.name}`} onClick={() => {
                  s.files.value = s.files.value.filter((one) => one !== file);
                  s.keepDraft();
                }}>
                ✕
              </button>
            </li>
          ))}
        </ul>
      )}
      <textarea
        id="composer"
        ref={box}
        rows={1}
        aria-label="Message"
        placeholder={running ? "It works; what you send waits its turn" : "Message"}
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
        <label class="attach" title="Attach files">
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
          <span class="hidden">Attach files</span>
        </label>
        {running && (
          <select aria-label="How to send" value={s.mode.value} onChange={(event) => (s.mode.value = event.currentTarget.value as s.Mode)}>
            <option value="queue">after this turn</option>
            <option value="steer">into this turn</option>
            <option value="interrupt">stop and send</option>
          </select>
        )}
        <span class="grow" />
        {running && (
          <button type="button" class="stop" onClick={() => void s.stop()}>
            Stop
          </button>
        )}
        <button type="submit" class="primary" disabled={!s.draft.value.trim() && s.files.value.length === 0}>
          Send
        </button>
      </div>
    </form>
  );
}

function Banners() {
  const paused = s.snapshot.value?.lane.paused;
  return (
    <div class="banners" aria-live="polite">
      {s.signedOut.value && <p class="banner bad">You are signed out. Open the address that the server printed, or ask for a new one: turnkeeper serve prints it at start.</p>}
      {!s.online.value && !s.signedOut.value && <p class="banner wait">Not connected; trying again. What you send is kept.</p>}
      {s.trouble.value && s.online.value && !s.signedOut.value && <p class="banner wait">Trying again. {s.trouble.value}</p>}
      {paused && (
        <p class="banner wait">
          The queue is paused ({paused}).{" "}
          <button type="button" onClick={() => void s.laneAct("resume")}>
            Go on
          </button>
        </p>
      )}
      {s.problem.value && (
        <p class="banner bad" role="alert">
          {s.problem.value}{" "}
          <button type="button" onClick={() => (s.problem.value = null)}>
            Close
          </button>
        </p>
      )}
      {s.undo.value && (
        <p class="banner">
          Deleted “{s.undo.value.title || "conversation"}”.{" "}
          <button type="button" onClick={() => void s.bringBack()}>
            Undo
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
  if (event.key === "Escape") {
    if (s.panel.value) s.panel.value = null;
    else if (s.sidebar.value) s.sidebar.value = false;
    else if (!event.isComposing) void s.stop();
  } else if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    event.preventDefault();
    s.sidebar.value = true;
    document.getElementById("search")?.focus();
  } else if (event.altKey && event.key.toLowerCase() === "n") {
    event.preventDefault();
    void s.newConversation();
  } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
    event.preventDefault();
    step(event.key === "ArrowUp" ? -1 : 1);
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

function App() {
  useEffect(() => {
    void s.begin();
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  }, []);
  const lane = s.snapshot.value?.lane;
  return (
    <div class={`page ${s.panel.value ? "with-panel" : ""}`}>
      <Sidebar />
      <main>
        <header class="bar">
          <button type="button" class="burger" aria-label="Conversations" aria-expanded={s.sidebar.value} onClick={() => (s.sidebar.value = !s.sidebar.value)}>
            ☰
          </button>
          <h1>{s.chosen.value ? s.titleOf(s.chosen.value) : "Turnkeeper"}</h1>
          {lane && lane.queue_depth > 0 && <span class="quiet">{lane.queue_depth} waiting</span>}
          {s.chosen.value && !lane?.paused && (lane?.queue_depth ?? 0) > 0 && (
            <button type="button" onClick={() => void s.laneAct("pause")}>
              Pause
            </button>
          )}
          {s.chosen.value && (
            <button type="button" class="feed" aria-label="What the model sees" onClick={() => (s.panel.value = { kind: "feed" })}>
              <span class="wide">What the model sees</span>
              <span class="narrow" aria-hidden="true">
                Feed
              </span>
            </button>
          )}
        </header>
        <Banners />
        <Timeline />
        {s.waiting.value.map((one) => (
          <Card key={one.approval_id} one={one} />
        ))}
        <Composer />
      </main>
      {s.panel.value && (
        <Suspense fallback={<aside class="panel">loading</aside>}>
          <Panel />
        </Suspense>
      )}
      {s.sidebar.value && <button type="button" class="shade" aria-label="Close the list" onClick={() => (s.sidebar.value = false)} />}
    </div>
  );
}

render(<App />, document.getElementById("app")!);
