import { expect, test } from "vitest";
import { drawn, fate, turnsShown, unlessAnswered, withDelta, withNewest, withOlder } from "../src/rows";
import type { Row, Timeline, Turn } from "../src/api";

const row = (key: string, seq?: number, kind: Row["kind"] = "user", turn_id?: string): Row => ({ key, kind, seq, turn_id });
const page = (rows: Row[], next: number | null): Timeline => ({ rows, next, as_of_seq: 9, epoch: "e" });

test("an older page goes before, and a row that both have is drawn once", () => {
  expect(withOlder([row("a", 1), row("b", 2)], [row("b", 2), row("c", 3)]).map((r) => r.key)).toEqual(["a", "b", "c"]);
});

test("the newest page replaces the tail and keeps older rows; doing it twice changes nothing", () => {
  const old = [row("a", 1), row("b", 2), row("q", undefined, "queued")];
  const newest = page([row("b2", 2), row("c", 3)], 2);
  const once = withNewest(old, newest);
  expect(once.map((r) => r.key)).toEqual(["a", "b2", "c"]);
  expect(withNewest(once, newest)).toEqual(once);
});

test("a newest page that is everything replaces everything", () => {
  expect(withNewest([row("x", 1)], page([row("a", 5)], null)).map((r) => r.key)).toEqual(["a"]);
});

test("what is written comes before the queue, what is sent last, and nothing twice", () => {
  const history = [row("a", 1, "user", "t1"), row("q", undefined, "queued", "t2")];
  const sending: Row[] = [
    { key: "s1", kind: "sending", turn_id: "t2" },
    { key: "s2", kind: "sending" },
  ];
  const keys = drawn(history, row("live", undefined, "live"), sending, turnsShown(history)).map((r) => r.key);
  expect(keys).toEqual(["a", "live", "q", "s2"]);
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
});
