// What was sent from this page and has no place among the server's rows yet. No queue: each message's request
// starts at once and waits for no other. A request whose end is unknown is made again with the same key, which
// cannot make a second message of it; a refused one goes back to the composer, or stays with its words.

import { batch } from "@preact/signals";
import { get, post, Problem } from "./api";
import type { Accepted, Conversation, FilePart, Row, Turn } from "./api";
import { giveBack, keepDraft, keyOfDraft, moveDraft } from "./draft";
import { keyOf } from "./rows";
import * as s from "./signals";
import { w } from "./words";
import { loadAgents, loadConversations, open, openMade, soon } from "./timeline";

const PLACE = "turnkeeper.sent";
const AGAIN_MS = [500, 1000, 2000, 4000, 8000, 15000];
const ANSWER_MS = 60_000;
/** Words that a closed page left behind are sent by the next one by itself only while they are this young. */
const YOUNG_MS = 10 * 60_000;

type Sent = { key: string; into: string | null; text: string; files: FilePart[]; how: s.Mode; of?: string; at: number };

function stored(): Sent[] {
  try {
    return JSON.parse(localStorage.getItem(PLACE) ?? "[]") as Sent[];
  } catch {
    return [];
  }
}

function write(list: Sent[]): void {
  try {
    if (list.length) localStorage.setItem(PLACE, JSON.stringify(list));
    else localStorage.removeItem(PLACE);
  } catch {
    // A full storage only means that a reload at this very moment would not know of it.
  }
}

const note = (one: Sent) => write([...stored().filter((other) => other.key !== one.key), one]);
const forget = (key: string) => write(stored().filter((other) => other.key !== key));

function change(key: string, more: Partial<Row> | null): void {
  const wanted = keyOf(key);
  s.sending.value = s.sending.value.flatMap((row) => (row.key !== wanted ? [row] : more ? [{ ...row, ...more }] : []));
}

/** Send what is in the composer. Two clicks on one draft are one message: the first one empties it. */
export function send(how: s.Mode = s.mode.value): void {
  const text = s.draft.value;
  const files = s.files.value;
  if (!text.trim() && files.length === 0) return;
  const one: Sent = { key: keyOfDraft() ?? s.fresh(), into: s.chosen.value, text, files, how, at: Date.now() };
  batch(() => {
    s.draft.value = "";
    s.files.value = [];
    s.mode.value = "queue";
    s.problem.value = null;
  });
  keepDraft();
  deliver(one);
}

/** A cancelled or failed message again, as a new submission that names the old one. */
export function resend(row: Row, turn: Turn): void {
  const parts = turn.parts ?? [];
  const text = parts.length ? parts.map((part) => (part.type === "text" ? (part.text ?? "") : "")).join("") : (row.text ?? "");
  const files = parts.length ? (parts.filter((part) => part.type === "attachment") as FilePart[]) : (row.attachments ?? []);
  deliver({ key: s.fresh(), into: turn.conversation_id, text, files, how: "queue", of: turn.turn_id, at: Date.now() });
}

/** Draw it and start its request. Nothing here waits for another message. */
function deliver(one: Sent): void {
  note(one);
  const row: Row = { key: keyOf(one.key), kind: "sending", text: one.text, attachments: one.files, into: one.into, how: one.how };
  s.sending.value = [...s.sending.value.filter((other) => other.key !== row.key), row];
  batch(() => {
    s.sentCount.value += 1;
    s.atEnd.value = true;
  });
  void attempt(one, 0);
}

let making: Promise<string> | null = null;

/** The conversation that the first message of a new page makes; the messages after it go there too. */
function made(): Promise<string> {
  making ??= make().finally(() => (making = null));
  return making;
}

/** Who answers in a new conversation: the first of the list, which may not have come yet. */
async function firstAgent(): Promise<string> {
  if (!s.agents.value.length) await loadAgents();
  return s.agents.value[0]?.name ?? "demo";
}

async function make(): Promise<string> {
  const found = await post<Conversation>("/v1/conversations", { agent: await firstAgent() });
  const id = found.conversation_id;
  s.conversations.value = [found, ...s.conversations.value];
  batch(() => {
    s.sending.value = s.sending.value.map((row) => (row.into === null ? { ...row, into: id } : row));
    if (s.chosen.value === null) {
      keepDraft();
      moveDraft(id);
      void openMade(id);
    }
  });
  write(stored().map((one) => (one.into === null ? { ...one, into: id } : one)));
  return id;
}

export async function newConversation(agent?: string): Promise<void> {
  await s.act(async () => {
    const found = await post<Conversation>("/v1/conversations", { agent: agent ?? (await firstAgent()) });
    await loadConversations();
    await open(found.conversation_id);
  });
}

async function attempt(one: Sent, failures: number): Promise<void> {
  try {
    one.into ??= await made();
    const parts = [
      ...(one.text ? [{ type: "text", text: one.text }] : []),
      ...one.files.map((file) => ({ type: "attachment", attachment_id: file.attachment_id })),
    ];
    const accepted = await post<Accepted>(
      `/v1/conversations/${one.into}/turns`,
      { parts, mode: one.how, ...(one.of ? { resend_of: one.of } : {}) },
      { "Idempotency-Key": one.key },
      ANSWER_MS,
    );
    forget(one.key);
    change(one.key, { turn_id: accepted.turn_id, problem: undefined, again: undefined });
    soon(one.into);
  } catch (error) {
    if (error instanceof Problem && error.unknown) tryAgain(one, failures);
    else refused(one, error);
  }
}

function tryAgain(one: Sent, failures: number): void {
  if (!s.sending.value.some((row) => row.key === keyOf(one.key))) return;
  change(one.key, { again: failures + 1 });
  window.setTimeout(
    () => {
      if (s.sending.value.some((row) => row.key === keyOf(one.key))) void attempt(one, failures + 1);
    },
    AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)],
  );
}

/** A refused message goes back into its composer if that is empty; else it stays as failed, with its words. */
function refused(one: Sent, error: unknown): void {
  s.say(error);
  if (one.of === undefined && giveBack(one.into, one.text, one.files, one.key)) {
    forget(one.key);
    change(one.key, null);
    return;
  }
  change(one.key, { problem: error instanceof Error ? error.message : String(error) });
}

function sentOf(row: Row): Sent {
  const key = row.key.slice(2);
  const found = stored().find((one) => one.key === key);
  return found ?? { key, into: row.into ?? null, text: row.text ?? "", files: row.attachments ?? [], how: row.how ?? "queue", at: Date.now() };
}

/** The same key again: if the first request was stored after all, the answer is the stored one. */
export function resendUnheard(row: Row): void {
  deliver(sentOf(row));
}

/** Put an unanswered message back into the composer, or away. */
export function dropUnheard(row: Row, edit: boolean): void {
  const one = sentOf(row);
  if (edit && !giveBack(one.into, one.text, one.files, one.key)) {
    s.problem.value = w.composerTaken;
    return;
  }
  forget(one.key);
  change(one.key, null);
}

/** What an earlier page had sent without hearing an answer. */
export async function takeUp(): Promise<void> {
  const left = stored();
  if (!left.length) return;
  const known = new Set((await get<{ conversations: Conversation[] }>("/v1/conversations?limit=500")).conversations.map((one) => one.conversation_id));
  for (const one of left) {
    if (one.into !== null && !known.has(one.into)) {
      forget(one.key);
      continue;
    }
    if (Date.now() - one.at < YOUNG_MS) deliver(one);
    else {
      const row: Row = { key: keyOf(one.key), kind: "sending", text: one.text, attachments: one.files, into: one.into, how: one.how };
      s.sending.value = [...s.sending.value, { ...row, problem: w.pageClosed }];
    }
  }
}
