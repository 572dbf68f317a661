// What waits for a person: an approval with its countdown, or a decision about a turn.

import { useEffect, useState } from "preact/hooks";
import type { Approval } from "./api";
import { clock } from "./rows";
import * as s from "./state";
import { w } from "./words-beside";
import "./cards.css";

/** Counts down to a time of the server's, by the server's clock: this device's may be hours off. */
function Countdown({ until }: { until?: string }) {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => set(Date.now()), 1000);
    return () => window.clearInterval(timer);
  }, []);
  if (!until) return null;
  const left = Math.max(0, Math.round((Date.parse(until) - (now + s.clockOffset.value)) / 1000));
  const minutes = Math.floor(left / 60);
  return <span class="quiet left">{left === 0 ? w.expired : minutes >= 60 ? w.hoursLeft(Math.floor(minutes / 60), minutes % 60) : w.left(clock(left))}</span>;
}

export default function Card({ one }: { one: Approval }) {
  if (one.kind !== "approval") {
    const choices = [...(one.choices ?? one.offers ?? []), ...(one.kind === "auth" ? [] : ["give_up"])];
    return (
      <section class="card" aria-label={w.needsYou}>
        <p>
          {one.kind === "auth" && one.calls ? (
            <>
              <strong>{w.signIn(one.server ?? "", one.why)}</strong>{" "}
              {one.calls.map((call) => (
                <>
                  <code>{call.name}</code>{" "}
                </>
              ))}
              {w.waitsForIt(one.calls.map((call) => call.name))}
            </>
          ) : (
            <>
              <strong>{w.needsYou}</strong> {one.sentence}
            </>
          )}{" "}
          <Countdown until={one.expires_at} />
        </p>
        <div class="actions">
          {one.connect && (
            <a class="primary button" href={one.connect} target="_blank" rel="noopener">
              {w.connect(one.server ?? "")}
            </a>
          )}
          {choices.map((choice) => (
            <button key={choice} type="button" onClick={() => void s.choose(one, choice)}>
              {w.choice(choice)}
            </button>
          ))}
        </div>
      </section>
    );
  }
  return (
    <section class="card" aria-label={w.approveQuestion(one.name ?? "")}>
      <p>
        <strong>
          {w.run} <code>{one.name}</code>?
        </strong>{" "}
        <Countdown until={one.expires_at} />
      </p>
      <pre class="plain" tabIndex={0}>
        {JSON.stringify(one.arguments, null, 2)}
      </pre>
      <div class="actions">
        <button type="button" class="primary" onClick={() => void s.decide(one, "approve")}>
          {w.approve}
        </button>
        <button type="button" onClick={() => void s.decide(one, "deny")}>
          {w.deny}
        </button>
      </div>
    </section>
  );
}
