// Pure: how the rows on the screen come about. The server's order is kept as it is; nothing here sorts.

import type { Row, Snapshot, Timeline } from "./api";

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

/** What is drawn: history, then what is being written, then what waits, then what is being sent. */
export function drawn(history: Row[], live: Row | null, sending: Row[], known: Set<string>): Row[] {
  const firstQueued = history.findIndex((row) => row.kind === "queued");
  const cut = firstQueued < 0 ? history.length : firstQueued;
  const unheard = sending.filter((row) => !row.turn_id || !known.has(row.turn_id));
  return [...history.slice(0, cut), ...(live ? [live] : []), ...history.slice(cut), ...unheard];
}

/** One key for a message from its first to its last row, whether it is being sent, waits, or stands in history. */
export function named(rows: Row[], names: Map<string, string>): Row[] {
  const given = new Set<string>();
  return rows.map((row) => {
    if (!row.turn_id || (row.kind !== "user" && row.kind !== "queued" && row.kind !== "sending") || given.has(row.turn_id)) return row;
    given.add(row.turn_id);
    return { ...row, key: names.get(row.turn_id) ?? `t-${row.turn_id}` };
  });
}

/** Which turns the rows show already, as a sent message or in the queue. */
export function turnsShown(rows: Row[]): Set<string> {
  return new Set(rows.filter((row) => (row.kind === "user" || row.kind === "queued") && row.turn_id).map((row) => row.turn_id!));
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

/** Put a piece of live text where it belongs: `offset` says where it begins, so that a repeat changes nothing. */
export function withDelta(text: string, piece: string, offset: number | undefined): string {
  if (offset === undefined) return text + piece;
  if (offset > text.length) return text;
  return text.slice(0, offset) + piece;
}

/** A fate in words and a mark, for a person. */
export function fate(row: Row): { mark: string; words: string; tone: "" | "wait" | "good" | "bad" } {
  const turn = row.turn;
  if (row.kind === "sending") {
    if (row.problem) return { mark: "!", words: row.problem, tone: "bad" };
    return { mark: "…", words: row.again ? "not heard of yet; asking again" : row.turn_id ? "stored" : "sending", tone: "wait" };
  }
  if (!turn) return { mark: "", words: "", tone: "" };
  if (turn.state === "queued" && turn.parent) return { mark: "↪", words: "travels with the running turn", tone: "wait" };
  if (turn.state === "queued") return { mark: "◷", words: `waiting, number ${turn.position ?? "–"}`, tone: "wait" };
  if (turn.state === "parked") return { mark: "⏸", words: "waits for a person", tone: "wait" };
  if (turn.state === "failed") return { mark: "!", words: turn.reason ?? "failed", tone: "bad" };
  if (turn.state === "cancelled") return { mark: "⊘", words: turn.reason === "cancelled" ? "stopped" : (turn.reason ?? "stopped"), tone: "" };
  const receipt = turn.receipt.state;
  if (receipt === "uncertain") return { mark: "?", words: "delivery uncertain", tone: "wait" };
  if (turn.state === "settled" && turn.reason === "answered_by_previous_response") {
    return { mark: "✓✓", words: "answered by the previous response", tone: "good" };
  }
  if (turn.state === "settled" && turn.reason === "answered_with") return { mark: "✓✓", words: "answered along with the turn", tone: "good" };
  if (receipt === "confirmed") return { mark: "✓✓", words: turn.state === "running" ? "being answered" : "answered", tone: "good" };
  if (receipt === "accepted") return { mark: "✓", words: "taken", tone: "good" };
  return { mark: "·", words: turn.state, tone: "wait" };
}
