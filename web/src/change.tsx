// The words of a waiting message, changed in their place. Loaded when first used.

import { useState } from "preact/hooks";
import type { Row } from "./api";
import * as s from "./state";
import "./change.css";
import { w as say } from "./words-beside";

export default function Change({ row }: { row: Row }) {
  const [text, set] = useState(row.text ?? "");
  const turn = row.turn!;
  const save = () => void (text.trim() ? s.edit(turn, text) : undefined);
  return (
    <form
      class="change"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <textarea
        aria-label={say.waiting.changeWaiting}
        value={text}
        rows={Math.min(12, text.split("\n").length + 1)}
        ref={(area) => {
          if (area && document.activeElement !== area && !area.dataset.taken) {
            area.dataset.taken = "yes";
            area.focus();
          }
        }}
        onInput={(event) => set(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            s.editing.value = null;
          } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) {
            event.preventDefault();
            save();
          }
        }}
      />
      <div class="actions">
        <button type="submit" class="primary" disabled={!text.trim()}>
          {say.waiting.save}
        </button>
        <button type="button" onClick={() => (s.editing.value = null)}>
          {say.waiting.keepAsIs}
        </button>
      </div>
    </form>
  );
}
