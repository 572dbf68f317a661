// The open conversation: its rows from the server, its events, and how both are kept together.
// The server's newest page is drawn whole; events only say that there is something new, so that an event
// which comes twice, late or never can spoil nothing. An older answer never replaces a newer one.

import { batch } from "@preact/signals";
import { get, Problem } from "./api";
import type { Agent, Conversation, Snapshot, Timeline } from "./api";
import { fetchDraft, keepDraft, restoreDraft } from "./draft";
import { follow, type Heard } from "./follow";
import { liveRow, unheard, unitsBefore, unlessAnswered, withDelta, withNewest, withOlder, withoutOldest } from "./rows";
import * as s from "./signals";
import { w } from "./words";

const REFRESH_MS = 60;
const TRY_AGAIN_MS = [1000, 2000, 4000, 8000];

let stopFollowing: (() => void) | null = null;
let wanted = false;
let working = false;
let failures = 0;
let timer = 0;
let epoch = "";
/** Row key -> the cursor of what stands before it, as the server said with the pages that began there. */
let edges = new Map<string, number>();

/** Open a conversation. Opening the one that is open only brings it up to date. */
export async function open(conversation_id: string): Promise<void> {
  s.sidebar.value = false;
  if (s.chosen.value === conversation_id && stopFollowing) {
    soon(conversation_id);
    return;
  }
  keepDraft();
  begin(conversation_id);
  restoreDraft();
  await fill(conversation_id);
}

/** A conversation that was made for what is in the composer and on its way: both stay as they are. */
export async function openMade(conversation_id: string): Promise<void> {
  begin(conversation_id);
  await fill(conversation_id);
}

/** Nothing is open any more. */
export function close(): void {
  keepDraft();
  leave();
  batch(() => {
    s.chosen.value = null;
    s.history.value = [];
    s.snapshot.value = null;
    s.live.value = null;
  });
  restoreDraft();
}

function leave(): void {
  stopFollowing?.();
  stopFollowing = null;
  window.clearTimeout(timer);
  timer = 0;
  wanted = false;
  failures = 0;
  edges = new Map();
  s.drawnSeq.value = -1;
}

function begin(conversation_id: string): void {
  leave();
  batch(() => {
    s.chosen.value = conversation_id;
    s.history.value = [];
    s.older.value = null;
    s.snapshot.value = null;
    s.live.value = null;
    s.panel.value = null;
    s.editing.value = null;
    s.atEnd.value = true;
    s.loading.value = true;
  });
  location.hash = conversation_id;
}

async function fill(conversation_id: string): Promise<void> {
  try {
    // History is painted before live state answers.
    const page = await get<Timeline>(`/v1/conversations/${conversation_id}/timeline`);
    if (s.chosen.value !== conversation_id) return;
    epoch = page.epoch;
    failures = 0;
    batch(() => {
      s.trouble.value = null;
      s.history.value = page.rows;
      s.older.value = page.next;
      s.loading.value = false;
      s.drawnSeq.value = page.as_of_seq;
    });
    stopFollowing?.();
    stopFollowing = follow(conversation_id, page.as_of_seq, epoch, (what) => heard(conversation_id, what));
    soon(conversation_id, 0);
    void fetchDraft(conversation_id);
  } catch (error) {
    if (s.chosen.value !== conversation_id) return;
    if (!(error instanceof Problem) || !error.passing) {
      s.say(error);
      s.loading.value = false;
      return;
    }
    s.trouble.value = error.message;
    again(() => void fill(conversation_id));
  }
}

function again(work: () => void): void {
  const wait = TRY_AGAIN_MS[Math.min(failures++, TRY_AGAIN_MS.length - 1)]!;
  window.clearTimeout(timer);
  timer = window.setTimeout(() => {
    timer = 0;
    work();
  }, wait);
}

/** Bring the page up to date a little later: many events at once are one look. */
export function soon(conversation_id: string, after_ms = REFRESH_MS): void {
  if (s.chosen.value !== conversation_id) return;
  wanted = true;
  if (working || timer) return;
  timer = window.setTimeout(() => {
    timer = 0;
    void work(conversation_id);
  }, after_ms);
}

/** One look at a time; what was heard meanwhile asks for another one. */
async function work(conversation_id: string): Promise<void> {
  if (working) return;
  working = true;
  wanted = false;
  try {
    await refresh(conversation_id);
    failures = 0;
    s.trouble.value = null;
  } catch (error) {
    if (s.chosen.value === conversation_id) {
      wanted = false;
      if (error instanceof Problem && error.passing) {
        s.trouble.value = error.message;
        again(() => void work(conversation_id));
      } else s.say(error);
    }
  } finally {
    working = false;
  }
  const now = s.chosen.value;
  if (now && (wanted || now !== conversation_id)) soon(now);
}

/** Fetch the lane and then the newest page, and draw both at once: the server's rows, in the server's order. */
async function refresh(conversation_id: string): Promise<void> {
  const found = await get<Snapshot>(`/v1/conversations/${conversation_id}`);
  const page = await get<Timeline>(`/v1/conversations/${conversation_id}/timeline`);
  if (s.chosen.value !== conversation_id) return;
  if (page.epoch === epoch && page.as_of_seq < s.drawnSeq.value) return;
  epoch = page.epoch;
  const newest = withNewest(s.history.value, page);
  batch(() => {
    if (!newest.kept) s.older.value = page.next;
    s.history.value = newest.rows;
    s.drawnSeq.value = page.as_of_seq;
    s.snapshot.value = found;
    s.live.value = unlessAnswered(longer(liveRow(found.running), s.live.value), newest.rows);
    const elsewhere = s.sending.value.filter((row) => row.into !== conversation_id);
    s.sending.value = [...elsewhere, ...unheard(s.sending.value.filter((row) => row.into === conversation_id), newest.rows)];
  });
  if (page.rows[0] && page.next !== null) edges.set(page.rows[0].key, page.next);
  // After these rows were drawn: rows that come and rows that go at once would be measured as one another.
  window.setTimeout(letGo);
}

/** Who follows the end of a conversation for days keeps no more of it than who opens it now. */
function letGo(): void {
  const fewer = s.atEnd.value ? withoutOldest(s.history.value, edges) : null;
  if (!fewer) return;
  const keys = new Set(fewer.rows.map((row) => row.key));
  edges = new Map([...edges].filter(([key]) => keys.has(key)));
  batch(() => {
    s.history.value = fewer.rows;
    s.older.value = fewer.next;
  });
}

/** Live text that came while the snapshot was on its way is kept: what is being written only grows. */
function longer(found: ReturnType<typeof liveRow>, now: ReturnType<typeof liveRow>): ReturnType<typeof liveRow> {
  if (!found || !now || found.turn_id !== now.turn_id || found.round !== now.round) return found;
  return (now.text ?? "").startsWith(found.text ?? "") ? { ...found, text: now.text, steps: now.steps?.length ? now.steps : found.steps } : found;
}

let turningPage = false;

export async function loadOlder(): Promise<void> {
  const conversation_id = s.chosen.value;
  const before = s.older.value;
  if (!conversation_id || before === null || turningPage) return;
  turningPage = true;
  await s.act(async () => {
    const page = await get<Timeline>(`/v1/conversations/${conversation_id}/timeline?before=${before}&limit=200`);
    if (s.chosen.value !== conversation_id || s.older.value !== before) return;
    batch(() => {
      s.history.value = withOlder(page.rows, s.history.value);
      s.older.value = page.next;
    });
  });
  turningPage = false;
}

function heard(conversation_id: string, what: Heard): void {
  if (s.chosen.value !== conversation_id) return;
  if (what.kind === "delta") {
    written(conversation_id, what);
    return;
  }
  soon(conversation_id);
  if (what.kind !== "event") {
    void s.quietly(loadApprovals);
    void s.quietly(loadConversations);
    return;
  }
  if (["TurnParked", "TurnContinued", "ApprovalDecided", "ApprovalExpired", "TurnCancelled"].includes(what.name)) void s.quietly(loadApprovals);
  if (["Submitted", "TurnStarted", "TurnSettled", "TurnFailed", "TurnParked", "TurnCancelled", "ConversationRenamed"].includes(what.name)) void s.quietly(loadConversations);
}

function written(conversation_id: string, delta: Extract<Heard, { kind: "delta" }>): void {
  const now = s.live.value;
  if (!now || now.turn_id !== delta.turn_id) {
    soon(conversation_id);
    return;
  }
  const thinking = delta.what === "thinking";
  const before = (thinking ? now.steps?.[0]?.text : now.text) ?? "";
  // A piece that begins behind what is here shows that something was missed.
  if (delta.offset !== undefined && unitsBefore(before, delta.offset) === null) {
    soon(conversation_id);
    return;
  }
  const text = withDelta(before, delta.text, delta.offset);
  s.live.value = thinking ? { ...now, steps: [{ kind: "thinking", text }] } : { ...now, text };
}

export async function loadAgents(): Promise<void> {
  s.agents.value = (await get<{ agents: Agent[] }>("/v1/agents")).agents;
}

export async function loadApprovals(): Promise<void> {
  s.approvals.value = (await get<{ approvals: typeof s.approvals.value }>("/v1/approvals")).approvals;
}

export function titleOf(conversation_id: string | null): string {
  return s.conversations.value.find((one) => one.conversation_id === conversation_id)?.title || w.untitled;
}

// --- the list: looked at every few seconds, so that it lives in every tab without a stream of its own

const LIST_MS = 4000;
const LIST_HIDDEN_MS = 15_000;
const SEEN = "turnkeeper.seen";

export async function loadConversations(): Promise<void> {
  const found = await get<{ conversations: Conversation[] }>(`/v1/conversations?limit=200&archived=${s.showArchived.value}`);
  const before = new Map(s.conversations.value.map((one) => [one.conversation_id, one]));
  s.conversations.value = found.conversations;
  for (const one of found.conversations) {
    const was = before.get(one.conversation_id);
    if (was && was.state !== one.state) changed(was, one);
  }
  markSeen();
}

/** Only *done* (or failed) and *needs me* are worth a notification. */
function changed(was: Conversation, now: Conversation): void {
  const title = now.title || w.untitled;
  if (now.state === "waiting") notify(w.notify.needs(title), now);
  else if (now.state === "failed") notify(w.notify.failed(title), now);
  else if (now.state === "idle" && (was.state === "running" || was.state === "queued")) notify(w.notify.done(title), now);
}

/** Where it is noted that this browser is told by web push, and needs no second notification of the page's own. */
export const PUSHED = "turnkeeper.push";

function notify(what: string, one: Conversation): void {
  if (localStorage.getItem(PUSHED)) return;
  if (document.visibilityState !== "hidden" || !("Notification" in window) || Notification.permission !== "granted") return;
  // The same tag from several tabs is one notification.
  const shown = new Notification(what, { icon: "/static/icon.svg", tag: `${one.conversation_id}-${one.last_seq}` });
  shown.onclick = () => {
    window.focus();
    void open(one.conversation_id);
  };
}

/** What was looked at is read; kept in this browser. */
function markSeen(): void {
  const id = s.chosen.value;
  const one = s.conversations.value.find((each) => each.conversation_id === id);
  if (!one || document.visibilityState !== "visible" || (s.seen.value[one.conversation_id] ?? -1) >= one.last_seq) return;
  s.seen.value = { ...s.seen.value, [one.conversation_id]: one.last_seq };
  try {
    localStorage.setItem(SEEN, JSON.stringify(s.seen.value));
  } catch {
    // Then what was read is known until the page is closed.
  }
}

export function beginList(): void {
  try {
    s.seen.value = JSON.parse(localStorage.getItem(SEEN) ?? "{}") as Record<string, number>;
  } catch {
    s.seen.value = {};
  }
  s.chosen.subscribe(markSeen);
  const look = () =>
    window.setTimeout(
      () => {
        void s
          .quietly(loadConversations)
          .then(() => s.quietly(loadApprovals))
          // Until they are known: the choice of an agent and the terminal's button hang on them.
          .then(() => (s.agents.value.length ? undefined : s.quietly(loadAgents)))
          .then(look);
      },
      document.visibilityState === "visible" ? LIST_MS : LIST_HIDDEN_MS,
    );
  look();
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "visible") return;
  if (s.chosen.value) {
    soon(s.chosen.value, 0);
    void fetchDraft(s.chosen.value);
  }
  void s.quietly(loadConversations);
});

window.addEventListener("hashchange", () => {
  const wanted = location.hash.slice(1);
  if (wanted && wanted !== s.chosen.value) void open(wanted);
});
