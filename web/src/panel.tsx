// The drawer beside the chat: a message's evidence, what the model saw, the terminal, the keys. Loaded when first opened.

import { Suspense } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import { later } from "./later";
import { get } from "./api";
import { agent, chosen, history, panel } from "./state";
import { w } from "./words";
import { w as say } from "./words-beside";
import "./panel.css";
import "./steps.css";

const Terminal = later(() => import("./terminal"));
const Settings = later(() => import("./settings"));

type Event = { seq: number; kind: string; at: string; actor: string; attempt: number; body: Record<string, unknown> };
type Evidence = { chain: Event[]; tool_calls: { name: string; effect: string; disposition: string; call_id: string }[] };
type Why = { reason: string; sentence: string; holder: string | null; since: string | null; releases: string | null };
type Used = { input_tokens: number; output_tokens: number; cached_tokens: number; cost: number | null; calls: number; unpriced: number };
type Spending = {
  total: Used;
  calls: { kind: string; round: number; attempt: number; end: string; provider: string; model: string; seconds: number | null; used: Used }[];
  saved: { why: string; attempt: number; rounds: number; results: number }[];
};
type Said = { message?: string; role: string; parts: Record<string, unknown>[]; sources?: string[] };
type Change = { message: string | null; rule: string; action: string; why: string };
type Feed = { provider: string; feed: Said[]; changes: Change[]; display: Said[] };

export function useLoaded<T>(load: () => Promise<T>, key: string): { value: T | null; error: string | null } {
  const [state, set] = useState<{ value: T | null; error: string | null }>({ value: null, error: null });
  useEffect(() => {
    let alive = true;
    set((now) => ({ ...now, error: null }));
    load().then(
      (value) => alive && set({ value, error: null }),
      (error: Error) => alive && set((now) => ({ ...now, error: error.message })),
    );
    return () => {
      alive = false;
    };
  }, [key]);
  return state;
}

function Spent({ spent }: { spent: Spending }) {
  const { total } = spent;
  if (!total || total.calls === 0) return null;
  return (
    <section class="spent">
      <h3>{say.evidence.used}</h3>
      <p>
        {say.evidence.tokens(total.input_tokens, total.output_tokens)}
        {total.cached_tokens > 0 && ` · ${say.evidence.cached(total.cached_tokens)}`} ·{" "}
        {total.cost === null ? say.evidence.noPrice : say.evidence.cost(total.cost)} · {say.evidence.modelCalls(total.calls)}
      </p>
      {spent.saved?.map((one, index) => (
        <p key={index} class="good">
          {say.evidence.saved(one.rounds, one.results)}
        </p>
      ))}
      <ul class="calls">
        {spent.calls.map((call, index) => (
          <li key={index} class={call.end === "finished" ? "" : "quiet"}>
            {call.kind} {call.round} · {say.evidence.attempt(call.attempt)} · {call.model || call.provider} · {call.end} · {call.used.input_tokens.toLocaleString()} →{" "}
            {call.used.output_tokens.toLocaleString()}
            {call.seconds !== null && ` · ${say.steps.seconds(call.seconds)}`}
          </li>
        ))}
      </ul>
    </section>
  );
}

function EvidencePanel({ turn_id }: { turn_id: string }) {
  // The evidence of a turn that goes on is looked at again whenever its rows change.
  const row = history.value.find((one) => one.turn_id === turn_id && one.turn);
  const version = `${turn_id} ${row?.turn?.state} ${row?.turn?.receipt.state} ${row?.turn?.position} ${history.value.length}`;
  const why = useLoaded(() => get<Why>(`/v1/turns/${turn_id}/why`), version);
  const chain = useLoaded(() => get<Evidence>(`/v1/turns/${turn_id}/evidence`), version);
  const spent = useLoaded(() => get<Spending>(`/v1/turns/${turn_id}/usage`), version);
  return (
    <>
      <h2>{say.evidence.title}</h2>
      {why.value && (
        <p>
          <strong>{why.value.sentence}</strong>
          {why.value.releases && <span class="quiet"> {say.evidence.ends(why.value.releases)}</span>}
        </p>
      )}
      {chain.error && <p class="bad">{chain.error}</p>}
      {chain.value && chain.value.tool_calls.length > 0 && (
        <table>
          <caption>{say.evidence.calls}</caption>
          <tbody>
            {chain.value.tool_calls.map((one) => (
              <tr key={one.call_id}>
                <td>
                  <code>{one.name}</code>
                </td>
                <td>
                  <span class={`effect ${one.effect}`}>{say.steps.effects[one.effect] ?? one.effect}</span>
                </td>
                <td>{one.disposition}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {spent.value && <Spent spent={spent.value} />}
      <h3>{say.evidence.chain}</h3>
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
              <pre class="plain" tabIndex={0}>
                {JSON.stringify(event.body, null, 2)}
              </pre>
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
    .map((part) => {
      if (part.type === "text" || part.type === "thinking") return String(part.text);
      if (part.type === "tool_call") return `→ ${String(part.name)}(${JSON.stringify(part.arguments)})`;
      if (part.type === "tool_result") return `← ${typeof part.content === "string" ? part.content : JSON.stringify(part.content)}`;
      return `[${String(part.type)}]`;
    })
    .join("\n");
}

/** What a person sees and what a model sees, side by side: each shown message with the feed's message made from it. */
function pairs(feed: Feed): { seen: Said | null; fed: Said | null; changes: Change[] }[] {
  const byMessage = new Map<string, Said>();
  for (const one of feed.feed) for (const source of one.sources ?? []) byMessage.set(source, one);
  const changesOf = new Map<string | null, Change[]>();
  for (const change of feed.changes) changesOf.set(change.message, [...(changesOf.get(change.message) ?? []), change]);
  const shown = new Set<Said>();
  const rows = feed.display.map((seen) => {
    const fed = byMessage.get(seen.message ?? "") ?? null;
    const again = fed !== null && shown.has(fed);
    if (fed) shown.add(fed);
    return { seen: seen as Said | null, fed: again ? null : fed, changes: changesOf.get(seen.message ?? "") ?? [] };
  });
  const added = feed.feed.filter((one) => !shown.has(one)).map((fed) => ({ seen: null, fed, changes: (fed.sources ?? []).flatMap((id) => changesOf.get(id) ?? []) }));
  return [...rows, ...added];
}

function FeedPanel() {
  const feed = useLoaded(() => get<Feed>(`/v1/conversations/${chosen.value}/feed`), `${chosen.value} ${history.value.length}`);
  if (feed.error) return <p class="bad">{feed.error}</p>;
  if (!feed.value) return <p class="quiet">{w.loading}</p>;
  const { changes } = feed.value;
  const general = changes.filter((change) => change.message === null);
  return (
    <>
      <h2>{say.feed.title}</h2>
      <p class="quiet">{say.feed.intro(feed.value.provider)}</p>
      <p>{changes.length === 0 ? say.feed.same : say.feed.differences(changes.length)}</p>
      <Changes changes={general} />
      <table class="beside">
        <thead>
          <tr>
            <th scope="col">{say.feed.youSee}</th>
            <th scope="col">{say.feed.modelSees}</th>
          </tr>
        </thead>
        <tbody>
          {pairs(feed.value).map(({ seen, fed, changes: why }, index) => {
            const left = seen ? words(seen.parts) : "";
            const right = fed ? words(fed.parts) : "";
            return (
              <tr key={index} class={why.length || left !== right ? "differs" : ""}>
                <td>{seen && <Said role={seen.role} text={left} />}</td>
                <td>
                  {fed ? left === right && seen?.role === fed.role ? <span class="quiet">{say.feed.alike}</span> : <Said role={fed.role} text={right} /> : <span class="quiet">{say.feed.notSent}</span>}
                  <Changes changes={why} />
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </>
  );
}

function Said({ role, text }: { role: string; text: string }) {
  return (
    <>
      <strong class="quiet">{role}</strong>
      <div class="said" dir="auto" tabIndex={0}>
        {text.length > 2000 ? `${text.slice(0, 2000)} …` : text}
      </div>
    </>
  );
}

function Changes({ changes }: { changes: Change[] }) {
  if (!changes.length) return null;
  return (
    <ul class="changes">
      {changes.map((change, index) => (
        <li key={index}>
          <strong>{change.action}</strong> {change.why} <span class="quiet">({change.rule})</span>
        </li>
      ))}
    </ul>
  );
}

function KeysPanel() {
  return (
    <>
      <h2>{say.keysTitle}</h2>
      <table>
        <tbody>
          {say.keyList.map(([key, what]) => (
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
  const place = useRef<HTMLElement>(null);
  const from = useRef<Element | null>(null);
  const kind = open?.kind;
  useEffect(() => {
    // The keyboard goes to what was opened, and back to where it was.
    from.current = document.activeElement;
    place.current?.focus({ preventScroll: true });
    return () => {
      if (from.current instanceof HTMLElement && from.current.isConnected) from.current.focus({ preventScroll: true });
    };
  }, [kind]);
  if (!open) return null;
  return (
    <aside ref={place} class={`panel ${open.kind}`} aria-label={w.details} tabIndex={-1}>
      <button type="button" class="close" onClick={() => (panel.value = null)} aria-label={w.close}>
        ✕
      </button>
      {open.kind === "evidence" && <EvidencePanel turn_id={open.turn_id} />}
      {open.kind === "feed" && <FeedPanel />}
      {open.kind === "keys" && <KeysPanel />}
      {open.kind === "settings" && (
        <Suspense fallback={<p class="quiet">{w.loading}</p>}>
          <Settings />
        </Suspense>
      )}
      {open.kind === "terminal" && agent.value && (
        <Suspense fallback={<p class="quiet">{w.loading}</p>}>
          <Terminal conversation={chosen.value ?? ""} />
        </Suspense>
      )}
    </aside>
  );
}
