// What can be done with a waiting message. Loaded when the first one waits.

import type { Row } from "./api";
import * as s from "./state";
import { w } from "./words";
import { w as say } from "./words-beside";

export default function QueueActions({ row }: { row: Row }) {
  const turn = row.turn;
  if (!turn || turn.state !== "queued") return null;
  const at = s.queue.value.indexOf(turn.turn_id);
  const running = Boolean(s.snapshot.value?.running);
  return (
    <div class="actions" role="group" aria-label={say.waiting.waitingActions}>
      {s.queue.value.length > 1 && (
        <>
          <span class="grip" aria-hidden="true" title={say.waiting.drag}>
            ⠿
          </span>
          <button type="button" disabled={at <= 0} onClick={() => void s.moveTo(turn, at - 1)}>
            {say.waiting.up}
          </button>
          <button type="button" disabled={at < 0 || at >= s.queue.value.length - 1} onClick={() => void s.moveTo(turn, at + 1)}>
            {say.waiting.down}
          </button>
        </>
      )}
      {running && !turn.parent && (
        <button type="button" onClick={() => void s.turnAct(turn, "send-now", { mode: "steer" })} title={say.waiting.steerTitle}>
          {say.waiting.steer}
        </button>
      )}
      <button type="button" onClick={() => void s.turnAct(turn, "send-now", { mode: "interrupt" })} title={say.waiting.sendNowTitle}>
        {say.waiting.sendNow}
      </button>
      <button type="button" onClick={() => (s.editing.value = turn.turn_id)}>
        {w.edit}
      </button>
      <button type="button" class="bad" onClick={() => void s.takeBack(row, turn)}>
        {say.waiting.cancel}
      </button>
    </div>
  );
}
