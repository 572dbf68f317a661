// The vectors that tests/app/test_vectors_of_both.py reads too: what Python makes is what the page takes.

import { expect, test } from "vitest";
import deltas from "../../tests/vectors/both/deltas.json";
import fates from "../../tests/vectors/both/fates.json";
import moves from "../../tests/vectors/both/moves.json";
import given from "../../tests/vectors/both/rows.json";
import type { Row, Timeline, Turn } from "../src/api";
import { beforeFor, drawn, fate, keptResults, unheard, withDelta, withNewest, withOlder } from "../src/rows";

const whole = given.whole as unknown as Row[];
const [older, newest] = given.pages.map((page) => ({ rows: page.rows, next: page.next, as_of_seq: 24, epoch: "e" }) as unknown as Timeline);

test("pages loaded one after the other are the whole, and loading them again changes nothing", () => {
  const both = withOlder(older!.rows, newest!.rows);
  expect(both).toEqual(whole);
  expect(withOlder(older!.rows, both)).toEqual(whole);
  expect(withNewest(both, newest!)).toEqual({ rows: whole, kept: true });
});

test("what is drawn keeps the server's order, with what is written before the queue, and no key twice", () => {
  const live: Row = { key: "live-t9", kind: "live", turn_id: "t9", text: "so far" };
  const kinds = drawn(whole, live, []).map((row) => row.kind);
  expect(kinds.filter((kind) => kind !== "live")).toEqual(whole.map((row) => row.kind));
  expect(kinds.indexOf("live")).toBe(whole.findIndex((row) => row.kind === "queued"));
  const keys = drawn(whole, live, []).map((row) => row.key);
  expect(new Set(keys).size).toBe(keys.length);
});

test("what is being sent is known again in the server's row of the same key", () => {
  expect(unheard([{ key: "s-key4", kind: "sending" }], whole)).toEqual([]);
});

test("a retry keeps the results that the tools gave themselves", () => {
  expect(keptResults(whole, "t1")).toBe(2);
  expect(keptResults(whole, "t2")).toBe(0);
});

test.each(fates.cases)("a turn that $name", ({ view, fate: expected }) => {
  const shown = fate({ key: "k", kind: "user", turn: view as unknown as Turn });
  expect([shown.mark, shown.words, shown.tone]).toEqual(expected);
});

test.each(moves.cases)("$moved to place $place", ({ queue, moved, place, before, after }) => {
  expect(beforeFor(queue, moved, place)).toBe(before);
  expect(after[place]).toBe(moved);
});

test.each(deltas.cases)("words that are $name", ({ pieces, whole: text }) => {
  const once = pieces.reduce((before, piece) => withDelta(before, piece.text, piece.offset), "");
  expect(once).toBe(text);
  const doubled = pieces.reduce((before, piece) => withDelta(withDelta(before, piece.text, piece.offset), piece.text, piece.offset), "");
  expect(doubled).toBe(text);
  const last = pieces[pieces.length - 1]!;
  expect(withDelta("", last.text, last.offset)).toBe("");
});
