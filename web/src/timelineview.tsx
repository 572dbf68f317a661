// The rows on the screen: only those in view are mounted. It follows the newest row until a person scrolls away,
// and older pages come in above without moving what is being read.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { VList } from "virtua";
import type { VListHandle } from "virtua";
import type { Row } from "./api";
import { RowView } from "./rowview";
import * as s from "./state";
import { w } from "./words";

const NEAR_TOP_PX = 600;
const NEAR_END_PX = 40;
const MOVING_MS = 500;

export function Timeline() {
  const list = useRef<VListHandle>(null);
  const follow = useRef(true);
  const moving = useRef(0);
  const rows = s.rows.value;
  const first = rows[0]?.key ?? "";
  const before = useRef<Row[]>([]);
  const last = useRef({ size: 0, at: 0, height: 0 });
  const frame = useRef<HTMLDivElement>(null);
  // Rows were put in front, or let go of there: then what was first, or is first now, stands further down in the other.
  const was = before.current;
  const moved = was[0] !== undefined && was[0].key !== first && [[rows, was[0].key] as const, [was, first] as const].some(([list, key]) => list.some((row) => row.key === key));
  const sent = s.sentCount.value;
  useLayoutEffect(() => {
    before.current = rows;
    const toEnd = () => follow.current && rows.length && list.current?.scrollToIndex(rows.length - 1, { align: "end" });
    toEnd();
    // Where old rows went, the list moves itself once more after it was drawn: that is no person's scrolling.
    if (rows.length < was.length) {
      moving.current = performance.now() + MOVING_MS;
      requestAnimationFrame(() => requestAnimationFrame(toEnd));
    }
    // A page of rows that does not fill the screen cannot be scrolled: the older ones come by themselves.
    const handle = list.current;
    if (handle && handle.viewportSize > 0 && handle.scrollSize <= handle.viewportSize && s.older.value !== null) void s.loadOlder();
  });
  useEffect(() => {
    // Who opens a conversation or sends something wants to see its end.
    follow.current = true;
    if (rows.length) list.current?.scrollToIndex(rows.length - 1, { align: "end" });
  }, [s.chosen.value, sent]);
  // What stands around the rows (a banner, a composer of many lines, a phone's keyboard) takes room from them.
  const empty = rows.length === 0;
  useEffect(() => {
    if (!frame.current) return;
    const watch = new ResizeObserver(() => follow.current && list.current?.scrollToIndex(s.rows.peek().length - 1, { align: "end" }));
    watch.observe(frame.current);
    return () => watch.disconnect();
  }, [empty]);
  // The list's own idea of its height is a frame late.
  const height = () => frame.current?.clientHeight ?? 0;
  const byPerson = () => {
    const handle = list.current;
    if (!handle) return;
    follow.current = handle.scrollOffset + height() >= handle.scrollSize - NEAR_END_PX;
    s.atEnd.value = follow.current;
  };
  const scrolled = (offset: number) => {
    const handle = list.current;
    if (!handle) return;
    // Upwards while nothing grew or shrank, neither the rows nor the room they have (a banner that goes moves the
    // end up by its height): that was a person, by whatever means.
    const earlier = last.current;
    last.current = { size: handle.scrollSize, at: offset, height: height() };
    const still = earlier.size === handle.scrollSize && earlier.height === height();
    if (!follow.current || (performance.now() > moving.current && still && offset < earlier.at - 2)) byPerson();
    if (offset < NEAR_TOP_PX && !follow.current && s.older.value !== null) void s.loadOlder();
  };
  if (!s.chosen.value && rows.length === 0) {
    return (
      <div class="timeline blank">
        <div class="welcome">
          <p>{w.begin}</p>
          <p class="quiet">{w.beginMore}</p>
        </div>
      </div>
    );
  }
  if (rows.length === 0) return <div class="timeline blank">{s.loading.value ? <span class="working">{w.loading}</span> : w.nothingSaid}</div>;
  return (
    <div
      class="timeline"
      ref={frame}
      data-seq={s.drawnSeq.value}
      onWheel={byPerson}
      onTouchMove={byPerson}
      onKeyUp={byPerson}
      onPointerUp={byPerson}
    >
      <VList
        ref={list as never}
        role="feed"
        aria-busy={Boolean(s.live.value)}
        aria-label={w.messages}
        data={rows}
        shift={moved}
        class="list"
        onScroll={scrolled}
      >
        {(row: Row) => (
          <div key={row.key} class="slot">
            <RowView row={row} conversation={s.chosen.value ?? ""} />
          </div>
        )}
      </VList>
      {!s.atEnd.value && (
        <button
          type="button"
          class="down"
          onClick={() => {
            follow.current = true;
            s.atEnd.value = true;
            list.current?.scrollToIndex(rows.length - 1, { align: "end" });
          }}
        >
          {w.newest}
        </button>
      )}
    </div>
  );
}
