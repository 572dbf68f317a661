// What the page knows, as signals that the components read; and how what goes wrong is said.

import { computed, signal } from "@preact/signals";
import { clockOffset, Problem } from "./api";
import type { Agent, Approval, Conversation, FilePart, Row, Snapshot } from "./api";
import { drawn } from "./rows";

export { clockOffset };

export type Mode = "queue" | "steer" | "interrupt";

export type Panel = null | { kind: "evidence"; turn_id: string } | { kind: "feed" } | { kind: "keys" } | { kind: "settings" } | { kind: "terminal" };

export const conversations = signal<Conversation[]>([]);
export const agents = signal<Agent[]>([]);
/** Conversation -> the newest seq that was on the screen here. */
export const seen = signal<Record<string, number>>({});
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
export const uploading = signal(0);
/** Seconds of the recording that runs. */
export const recording = signal<number | null>(null);
/** Whether the newest row is in view. */
export const atEnd = signal(true);
/** How many messages this page has sent: each brings the end into view. */
export const sentCount = signal(0);
/** Said to who cannot see: what a key or a click just did. */
export const spoken = signal("");
/** The waiting message that is being changed. */
export const editing = signal<string | null>(null);

/** The journal's seq that the rows are drawn as of. */
export const drawnSeq = signal(-1);

export const rows = computed(() =>
  drawn(
    history.value,
    live.value,
    sending.value.filter((row) => row.into === chosen.value),
  ),
);
/** What waits, in its order, as it is drawn. */
export const queue = computed(() => history.value.filter((row) => row.kind === "queued").map((row) => row.turn_id!));
export const agent = computed(() => {
  const name = snapshot.value?.agent;
  return agents.value.find((one) => one.name === name) ?? null;
});
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
