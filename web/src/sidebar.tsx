// The list of conversations: which run, wait for a person, failed, or have something new.

import { Suspense } from "preact/compat";
import { useState } from "preact/hooks";
import { later } from "./later";
import type { Conversation } from "./api";
import * as s from "./state";
import { w } from "./words";

const Menu = later(() => import("./menu"));

const MARKS: Record<string, string> = { running: "●", waiting: "◆", queued: "◷", paused: "❚❚", failed: "!" };

function ConversationRow({ one }: { one: Conversation }) {
  const mark = MARKS[one.state];
  const here = one.conversation_id === s.chosen.value;
  const [opened, show] = useState(false);
  const unread = !here && (s.seen.value[one.conversation_id] ?? -1) < one.last_seq;
  return (
    <li class={`${here ? "chosen" : ""} ${unread ? "unread" : ""}`}>
      <button type="button" class="title" data-conversation={one.conversation_id} aria-current={here} onClick={() => void s.open(one.conversation_id)}>
        <span class="name" dir="auto">
          {one.title || w.untitled}
        </span>
        {unread && <span class="hidden">{w.unread}</span>}
        {mark && (
          <span class={`state ${one.state}`} title={w.states[one.state]}>
            <span aria-hidden="true">{mark}</span>
            <span class="hidden">{w.states[one.state]}</span>
          </span>
        )}
      </button>
      <details
        class="menu"
        onToggle={(event) => event.currentTarget.open && show(true)}
        onFocusOut={(event) => {
          if (!event.currentTarget.contains(event.relatedTarget as Node | null)) event.currentTarget.open = false;
        }}
        onKeyDown={(event) => {
          if (event.key !== "Escape" || !event.currentTarget.open) return;
          event.stopPropagation();
          event.currentTarget.open = false;
          event.currentTarget.querySelector("summary")?.focus();
        }}
      >
        <summary aria-label={w.more(one.title)}>⋯</summary>
        {opened && (
          <Suspense fallback={null}>
            <Menu one={one} />
          </Suspense>
        )}
      </details>
    </li>
  );
}

export function Sidebar() {
  const wanted = s.search.value.toLowerCase();
  const shown = s.conversations.value.filter((one) => one.title.toLowerCase().includes(wanted));
  return (
    <nav class={`sidebar ${s.sidebar.value ? "open" : ""}`} aria-label={w.conversations}>
      <header>
        <strong class="brand">{w.name}</strong>
        <button type="button" class="primary" onClick={() => void s.newConversation()}>
          {w.newConversation}
        </button>
      </header>
      <input
        id="search"
        type="search"
        placeholder={w.search}
        aria-label={w.search}
        value={s.search.value}
        onInput={(event) => (s.search.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          const first = shown[0];
          if (event.key !== "Enter" || event.isComposing || !first) return;
          event.preventDefault();
          void s.open(first.conversation_id).then(() => document.getElementById("composer")?.focus());
        }}
      />
      {s.agents.value.length > 1 && (
        <label class="quiet agent">
          {w.agent}{" "}
          <select
            onChange={(event) => {
              const agent = event.currentTarget.value;
              if (agent) void s.newConversation(agent);
              event.currentTarget.value = "";
            }}
          >
            <option value="">{w.agentChoice}</option>
            {s.agents.value.map((agent) => (
              <option key={agent.name}>{agent.name}</option>
            ))}
          </select>
        </label>
      )}
      <ul>
        {shown.map((one) => (
          <ConversationRow key={one.conversation_id} one={one} />
        ))}
        {shown.length === 0 && <li class="quiet empty">{wanted ? w.noTitle : w.noConversation}</li>}
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
          {w.archiveShown}
        </label>
        <button type="button" onClick={() => (s.panel.value = { kind: "keys" })}>
          {w.keys}
        </button>
        <button type="button" onClick={() => (s.panel.value = { kind: "settings" })}>
          {w.settings}
        </button>
      </footer>
    </nav>
  );
}
