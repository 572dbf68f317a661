// The acts of a person, apart from sending (outbox) and opening (timeline). Components import this file alone.

import { call, get, post, upload } from "./api";
import type { Approval, Conversation, Snapshot, Turn } from "./api";
import { addFiles, restoreDraft } from "./draft";
import { takeUp } from "./outbox";
import * as s from "./signals";
import { close, loadApprovals, loadConversations, open, soon } from "./timeline";

export * from "./signals";
export { keepDraft } from "./draft";
export { dropUnheard, newConversation, resend, resendUnheard, send } from "./outbox";
export { loadApprovals, loadConversations, loadOlder, open, titleOf } from "./timeline";

/** What the page does when it is opened: history first; everything else may come later. */
export async function begin(): Promise<void> {
  restoreDraft();
  const wanted = location.hash.slice(1);
  const known = s.quietly(async () => {
    s.agents.value = (await get<{ agents: { name: string }[] }>("/v1/agents")).agents.map((agent) => agent.name);
  });
  await s.act(loadConversations);
  const first = s.conversations.value.find((one) => one.conversation_id === wanted) ?? s.conversations.value[0];
  if (first && s.chosen.value === null && s.sending.value.length === 0) await open(first.conversation_id);
  await Promise.all([known, s.quietly(loadApprovals), s.quietly(takeUp)]);
}

export const turnAct = (turn: Turn, what: string, body: unknown = {}) =>
  s.act(async () => {
    await post(`/v1/turns/${turn.turn_id}/${what}`, body);
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
    if (turn) await post(`/v1/turns/${turn.turn_id}/cancel`, { queue: "pause" });
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
    addFiles(into, await Promise.all([...list].map(upload)));
  });

