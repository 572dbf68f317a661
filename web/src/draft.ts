// What a person has written and not sent: one draft per conversation, kept over reloads.
// The newest draft of a conversation is on the server too, for another device to go on with.
// A draft that came back from a refused send keeps that send's key, so that sending it again unchanged is the same message.

import { batch } from "@preact/signals";
import type { FilePart } from "./api";
import { get, post } from "./api";
import { chosen, draft, files, problem, quietly } from "./signals";
import { w } from "./words";

/** `revision`: the server's draft that this one came from; `sent`: what the server has of it. */
type Draft = { text: string; files: FilePart[]; key?: string; of?: string; revision?: number; sent?: string };

type Stored = { text: string; files: FilePart[]; revision: number };

const KEEP_MS = 1000;
const keeping = new Map<string, number>();

const place = (conversation_id: string | null) => `turnkeeper.draft.${conversation_id ?? "new"}`;

/** Where the storage is full or forbidden, drafts live as long as the page. */
const unstored = new Map<string, Draft>();

function sameAs(text: string, list: FilePart[]): string {
  return JSON.stringify([text, list.map((file) => file.attachment_id)]);
}

function load(conversation_id: string | null): Draft {
  const at = place(conversation_id);
  const kept = unstored.get(at);
  if (kept) return kept;
  try {
    const stored = localStorage.getItem(at);
    if (stored) return { text: "", files: [], ...(JSON.parse(stored) as Partial<Draft>) };
  } catch {
    // A draft that cannot be read is no draft.
  }
  return { text: "", files: [] };
}

function store(conversation_id: string | null, kept: Draft): void {
  const at = place(conversation_id);
  try {
    if (kept.text || kept.files.length || kept.revision) localStorage.setItem(at, JSON.stringify(kept));
    else localStorage.removeItem(at);
    unstored.delete(at);
  } catch {
    if (kept.text || kept.files.length) {
      if (!unstored.size) problem.value = w.storageFull;
      unstored.set(at, kept);
    } else unstored.delete(at);
  }
}

/** Keep what the composer holds: here at once, on the server when the typing rests. */
export function keepDraft(): void {
  const before = load(chosen.value);
  const same = sameAs(draft.value, files.value);
  const key = before.of === same ? { key: before.key, of: before.of } : {};
  store(chosen.value, { text: draft.value, files: files.value, ...key, revision: before.revision, sent: before.sent });
  const into = chosen.value;
  if (into === null || (before.sent ?? NOTHING) === same) return;
  window.clearTimeout(keeping.get(into));
  keeping.set(
    into,
    window.setTimeout(() => void upload(into), KEEP_MS),
  );
}

const NOTHING = sameAs("", []);

/** Bring a draft to the server. It is a convenience: what fails is tried with the next change. */
async function upload(conversation_id: string): Promise<void> {
  const { text, files } = load(conversation_id);
  const list = files.map(({ attachment_id, name, media_type, size_bytes }) => ({ attachment_id, name, media_type, size_bytes }));
  await quietly(async () => {
    const kept = await post<Stored>(`/v1/conversations/${conversation_id}/draft`, { text, files: list });
    store(conversation_id, { ...load(conversation_id), revision: kept.revision, sent: sameAs(text, files) });
  });
}

/** Take what another device wrote meanwhile, unless something was written here too. */
export async function fetchDraft(conversation_id: string): Promise<void> {
  await quietly(async () => {
    const theirs = await get<Stored>(`/v1/conversations/${conversation_id}/draft`);
    const mine = load(conversation_id);
    const changedHere = sameAs(mine.text, mine.files) !== (mine.sent ?? NOTHING);
    if (theirs.revision <= (mine.revision ?? 0) || changedHere) return;
    store(conversation_id, { text: theirs.text, files: theirs.files, revision: theirs.revision, sent: sameAs(theirs.text, theirs.files) });
    if (chosen.value === conversation_id) restoreDraft();
  });
}

/** Show the draft of the chosen conversation in the composer. */
export function restoreDraft(): void {
  const kept = load(chosen.value);
  batch(() => {
    draft.value = kept.text;
    files.value = kept.files;
  });
}

/** The key under which this very draft was sent before and refused, if it was. */
export function keyOfDraft(): string | undefined {
  const kept = load(chosen.value);
  return kept.of === sameAs(draft.value, files.value) ? kept.key : undefined;
}

/** Give a refused message back to its own conversation's composer. False if something is written there. */
export function giveBack(conversation_id: string | null, text: string, list: FilePart[], key: string): boolean {
  const here = conversation_id === chosen.value;
  const now = here ? { text: draft.value, files: files.value } : load(conversation_id);
  if (now.text || now.files.length) return false;
  const { revision, sent } = load(conversation_id);
  store(conversation_id, { text, files: list, key, of: sameAs(text, list), revision, sent });
  if (here) restoreDraft();
  return true;
}

/** Files that were attached to a conversation's draft, whichever is open by now. */
export function addFiles(conversation_id: string | null, list: FilePart[]): void {
  if (conversation_id === chosen.value) {
    files.value = [...files.value, ...list];
    keepDraft();
  } else {
    const kept = load(conversation_id);
    store(conversation_id, { ...kept, files: [...kept.files, ...list] });
  }
}

/** The words of a recording of a draft have come. */
export function withWords(conversation_id: string | null, attachment_id: string, transcript: string): void {
  const told = (list: FilePart[]) => list.map((one) => (one.attachment_id === attachment_id ? { ...one, transcript } : one));
  if (conversation_id === chosen.value) {
    files.value = told(files.value);
    keepDraft();
  } else {
    const kept = load(conversation_id);
    store(conversation_id, { ...kept, files: told(kept.files) });
  }
}

/** The conversation that a draft was waiting for has been made. */
export function moveDraft(into: string): void {
  const kept = load(null);
  store(null, { text: "", files: [] });
  store(into, kept);
}
