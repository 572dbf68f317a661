import { expect, test } from "vitest";
import { drawn, fate, ROWS_KEPT_MAX, ROWS_KEPT_MIN, unlessAnswered, withDelta, withNewest, withOlder, withoutOldest } from "../src/rows";
import type { Row, Timeline, Turn } from "../src/api";

const row = (key: string, seq?: number, kind: Row["kind"] = "user", turn_id?: string): Row => ({ key, kind, seq, turn_id });
const page = (rows: Row[], next: number | null): Timeline => ({ rows, next, as_of_seq: 9, epoch: "e" });

test("an older page goes before, and a row that both have is drawn once", () => {
  expect(withOlder([row("a", 1), row("b", 2)], [row("b", 2), row("c", 3)]).map((r) => r.key)).toEqual(["a", "b", "c"]);
});

test("the newest page replaces the tail and keeps older rows; doing it twice changes nothing", () => {
  const old = [row("a", 1), row("b", 2), row("q", undefined, "queued")];
  const newest = page([row("b", 2), row("c", 3)], 2);
  const once = withNewest(old, newest);
  expect(once.rows.map((r) => r.key)).toEqual(["a", "b", "c"]);
  expect(once.kept).toBe(true);
  expect(withNewest(once.rows, newest)).toEqual(once);
});

test("a newest page that does not meet what is there leaves no hole: older pages load anew", () => {
  const found = withNewest([row("a", 1), row("b", 2)], page([row("y", 300), row("z", 301)], 300));
  expect(found.rows.map((r) => r.key)).toEqual(["y", "z"]);
  expect(found.kept).toBe(false);
});

test("a row that was put among older ones keeps its place, whatever its number", () => {
  const old = [row("a", 1), row("late", 90), row("b", 2), row("c", 3)];
  expect(withNewest(old, page([row("b", 2), row("c", 3), row("d", 4)], 2)).rows.map((r) => r.key)).toEqual(["a", "late", "b", "c", "d"]);
});

test("a newest page that is everything replaces everything", () => {
  expect(withNewest([row("x", 1)], page([row("a", 5)], null)).rows.map((r) => r.key)).toEqual(["a"]);
});

test("who follows the end keeps no more than so many rows, cut where the server named a cursor", () => {
  const rows = Array.from({ length: ROWS_KEPT_MAX + 1 }, (_, number) => row(`r${number}`, number));
  const cut = rows.length - ROWS_KEPT_MIN - 7;
  const edges = new Map([["r3", 3], [`r${cut}`, 77], [`r${rows.length - 1}`, 99]]);
  expect(withoutOldest(rows.slice(1), edges)).toBeNull();
  const fewer = withoutOldest(rows, edges)!;
  expect(fewer.next).toBe(77);
  expect(fewer.rows).toEqual(rows.slice(cut));
  expect(withoutOldest(rows, new Map([["gone", 5]]))).toBeNull();
  // What was let go of comes back before what is there.
  expect(withOlder(rows.slice(0, cut), fewer.rows)).toEqual(rows);
});

const sent = (key: string, state: Turn["state"] = "queued") => ({ turn_id: `t-${key}`, state, key }) as Turn;

test("what is written comes before the queue, what is sent last, and nothing twice", () => {
  const history: Row[] = [row("a", 1, "user", "t1"), { ...row("q", undefined, "queued", "t-2"), turn: sent("2") }];
  const sending: Row[] = [
    { key: "s-2", kind: "sending" },
    { key: "s-3", kind: "sending" },
  ];
  const keys = drawn(history, row("live", undefined, "live"), sending).map((r) => r.key);
  expect(keys).toEqual(["t-t1", "live", "s-2", "s-3"]);
});

test("a message has one key while it is sent, waits and stands in history", () => {
  const keys = (history: Row[], sending: Row[] = []) => drawn(history, null, sending).map((r) => r.key);
  const sending: Row[] = [{ key: "s-abc", kind: "sending" }];
  expect(keys([], sending)).toEqual(["s-abc"]);
  // The server's row came before the answer to the request.
  expect(keys([{ ...row("q-t", undefined, "queued", "t-abc"), turn: sent("abc") }], sending)).toEqual(["s-abc"]);
  expect(keys([{ ...row("m7", 7, "user", "t-abc"), turn: sent("abc", "running") }], sending)).toEqual(["s-abc"]);
  expect(keys([row("m1", 1, "user", "t9"), row("m2", 2, "user", "t9")])).toEqual(["t-t9", "m2"]);
});

test("a repeated or late piece of live text changes nothing that is there", () => {
  expect(withDelta("ab", "cd", 2)).toBe("abcd");
  expect(withDelta("abcd", "cd", 2)).toBe("abcd");
  expect(withDelta("ab", "xy", 9)).toBe("ab");
});

const turn = (more: Partial<Turn>): Row => ({
  key: "k",
  kind: "user",
  turn: { state: "settled", reason: "answered", position: null, receipt: { state: "confirmed", evidence: null }, ...more } as Turn,
});

test.each([
  [turn({ state: "queued", position: 2 }), "waiting, number 2"],
  [turn({ state: "failed", reason: "The model failed." }), "The model failed."],
  [turn({ state: "parked" }), "waits for a person"],
  [turn({ state: "running", receipt: { state: "accepted", evidence: null } }), "taken"],
  [turn({ state: "running", receipt: { state: "uncertain", evidence: null } }), "delivery uncertain"],
  [turn({ state: "running", needs: { kind: "delivery", sentence: "Somebody works there." }, receipt: { state: "queued", evidence: null } }), "waits: Somebody works there."],
  [turn({ state: "failed", reason: "No sign of it.", receipt: { state: "confirmed", evidence: { via: "late" } } }), "taken late, after: No sign of it."],
  [turn({ reason: "answered_by_previous_response" }), "answered by the previous response"],
  [turn({}), "answered"],
])("each fate has words", (shown, words) => {
  expect(fate(shown).words).toBe(words);
});

test("an answer that stands in history is not drawn as being written too", () => {
  const answer: Row = { key: "m", kind: "answer", turn_id: "t", text: "done" };
  const live: Row = { key: "live-t", kind: "live", turn_id: "t", text: "done" };
  expect(unlessAnswered(live, [answer])).toBeNull();
  expect(unlessAnswered({ ...live, text: "more" }, [answer])).not.toBeNull();
  expect(unlessAnswered({ ...live, turn_id: "u" }, [answer])).not.toBeNull();
  const ended = { key: "u", kind: "user", turn_id: "t", turn: { state: "cancelled" } as Turn } as Row;
  expect(unlessAnswered({ ...live, text: "half" }, [ended])).toBeNull();
});
