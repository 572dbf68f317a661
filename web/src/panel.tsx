// The drawer beside the chat: a message's evidence, what the model saw, the keys. Loaded when first opened.

import { useEffect, useState } from "preact/hooks";
import { get } from "./api";
import { chosen, panel } from "./state";

type Event = { seq: number; kind: string; at: string; actor: string; attempt: number; body: Record<string, unknown> };
type Evidence = { chain: Event[]; tool_calls: { name: string; effect: string; disposition: string; call_id: string }[] };
type Why = { reason: string; sentence: string; holder: string | null; since: string | null; releases: string | null };
type Feed = {
  provider: string;
  feed: { role: string; parts: Record<string, unknown>[] }[];
  changes: { message: string | null; rule: string; action: string; why: string }[];
  display: { role: string; parts: Record<string, unknown>[] }[];
};

function useLoaded<T>(load: () => Promise<T>, key: string): { value: T | null; error: string | null } {
  const [state, set] = useState<{ value: T | null; error: string | null }>({ value: null, error: null });
  useEffect(() => {
    let alive = true;
    set({ value: null, error: null });
    load().then(
      (value) => alive && set({ value, error: null }),
      (error: Error) => alive && set({ value: null, error: error.message }),
    );
    return () => {
      alive = false;
    };
  }, [key]);
  return state;
}

function EvidencePanel({ turn_id }: { turn_id: string }) {
  const why = useLoaded(() => get<Why>(`/v1/turns/${turn_id}/why`), turn_id);
  const chain = useLoaded(() => get<Evidence>(`/v1/turns/${turn_id}/evidence`), turn_id);
  return (
    <>
      <h2>What is known of this message</h2>
      {why.value && (
        <p>
          <strong>{why.value.sentence}</strong>
          {why.value.releases && <span class="quiet"> What ends the wait: {why.value.releases}</span>}
        </p>
      )}
      {chain.error && <p class="bad">{chain.error}</p>}
      {chain.value && chain.value.tool_calls.length > 0 && (
        <table>
          <caption>Tool calls</caption>
          <tbody>
            {chain.value.tool_calls.map((one) => (
              <tr key={one.call_id}>
                <td>
                  <code>{one.name}</code>
                </td>
                <td>{one.effect.replace("_", " ")}</td>
                <td>{one.disposition}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <ol class="chain">
        {chain.value?.chain.map((event) => (
          <li key={event.seq}>
            <details>
              <summary>
                <span class="quiet">{event.seq}</span> {event.kind.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase()}{" "}
                <span class="quiet">
                  {new Date(event.at).toLocaleTimeString()} · {event.actor}
                </span>
              </summary>
              <pre class="plain">{JSON.stringify(event.body, null, 2)}</pre>
            </details>
          </li>
        ))}
      </ol>
      <p class="quiet">{turn_id}</p>
    </>
  );
}

function words(parts: Record<string, unknown>[]): string {
  return parts
    .map((part) => (part.type === "text" || part.type === "thinking" ? String(part.text) : part.type === "tool_call" ? `→ ${String(part.name)}(${JSON.stringify(part.arguments)})` : part.type === "tool_result" ? `← ${typeof part.content === "string" ? part.content : JSON.stringify(part.content)}` : `[${String(part.type)}]`))
    .join("\n");
}

function FeedPanel() {
  const feed = useLoaded(() => get<Feed>(`/v1/conversations/${chosen.value}/feed`), chosen.value ?? "");
  if (feed.error) return <p class="bad">{feed.error}</p>;
  if (!feed.value) return <p class="quiet">loading</p>;
  const { changes } = feed.value;
  return (
    <>
      <h2>What the model sees</h2>
      <p class="quiet">As {feed.value.provider} would be sent it now. The chat shows everything; this is what is left after cleaning.</p>
      {changes.length === 0 ? <p>Nothing differs from what you see.</p> : <h3>Differences</h3>}
      <ul class="changes">
        {changes.map((change, index) => (
          <li key={index}>
            <strong>{change.action}</strong> {change.why} <span class="quiet">({change.rule})</span>
          </li>
        ))}
      </ul>
      <ol class="chain">
        {feed.value.feed.map((message, index) => (
          <li key={index}>
            <strong>{message.role}</strong>
            <pre class="plain">{words(message.parts)}</pre>
          </li>
        ))}
      </ol>
    </>
  );
}

export const KEYS: [string, string][] = [
  ["Enter", "send"],
  ["Shift+Enter", "new line"],
  ["Ctrl+Enter", "send to the running turn (steer)"],
  ["Esc", "stop the running turn; close what is open"],
  ["Ctrl+K", "search conversations"],
  ["Alt+N", "new conversation"],
  ["Alt+↑ / Alt+↓", "previous, next conversation"],
  ["Page Up / Page Down", "previous, next message"],
  ["?", "this sheet"],
];

function KeysPanel() {
  return (
    <>
      <h2>Keys</h2>
      <table>
        <tbody>
          {KEYS.map(([key, what]) => (
            <tr key={key}>
              <td>
                <kbd>{key}</kbd>
              </td>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

export default function Panel() {
  const open = panel.value;
  if (!open) return null;
  return (
    <aside class="panel" aria-label="Details">
      <button type="button" class="close" onClick={() => (panel.value = null)} aria-label="Close">
        ✕
      </button>
      {open.kind === "evidence" ? <EvidencePanel turn_id={open.turn_id} /> : open.kind === "feed" ? <FeedPanel /> : <KeysPanel />}
    </aside>
  );
}
