// Pure: how the rows on the screen come about. The server's order is kept as it is; nothing here sorts.

import type { Row, Snapshot, Timeline } from "./api";
import { w } from "./words";

/** An older page goes before what is there; rows that both have are drawn once, as the newer page has them. */
export function withOlder(older: Row[], rows: Row[]): Row[] {
  const known = new Set(rows.map((row) => row.key));
  return [...older.filter((row) => !known.has(row.key)), ...rows];
}

/**
 * The newest page replaces the tail from its first row on; older rows that were loaded stay.
 * Where the two do not meet there would be a hole: then only the newest page stands, and older pages load anew.
 */
export function withNewest(rows: Row[], newest: Timeline): { rows: Row[]; kept: boolean } {
  const first = newest.next === null ? undefined : newest.rows[0]?.key;
  const at = first === undefined ? -1 : rows.findIndex((row) => row.key === first);
  return at < 0 ? { rows: newest.rows, kept: false } : { rows: [...rows.slice(0, at), ...newest.rows], kept: true };
}

/** While its end is followed, a page keeps this many rows at most; then it lets go of old ones, and keeps at least so many. */
export const ROWS_KEPT_MAX = 300;
export const ROWS_KEPT_MIN = 150;

/**
 * What a page that follows the end keeps of its rows: null if all. Old rows are let go of at an edge, a row before which
 * the server has named the cursor (`edges`), so that what is gone is loaded again from there, without a hole or a double.
 */
export function withoutOldest(rows: Row[], edges: Map<string, number>): { rows: Row[]; next: number } | null {
  if (rows.length <= ROWS_KEPT_MAX) return null;
  for (let at = rows.length - ROWS_KEPT_MIN; at > 0; at--) {
    const next = edges.get(rows[at]!.key);
    if (next !== undefined) return { rows: rows.slice(at), next };
  }
  return null;
}

/** What is drawn: history, then what is being written, then what waits, then what is being sent. */
export function drawn(history: Row[], live: Row | null, sending: Row[]): Row[] {
  const firstQueued = history.findIndex((row) => row.kind === "queued");
  const cut = firstQueued < 0 ? history.length : firstQueued;
  return named([...history.slice(0, cut), ...(live ? [live] : []), ...history.slice(cut), ...unheard(sending, history)]);
}

/** What was sent and does not stand among the server's rows, which name the key of each message. */
export function unheard(sending: Row[], history: Row[]): Row[] {
  const turns = new Set<string | undefined>();
  const keys = new Set<string>();
  for (const row of history) {
    if (row.kind !== "user" && row.kind !== "queued") continue;
    if (row.turn_id) turns.add(row.turn_id);
    if (row.turn?.key) keys.add(keyOf(row.turn.key));
  }
  return sending.filter((row) => !keys.has(row.key) && !(row.turn_id && turns.has(row.turn_id)));
}

/** The row key of the message that was sent under `key`. */
export const keyOf = (key: string) => `s-${key}`;

/** One key for a message from its first to its last row, whether it is being sent, waits, or stands in history. */
function named(rows: Row[]): Row[] {
  const given = new Set<string>();
  return rows.map((row) => {
    if (row.kind !== "user" && row.kind !== "queued") return row;
    const key = row.turn?.key ? keyOf(row.turn.key) : row.turn_id ? `t-${row.turn_id}` : row.key;
    if (given.has(key)) return row;
    given.add(key);
    return { ...row, key };
  });
}

/** The row of the answer that is being written, from a snapshot. */
export function liveRow(running: Snapshot["running"]): Row | null {
  if (!running) return null;
  const { turn, text, thinking, round } = running;
  return {
    key: `live-${turn.turn_id}`,
    kind: "live",
    turn_id: turn.turn_id,
    round,
    text,
    steps: thinking ? [{ kind: "thinking", text: thinking }] : [],
    turn,
  };
}

/** Nothing is being written any more when its words stand in history already, or when its turn has ended there. */
export function unlessAnswered(live: Row | null, history: Row[]): Row | null {
  if (!live) return null;
  const of_it = history.filter((row) => row.turn_id === live.turn_id);
  const ended = of_it.some((row) => row.kind === "user" && row.turn && ["settled", "failed", "cancelled"].includes(row.turn.state));
  const written = of_it.some((row) => row.kind === "answer" && row.text === live.text && live.text !== "");
  return ended || written ? null : live;
}

/**
 * Put a piece of live text where it belongs: `offset` says how many characters stand before it, so that a repeat changes
 * nothing. The server counts code points; a string here counts some of them as two.
 */
export function withDelta(text: string, piece: string, offset: number | undefined): string {
  if (offset === undefined) return text + piece;
  const at = unitsBefore(text, offset);
  return at === null ? text : text.slice(0, at) + piece;
}

/** Where the first `count` characters of `text` end, or null if it has fewer: then something was missed. */
export function unitsBefore(text: string, count: number): number | null {
  let at = 0;
  if (/[\ud800-\udfff]/.test(text)) for (; count > 0 && at < text.length; count--) at += text.codePointAt(at)! > 0xffff ? 2 : 1;
  return at + count > text.length ? null : at + count;
}

export type Fate = { mark: string; words: string; tone: "" | "wait" | "good" | "bad" };

/** A fate in words and a mark, for a person. */
export function fate(row: Row): Fate {
  const say = w.fate;
  const turn = row.turn;
  if (row.kind === "sending") {
    if (row.problem) return { mark: "!", words: row.problem, tone: "bad" };
    return { mark: "…", words: row.again ? say.askingAgain : row.turn_id ? say.stored : say.sending, tone: "wait" };
  }
  if (!turn) return { mark: "", words: "", tone: "" };
  const receipt = turn.receipt.state;
  const held = turn.needs?.kind === "delivery" ? turn.needs.sentence : null;
  // It was given up, and then its record came after all.
  const evidence = turn.receipt.evidence as { via?: string } | null;
  if (receipt === "confirmed" && evidence?.via === "late") return { mark: "✓✓", words: say.late(turn.reason ?? ""), tone: "good" };
  // Its agent's program is not reached just now: something stands before it.
  if (turn.state === "running" && held) return { mark: "◷", words: say.held(String(held)), tone: "wait" };
  switch (turn.state) {
    case "queued":
      return turn.parent ? { mark: "↪", words: say.rides, tone: "wait" } : { mark: "◷", words: say.waits(turn.position), tone: "wait" };
    case "parked":
      return { mark: "◆", words: say.person, tone: "wait" };
    case "failed":
      return { mark: "!", words: turn.reason ?? say.failed, tone: "bad" };
    case "cancelled":
      return { mark: "⊘", words: say.cancelled[turn.reason ?? ""] ?? say.stopped, tone: "" };
    case "settled":
      if (receipt === "uncertain") break;
      if (turn.reason === "answered_by_previous_response") return { mark: "✓✓", words: say.byPrevious, tone: "good" };
      if (turn.reason === "answered_with") return { mark: "✓✓", words: say.along, tone: "good" };
      return { mark: "✓✓", words: say.answered, tone: "good" };
  }
  if (receipt === "uncertain") return { mark: "?", words: say.uncertain, tone: "wait" };
  if (receipt === "confirmed") return { mark: "✓✓", words: say.answering, tone: "good" };
  if (receipt === "accepted") return { mark: "✓", words: say.taken, tone: "good" };
  return { mark: "·", words: say.starting, tone: "wait" };
}

/** How many tool results a retry of this turn would keep: those that its rows show, and that are the tool's own. */
export function keptResults(rows: Row[], turn_id: string): number {
  return rows
    .filter((row) => row.turn_id === turn_id && row.kind === "progress")
    .flatMap((row) => row.steps ?? [])
    .filter((step) => step.kind === "tool" && step.result !== undefined && !step.synthetic).length;
}

/** Before which waiting turn a turn must be put to stand at `place` (0: next); null: at the end. */
export function beforeFor(queue: string[], moved: string, place: number): string | null {
  return queue.filter((turn_id) => turn_id !== moved)[place] ?? null;
}

/** Seconds as a clock: 0:07, 12:30, 1:00:00. */
export function clock(seconds: number): string {
  const two = (number: number) => String(number).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor(seconds / 60) % 60;
  return `${hours ? `${hours}:${two(minutes)}` : minutes}:${two(seconds % 60)}`;
}
