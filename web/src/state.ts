// What the page knows: signals that the components read, and the few acts that change them.
// Every send starts its own request at once; nothing waits for another one's answer.

import { batch, computed, signal } from "@preact/signals";
import { call, get, post, Problem, upload } from "./api";
import type { Accepted, Approval, Conversation, FilePart, Row, Snapshot, Timeline, Turn } from "./api";
import { drawn, liveRow, turnsShown, unlessAnswered, withDelta, withNewest, withOlder } from "./rows";

export type Mode = "queue" | "steer" | "interrupt";

export const conversations = signal<Conversation[]>([]);
export const agents = signal<string[]>([]);
export const search = signal("");
export const showArchived = signal(false);
export const chosen = signal<string | null>(null);
export const history = signal<Row[]>([]);
export const older = signal<number | null>(null);
export const snapshot = signal<Snapshot | null>(null);
export const live = signal<Row | null>(null);
export const sending = signal<Row[]>([]);
export const approvals = signal<Approval[]>([]);
export const online = signal(true);
export const signedOut = signal(false);
export const problem = signal<string | null>(null);
export const undo = signal<{ conversation_id: string; title: string; until: number } | null>(null);
export const draft = signal("");
export const files = signal<FilePart[]>([]);
export const mode = signal<Mode>("queue");
export const panel = signal<null | { kind: "evidence"; turn_id: string } | { kind: "feed" } | { kind: "keys" }>(null);
export const sidebar = signal(false);
export const loading = signal(false);

export const rows = computed(() => drawn(history.value, live.value, sending.value, turnsShown(history.value)));
export const waiting = computed(() => approvals.value.filter((one) => one.conversation_id === chosen.value));

let source: EventSource | null = null;
let cursor = 0;
let refreshTimer = 0;

export function say(error: unknown): void {
  if (error instanceof Problem && error.status === 401) signedOut.value = true;
  problem.value = error instanceof Error ? error.message : String(error);
}

/** Run an act of the person's; what goes wrong is said. */
export async function act(work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
    problem.value = null;
  } catch (error) {
    say(error);
  }
}

export async function loadConversations(): Promise<void> {
  const found = await get<{ conversations: Conversation[] }>(`/v1/conversations?limit=200&archived=${showArchived.value}`);
  conversations.value = found.conversations;
}

export async function loadApprovals(): Promise<void> {
  approvals.value = (await get<{ approvals: Approval[] }>("/v1/approvals")).approvals;
}

export async function begin(): Promise<void> {
  await act(async () => {
    agents.value = (await get<{ agents: { name: string }[] }>("/v1/agents")).agents.map((agent) => agent.name);
    await loadConversations();
    await loadApprovals();
    const wanted = location.hash.slice(1);
    const first = conversations.value.find((one) => one.conversation_id === wanted) ?? conversations.value[0];
    if (first) await open(first.conversation_id);
  });
}

export async function open(conversation_id: string): Promise<void> {
  keepDraft();
  source?.close();
  batch(() => {
    chosen.value = conversation_id;
    history.value = [];
    older.value = null;
    snapshot.value = null;
    live.value = null;
    sending.value = [];
    panel.value = null;
    sidebar.value = false;
    loading.value = true;
  });
  location.hash = conversation_id;
  restoreDraft();
  await act(async () => {
    // History is painted before live state answers.
    const page = await get<Timeline>(`/v1/conversations/${conversation_id}/timeline`);
    if (chosen.value !== conversation_id) return;
    batch(() => {
      history.value = page.rows;
      older.value = page.next;
      cursor = page.as_of_seq;
      loading.value = false;
    });
    await loadSnapshot(conversation_id);
    listen(conversation_id);
  });
  loading.value = false;
}

async function loadSnapshot(conversation_id: string): Promise<void> {
  const found = await get<Snapshot>(`/v1/conversations/${conversation_id}`);
  if (chosen.value !== conversation_id) return;
  batch(() => {
    snapshot.value = found;
    live.value = liveRow(found.running);
  });
}

/** Fetch the lane and then the newest page, and draw both at once: the server's rows, in the server's order. */
async function refresh(conversation_id: string): Promise<void> {
  const found = await get<Snapshot>(`/v1/conversations/${conversation_id}`);
  const page = await get<Timeline>(`/v1/conversations/${conversation_id}/timeline`);
  if (chosen.value !== conversation_id) return;
  const had = history.value;
  batch(() => {
    history.value = withNewest(had, page);
    if (had.length === 0 || page.next === null) older.value = page.next;
    snapshot.value = found;
    live.value = unlessAnswered(liveRow(found.running), page.rows);
    const shown = turnsShown(history.value);
    sending.value = sending.value.filter((row) => !row.turn_id || !shown.has(row.turn_id));
  });
}

function soon(conversation_id: string): void {
  if (refreshTimer) return;
  refreshTimer = window.setTimeout(() => {
    refreshTimer = 0;
    if (chosen.value === conversation_id) void act(() => refresh(conversation_id));
  }, 60);
}

export async function loadOlder(): Promise<void> {
  const conversation_id = chosen.value;
  const before = older.value;
  if (!conversation_id || before === null || loading.value) return;
  loading.value = true;
  await act(async () => {
    const page = await get<Timeline>(`/v1/conversations/${conversation_id}/timeline?before=${before}&limit=200`);
    if (chosen.value !== conversation_id) return;
    batch(() => {
      history.value = withOlder(page.rows, history.value);
      older.value = page.next;
    });
  });
  loading.value = false;
}

function listen(conversation_id: string): void {
  source = new EventSource(`/v1/conversations/${conversation_id}/events?after=${cursor}`);
  const mine = source;
  mine.onopen = () => {
    online.value = true;
  };
  mine.onerror = () => {
    online.value = false;
    if (mine.readyState === EventSource.CLOSED && mine === source) {
      window.setTimeout(() => {
        if (mine === source && chosen.value === conversation_id) void open(conversation_id);
      }, 2000);
    }
  };
  mine.onmessage = (message: MessageEvent<string>) => {
    const event = JSON.parse(message.data) as { seq: number; kind: string; turn_id: string | null; body: Record<string, unknown> };
    if (event.seq <= cursor) return;
    cursor = event.seq;
    heard(conversation_id, event);
  };
  mine.addEventListener("delta", (message) => {
    const delta = JSON.parse((message as MessageEvent<string>).data) as { kind: string; turn_id: string; text?: string; offset?: number };
    const now = live.value;
    if (delta.text === undefined) return;
    if (!now || now.turn_id !== delta.turn_id) {
      soon(conversation_id);
      return;
    }
    if (delta.kind === "text") live.value = { ...now, text: withDelta(now.text ?? "", delta.text, delta.offset) };
    if (delta.kind === "thinking") {
      const so_far = now.steps?.[0]?.text ?? "";
      live.value = { ...now, steps: [{ kind: "thinking", text: withDelta(so_far, delta.text, delta.offset) }] };
    }
  });
  mine.addEventListener("resync", () => {
    void open(conversation_id);
  });
}

function heard(conversation_id: string, event: { kind: string; turn_id: string | null; body: Record<string, unknown> }): void {
  soon(conversation_id);
  if (["TurnParked", "TurnContinued", "ApprovalDecided", "TurnCancelled"].includes(event.kind)) void act(loadApprovals);
  if (["Submitted", "TurnSettled", "TurnFailed", "TurnParked", "ConversationRenamed"].includes(event.kind)) void act(loadConversations);
  if (event.kind === "TurnSettled") notify("Done", titleOf(conversation_id));
  if (event.kind === "TurnParked") notify("Needs you", titleOf(conversation_id));
}

export function titleOf(conversation_id: string | null): string {
  return conversations.value.find((one) => one.conversation_id === conversation_id)?.title || "New conversation";
}

function notify(what: string, title: string): void {
  if (document.visibilityState === "hidden" && "Notification" in window && Notification.permission === "granted") {
    new Notification(`${what}: ${title}`, { icon: "/static/icon.svg" });
  }
}

// --- acts

const inFlight = new Set<string>();

/** Send what is in the composer. Two clicks on one draft are one request; two drafts are two, at once. */
export function send(how: Mode = mode.value): void {
  const text = draft.value;
  const attached = files.value;
  if (!text.trim() && attached.length === 0) return;
  const conversation_id = chosen.value;
  const key = crypto.randomUUID();
  batch(() => {
    draft.value = "";
    files.value = [];
    mode.value = "queue";
  });
  keepDraft();
  void submit(conversation_id, key, text, attached, how);
}

async function submit(into: string | null, key: string, text: string, attached: FilePart[], how: Mode): Promise<void> {
  if (inFlight.has(key)) return;
  inFlight.add(key);
  const row: Row = { key: `s-${key}`, kind: "sending", text, attachments: attached };
  sending.value = [...sending.value.filter((one) => one.key !== row.key), row];
  try {
    const conversation_id = into ?? (await create());
    const parts = [...(text ? [{ type: "text", text }] : []), ...attached.map((file) => ({ type: "attachment", attachment_id: file.attachment_id }))];
    const accepted = await post<Accepted>(`/v1/conversations/${conversation_id}/turns`, { parts, mode: how }, { "Idempotency-Key": key });
    sending.value = sending.value.map((one) => (one.key === row.key ? { ...one, turn_id: accepted.turn_id } : one));
    soon(conversation_id);
  } catch (error) {
    refused(row, error);
  } finally {
    inFlight.delete(key);
  }
}

/** A refused message goes back into the composer if that is empty; else it stays as failed, with its text. */
function refused(row: Row, error: unknown): void {
  say(error);
  const empty = draft.value === "" && files.value.length === 0;
  if (empty) {
    batch(() => {
      sending.value = sending.value.filter((one) => one.key !== row.key);
      draft.value = row.text ?? "";
      files.value = row.attachments ?? [];
    });
    keepDraft();
    return;
  }
  const words = error instanceof Error ? error.message : String(error);
  sending.value = sending.value.map((one) => (one.key === row.key ? { ...one, problem: words } : one));
}

/** The same key again: if the first request was stored after all, the answer is the stored one. */
export function resendUnheard(row: Row): void {
  const key = row.key.slice(2);
  sending.value = sending.value.filter((one) => one.key !== row.key);
  void submit(chosen.value, key, row.text ?? "", row.attachments ?? [], "queue");
}

export function dropUnheard(row: Row, edit: boolean): void {
  sending.value = sending.value.filter((one) => one.key !== row.key);
  if (edit) {
    draft.value = row.text ?? "";
    files.value = row.attachments ?? [];
  }
}

async function create(agent?: string): Promise<string> {
  const made = await post<Conversation>("/v1/conversations", { agent: agent ?? agents.value[0] ?? "demo" });
  await loadConversations();
  const kept = sending.value;
  await open(made.conversation_id);
  sending.value = kept;
  return made.conversation_id;
}

export const newConversation = (agent?: string) => act(() => create(agent));

export const turnAct = (turn: Turn, what: string, body: unknown = {}) =>
  act(async () => {
    await post(`/v1/turns/${turn.turn_id}/${what}`, body);
    soon(turn.conversation_id);
  });

/** A cancelled or failed message again, as a new submission that names the old one. */
export const resend = (turn: Turn) =>
  act(async () => {
    const parts = (turn.parts ?? []).map((part) => (part.type === "attachment" ? { type: "attachment", attachment_id: part.attachment_id } : { type: "text", text: part.text }));
    await post(`/v1/conversations/${turn.conversation_id}/turns`, { parts, resend_of: turn.turn_id }, { "Idempotency-Key": crypto.randomUUID() });
    soon(turn.conversation_id);
  });

export const laneAct = (what: "pause" | "resume") =>
  act(async () => {
    if (!chosen.value) return;
    snapshot.value = await post<Snapshot>(`/v1/conversations/${chosen.value}/${what}`);
    soon(chosen.value);
  });

export const stop = () =>
  act(async () => {
    const turn = snapshot.value?.running?.turn;
    if (turn) await post(`/v1/turns/${turn.turn_id}/cancel`, { queue: "pause" });
  });

export const decide = (approval: Approval, decision: "approve" | "deny") =>
  act(async () => {
    await post(`/v1/approvals/${approval.approval_id}`, { decision });
    await loadApprovals();
  });

export const choose = (approval: Approval, choice: string) =>
  act(async () => {
    await post(`/v1/turns/${approval.turn_id}/decide`, { choice });
    await loadApprovals();
  });

export const rename = (conversation_id: string, title: string) =>
  act(async () => {
    await call("PATCH", `/v1/conversations/${conversation_id}`, { title });
    await loadConversations();
  });

export const archive = (one: Conversation) =>
  act(async () => {
    await call("PATCH", `/v1/conversations/${one.conversation_id}`, { archived: !one.archived });
    await loadConversations();
  });

export const remove = (one: Conversation) =>
  act(async () => {
    const gone = await call<{ undo_seconds: number }>("DELETE", `/v1/conversations/${one.conversation_id}`);
    const until = Date.now() + gone.undo_seconds * 1000;
    undo.value = { conversation_id: one.conversation_id, title: one.title, until };
    window.setTimeout(() => {
      if (undo.value?.until === until) undo.value = null;
    }, gone.undo_seconds * 1000);
    await loadConversations();
    if (chosen.value === one.conversation_id) {
      source?.close();
      chosen.value = null;
      history.value = [];
      const next = conversations.value[0];
      if (next) await open(next.conversation_id);
    }
  });

export const bringBack = () =>
  act(async () => {
    const gone = undo.value;
    if (!gone) return;
    undo.value = null;
    await post(`/v1/conversations/${gone.conversation_id}/restore`);
    await loadConversations();
    await open(gone.conversation_id);
  });

export const attach = (list: Iterable<File>) =>
  act(async () => {
    const stored = await Promise.all([...list].map(upload));
    files.value = [...files.value, ...stored];
  });

// --- drafts: one per conversation, kept over reloads

const draftKey = () => `turnkeeper.draft.${chosen.value ?? "new"}`;

export function keepDraft(): void {
  try {
    if (draft.value) localStorage.setItem(draftKey(), draft.value);
    else localStorage.removeItem(draftKey());
  } catch {
    problem.value = "This browser's storage is full: the draft is kept only until the page is closed.";
  }
}

function restoreDraft(): void {
  draft.value = localStorage.getItem(draftKey()) ?? "";
  files.value = [];
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && chosen.value) {
    soon(chosen.value);
    void act(loadConversations);
  }
});
