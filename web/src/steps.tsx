// What a turn did on the way, opened: thinking, words beside tool calls, and each call with its arguments, its
// result, how long it took and what it may have done. Loaded when somebody opens the first one.

import type { Step } from "./api";
import Files from "./files";
import { w } from "./words-beside";
import "./steps.css";

/** Text as it is; it scrolls in its place, by keys too. */
function Plain({ text, bad }: { text: string; bad?: boolean }) {
  return (
    <pre class={`plain ${bad ? "bad" : ""}`} tabIndex={0} dir="auto">
      {text}
    </pre>
  );
}

function state(step: Step): string {
  const say = w.steps;
  if (step.result === undefined) return say.running;
  if (step.disposition === "unknown") return say.unknown;
  if (step.disposition === "refused") return say.refused;
  return step.synthetic ? say.noResult : step.is_error ? say.failed : say.done;
}

function Tool({ step, conversation }: { step: Step; conversation: string }) {
  return (
    <details>
      <summary>
        <code>{step.name}</code> <span class={step.is_error ? "bad" : "quiet"}>{state(step)}</span>
        {step.seconds !== undefined && <span class="quiet"> · {w.steps.seconds(step.seconds)}</span>}
        {step.effect && (
          <span class={`effect ${step.effect}`} title={w.steps.effectTitle}>
            {w.steps.effects[step.effect] ?? step.effect}
          </span>
        )}
      </summary>
      <Plain text={JSON.stringify(step.arguments ?? {}, null, 2)} />
      {step.result !== undefined && <Plain text={step.result} bad={step.is_error} />}
      {step.cut && <p class="quiet">{w.steps.cut}</p>}
      <Files files={step.attachments ?? []} conversation={conversation} />
    </details>
  );
}

export default function StepList({ steps, conversation }: { steps: Step[]; conversation: string }) {
  return (
    <ol>
      {steps.map((step, index) => (
        <li key={index} class={`step ${step.kind}`}>
          {step.kind === "tool" ? (
            <Tool step={step} conversation={conversation} />
          ) : (
            <p class={step.kind === "thinking" ? "quiet" : ""} dir="auto">
              {step.text}
            </p>
          )}
        </li>
      ))}
    </ol>
  );
}
