// The acts of a person, apart from sending (outbox) and opening (timeline). Components import this file alone.

import { call, get, post, Problem, upload } from "./api";
import type { Approval, Conversation, Row, Snapshot, Turn } from "./api";
import { addFiles, giveBack, restoreDraft } from "./draft";
import { takeUp } from "./outbox";
import { beforeFor } from "./rows";
import * as s from "./signals";
import { beginList, close, loadAgents, loadApprovals, loadConversations, open, soon } from "./timeline";
import { w } from "./words";

export * from "./signals";
export { keepDraft } from "./draft";
export { dropUnheard, newConversation, resend, resendUnheard, send } from "./outbox";
export { loadApprovals, loadConversations, loadOlder, open, titleOf } from "./timeline";

/** What the page does when it is opened: history first; everything else may come later. */
export async function begin(): Promise<void> {
  restoreDraft();
  const wanted = location.hash.slice(1);
  const known = s.quietly(loadAgents);
  await s.act(loadConversations);
  const first = s.conversations.value.find((one) => one.conversation_id === wanted) ?? s.conversations.value[0];
  if (first && s.chosen.value === null && s.sending.value.length === 0) await open(first.conversation_id);
  beginList();
  await Promise.all([known, s.quietly(loadApprovals), s.quietly(takeUp)]);
}

export const turnAct = (turn: Turn, what: string, body: unknown = {}) =>
  s.act(async () => {
    await post(`/v1/turns/${turn.turn_id}/${what}`, body);
    soon(turn.conversation_id);
  });

/** Put a waiting message at `place` (0: next to run). */
export async function moveTo(turn: Turn, place: number): Promise<void> {
  const last = s.queue.value.length - 1;
  const wanted = Math.max(0, Math.min(place, last));
  if (s.queue.value.indexOf(turn.turn_id) === wanted) return;
  await turnAct(turn, "move", { before: beforeFor(s.queue.value, turn.turn_id, wanted) });
  s.spoken.value = w.moved(wanted + 1);
}

/** Change a waiting message. If it was taken meanwhile, the changed words are not lost: they are in the composer. */
export async function edit(turn: Turn, text: string): Promise<void> {
  s.editing.value = null;
  try {
    await post(`/v1/turns/${turn.turn_id}/edit`, { text });
    s.problem.value = null;
  } catch (error) {
    s.say(error);
    if (giveBack(turn.conversation_id, text, [], s.fresh()) && error instanceof Problem && error.status === 409) s.problem.value = w.tooLate;
  }
  soon(turn.conversation_id);
}

/** Take a waiting message back. Its words and files return to an empty composer. */
export const takeBack = (row: Row, turn: Turn) =>
  s.act(async () => {
    await post(`/v1/turns/${turn.turn_id}/cancel`, { queue: "continue" });
    giveBack(turn.conversation_id, row.text ?? "", row.attachments ?? [], s.fresh());
    soon(turn.conversation_id);
  });

export const laneAct = (what: "pause" | "resume") =>
  s.act(async () => {
    if (!s.chosen.value) return;
    s.snapshot.value = await post<Snapshot>(`/v1/conversations/${s.chosen.value}/${what}`);
    soon(s.chosen.value);
  });

export const stop = () =>
  s.act(async () => {
    const turn = s.snapshot.value?.running?.turn;
    if (!turn) return;
    await post(`/v1/turns/${turn.turn_id}/cancel`, { queue: "pause" });
    s.spoken.value = w.stoppedSaid;
    soon(turn.conversation_id);
  });

export const decide = (approval: Approval, decision: "approve" | "deny") =>
  s.act(async () => {
    await post(`/v1/approvals/${approval.approval_id}`, { decision });
    await loadApprovals();
  });

export const choose = (approval: Approval, choice: string) =>
  s.act(async () => {
    await post(`/v1/turns/${approval.turn_id}/decide`, { choice });
    await loadApprovals();
  });

export const rename = (conversation_id: string, title: string) =>
  s.act(async () => {
    await call("PATCH", `/v1/conversations/${conversation_id}`, { title });
    await loadConversations();
  });

export const archive = (one: Conversation) =>
  s.act(async () => {
    await call("PATCH", `/v1/conversations/${one.conversation_id}`, { archived: !one.archived });
    await loadConversations();
  });

export const remove = (one: Conversation) =>
  s.act(async () => {
    const gone = await call<{ undo_seconds: number }>("DELETE", `/v1/conversations/${one.conversation_id}`);
    const until = Date.now() + gone.undo_seconds * 1000;
    s.undo.value = { conversation_id: one.conversation_id, title: one.title, until };
    window.setTimeout(() => {
      if (s.undo.value?.until === until) s.undo.value = null;
    }, gone.undo_seconds * 1000);
    await loadConversations();
    if (s.chosen.value === one.conversation_id) {
      close();
      const next = s.conversations.value[0];
      if (next) await open(next.conversation_id);
    }
  });

export const bringBack = () =>
  s.act(async () => {
    const gone = s.undo.value;
    if (!gone) return;
    s.undo.value = null;
    await post(`/v1/conversations/${gone.conversation_id}/restore`);
    await loadConversations();
    await open(gone.conversation_id);
  });

export const attach = (list: Iterable<File>) =>
  s.act(async () => {
    const into = s.chosen.value;
    s.uploading.value += 1;
    try {
      addFiles(into, await Promise.all([...list].map(upload)));
    } finally {
      s.uploading.value -= 1;
    }
  });

