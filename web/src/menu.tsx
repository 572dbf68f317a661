// What can be done with one conversation of the list. Loaded when the first such menu is opened.

import type { Conversation } from "./api";
import * as s from "./state";
import { w } from "./words-beside";
import "./menu.css";

export default function Menu({ one }: { one: Conversation }) {
  const say = w.menu;
  return (
    <div>
      <button
        type="button"
        onClick={() => {
          const title = prompt(say.newTitle, one.title);
          if (title !== null) void s.rename(one.conversation_id, title);
        }}
      >
        {say.rename}
      </button>
      <button type="button" onClick={() => void s.archive(one)}>
        {one.archived ? say.unarchive : say.archive}
      </button>
      <a href={`/v1/conversations/${one.conversation_id}/export`} download={`${one.conversation_id}.jsonl`}>
        {say.exportIt}
      </a>
      <button type="button" class="bad" onClick={() => void s.remove(one)}>
        {say.remove}
      </button>
    </div>
  );
}
