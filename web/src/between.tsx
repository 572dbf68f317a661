// What stands between messages: a summary that took the place of older ones in the feed, a turn that went on by
// itself and what it kept, another session of a CLI and why. Loaded when the first such row is drawn.

import type { Row } from "./api";
import { w } from "./words-beside";
import "./between.css";

type Kept = { rounds: number; results: number; input_tokens: number; output_tokens: number };
type Session = { cli: string; native_id: string | null; previous: string | null; told: boolean };

export default function Between({ row, at }: { row: Row; at: string }) {
  const say = w.between;
  const when = (
    <time class="quiet" dateTime={row.at}>
      {at}
    </time>
  );
  const text = row.text ?? "";
  if (row.kind === "compacted") {
    return (
      <details>
        <summary>
          <span aria-hidden="true">⇟</span> {say.compacted} {when}
        </summary>
        <p class="quiet">{say.compactedMore}</p>
        <pre class="plain" tabIndex={0} dir="auto">
          {text}
        </pre>
      </details>
    );
  }
  if (row.kind === "resumed") {
    const kept = row.facts as Kept;
    const tokens = kept.input_tokens + kept.output_tokens;
    return (
      <>
        <p>
          <span aria-hidden="true">↻</span> {say.resumed} {when}
        </p>
        <p class="quiet" dir="auto">
          {text} {kept.rounds ? say.kept(kept.rounds, kept.results) : say.keptNothing}
          {kept.rounds > 0 && tokens > 0 && ` ${say.saved(tokens)}`}
        </p>
      </>
    );
  }
  const session = row.facts as Session;
  return (
    <details>
      <summary>
        <span aria-hidden="true">⇄</span> {session.previous ? say.another(session.cli) : say.same(session.cli)} {when}
        <p class="quiet" dir="auto">
          {text} {session.told && say.told}
        </p>
      </summary>
      <p class="quiet">
        {session.native_id && (
          <>
            {say.now} <code>{session.native_id}</code>
          </>
        )}
        {session.previous && (
          <>
            {" "}
            {say.before} <code>{session.previous}</code>
          </>
        )}
      </p>
    </details>
  );
}
