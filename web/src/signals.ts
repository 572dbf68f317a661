// What the page knows, as signals that the components read; and how what goes wrong is said.

import { computed, signal } from "@preact/signals";
import { Problem } from "./api";
import type { Approval, Conversation, FilePart, Row, Snapshot } from "./api";
import { drawn, named, turnsShown } from "./rows";

export type Mode = "queue" | "steer" | "interrupt";

export type Panel = null | { kind: "evidence"; turn_id: string } | { kind: "feed" } | { kind: "keys" };

export const conversations = signal<Conversation[]>([]);
export const agents = signal<string[]>([]);
export const search = signal("");
export const showArchived = signal(false);
export const chosen = signal<string | null>(null);
export const history = signal<Row[]>([]);
export const older = signal<number | null>(null);
export const snapshot = signal<Snapshot | null>(null);
export const live = signal<Row | null>(null);
/** What was sent and is not among the server's rows yet, of all conversations; in the order of sending. */
export const sending = signal<Row[]>([]);
export const approvals = signal<Approval[]>([]);
export const online = signal(true);
/** Why the page cannot be brought up to date just now. It goes on trying. */
export const trouble = signal<string | null>(null);
export const signedOut = signal(false);
export const problem = signal<string | null>(null);
export const undo = signal<{ conversation_id: string; title: string; until: number } | null>(null);
export const draft = signal("");
export const files = signal<FilePart[]>([]);
export const mode = signal<Mode>("queue");
export const panel = signal<Panel>(null);
export const sidebar = signal(false);
export const loading = signal(false);

/** Under which key a turn was first drawn by this page. */
export const names = new Map<string, string>();

export const rows = computed(() =>
  named(
    drawn(
      history.value,
      live.value,
      sending.value.filter((row) => row.into === chosen.value),
      turnsShown(history.value),
    ),
    names,
  ),
);
export const waiting = computed(() => approvals.value.filter((one) => one.conversation_id === chosen.value));

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

/** Run what nobody asked for just now: its success clears nothing that is being said. */
export async function quietly(work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    // The lane's own refreshing meets the same trouble, says it, and tries again.
    if (!(error instanceof Problem) || !error.passing) say(error);
  }
}

/** A name that nobody else makes. `crypto.randomUUID` exists only on https and localhost. */
export function fresh(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
