// Following a conversation: one event stream per tab, from a cursor on, over breaks and restarts.
//
// A browser gives all tabs of one server six connections. At most four tabs hold a stream (each in a slot that
// the browser takes back when the tab ends); the others look every two seconds, and take a slot that becomes free.

import { get, Problem } from "./api";
import type { Snapshot } from "./api";
import { online, signedOut } from "./signals";

export type Heard =
  | { kind: "event"; seq: number; name: string; turn_id: string | null }
  | { kind: "delta"; what: string; turn_id: string; text: string; offset?: number }
  | { kind: "resync" }
  | { kind: "changed" };

const SLOTS = 4;
const LOOK_MS = 2000;
const AGAIN_MS = 2000;

/** Take a free slot; the answer gives it back. Null if all are taken. */
async function takeSlot(): Promise<(() => void) | null> {
  // Plain http from another machine has no locks: such a tab streams without asking.
  if (!("locks" in navigator)) return () => undefined;
  for (let number = 0; number < SLOTS; number++) {
    const got = await new Promise<(() => void) | null>((resolve) => {
      void navigator.locks.request(`turnkeeper-stream-${number}`, { ifAvailable: true }, (lock) => {
        if (!lock) {
          resolve(null);
          return;
        }
        return new Promise<void>((release) => resolve(() => release()));
      });
    });
    if (got) return got;
  }
  return null;
}

/** Tell `tell` what happens in a conversation after `after`, until the answer is called. */
export function follow(conversation_id: string, after: number, epoch: string, tell: (what: Heard) => void): () => void {
  let cursor = after;
  let seen = after;
  let ended = false;
  let source: EventSource | null = null;
  let release: (() => void) | null = null;
  let timer = 0;

  const later = (work: () => void, ms: number) => {
    window.clearTimeout(timer);
    timer = window.setTimeout(work, ms);
  };

  const listen = () => {
    const stream = new EventSource(`/v1/conversations/${conversation_id}/events?after=${cursor}&epoch=${epoch}`);
    source = stream;
    stream.onopen = () => {
      online.value = true;
      // What happened while nothing was heard of it has no event of its own: live text, a draft.
      tell({ kind: "changed" });
    };
    stream.onerror = () => {
      if (ended || stream !== source) return;
      online.value = false;
      // The browser tries again by itself, but not after an answer that is no stream.
      if (stream.readyState === EventSource.CLOSED) later(listen, AGAIN_MS);
    };
    stream.onmessage = (message: MessageEvent<string>) => {
      const event = JSON.parse(message.data) as { seq: number; kind: string; turn_id: string | null };
      if (event.seq <= cursor) return;
      cursor = seen = event.seq;
      tell({ kind: "event", seq: event.seq, name: event.kind, turn_id: event.turn_id });
    };
    stream.addEventListener("delta", (message) => {
      const delta = JSON.parse((message as MessageEvent<string>).data) as { kind: string; turn_id: string; text?: string; offset?: number };
      if (delta.text !== undefined) tell({ kind: "delta", what: delta.kind, turn_id: delta.turn_id, text: delta.text, offset: delta.offset });
    });
    stream.addEventListener("resync", (message) => {
      const now = JSON.parse((message as MessageEvent<string>).data) as { as_of_seq: number; epoch: string };
      cursor = seen = now.as_of_seq;
      epoch = now.epoch;
      stream.close();
      tell({ kind: "resync" });
      later(listen, 0);
    });
  };

  const look = async () => {
    release = await takeSlot();
    if (ended) {
      release?.();
      return;
    }
    if (release) {
      listen();
      return;
    }
    try {
      const now = await get<Snapshot>(`/v1/conversations/${conversation_id}`);
      online.value = true;
      if (now.as_of_seq !== seen || now.running) tell({ kind: "changed" });
      seen = now.as_of_seq;
      cursor = Math.max(cursor, seen);
    } catch (error) {
      if (error instanceof Problem && error.status === 401) signedOut.value = true;
      online.value = false;
    }
    if (!ended) later(() => void look(), LOOK_MS);
  };

  void look();
  return () => {
    ended = true;
    window.clearTimeout(timer);
    source?.close();
    release?.();
  };
}
