// What a person has written and not sent: one draft per conversation, kept over reloads.
// A draft that came back from a refused send keeps that send's key, so that sending it again unchanged is the same message.

import { batch } from "@preact/signals";
import type { FilePart } from "./api";
import { chosen, draft, files, problem } from "./signals";
import { w } from "./words";

type Draft = { text: string; files: FilePart[]; key?: string; of?: string };

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
    if (kept.text || kept.files.length) localStorage.setItem(at, JSON.stringify(kept));
    else localStorage.removeItem(at);
    unstored.delete(at);
  } catch {
    if (kept.text || kept.files.length) {
      if (!unstored.size) problem.value = w.storageFull;
      unstored.set(at, kept);
    } else unstored.delete(at);
  }
}

/** Keep what the composer holds. */
export function keepDraft(): void {
  const before = load(chosen.value);
  const key = before.of === sameAs(draft.value, files.value) ? { key: before.key, of: before.of } : {};
  store(chosen.value, { text: draft.value, files: files.value, ...key });
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
  store(conversation_id, { text, files: list, key, of: sameAs(text, list) });
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
    store(conversation_id, { text: kept.text, files: [...kept.files, ...list] });
  }
}

/** The conversation that a draft was waiting for has been made. */
export function moveDraft(into: string): void {
  const kept = load(null);
  store(null, { text: "", files: [] });
  store(into, kept);
}
