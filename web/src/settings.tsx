// What a person has set for themselves: so far, where they are signed in. Loaded when first opened.

import { useEffect, useState } from "preact/hooks";
import { call, get, post } from "./api";
import { Notify } from "./notify";
import { useLoaded } from "./panel";
import * as s from "./state";
import { w } from "./words";
import { w as say } from "./words-beside";

type Connection = { server: string; url: string; state: string; since: string | null; scope: string | null; waiting: number; connect: string };

const LOOK_MS = 3000;

/** A number that grows every few seconds while the page is seen: a sign-in ends in another window. */
function useLook(): number {
  const [look, set] = useState(0);
  useEffect(() => {
    const more = () => document.visibilityState === "visible" && set((now) => now + 1);
    const timer = window.setInterval(more, LOOK_MS);
    document.addEventListener("visibilitychange", more);
    return () => {
      window.clearInterval(timer);
      document.removeEventListener("visibilitychange", more);
    };
  }, []);
  return look;
}

export default function Settings() {
  const look = useLook();
  const [done, set] = useState(0);
  const found = useLoaded(() => get<{ connections: Connection[] }>("/v1/connections"), `${look} ${done}`);
  const act = async (work: () => Promise<unknown>) => {
    await s.act(work);
    set((now) => now + 1);
  };
  return (
    <>
      <h2>{say.settings.title}</h2>
      <Notify />
      <h3>{say.settings.connections}</h3>
      {found.error && <p class="bad">{found.error}</p>}
      {!found.value && !found.error && <p class="quiet">{w.loading}</p>}
      {found.value && <p class="quiet">{found.value.connections.length ? say.settings.intro : say.settings.none}</p>}
      <ul class="connections">
        {found.value?.connections.map((one) => (
          <li key={one.server}>
            <p>
              <strong>{one.server}</strong> <span class={one.state === "connected" ? "good" : one.state === "revoked" ? "bad" : "quiet"}>{say.settings.state[one.state] ?? one.state}</span>
              {one.state === "connected" && one.since && <span class="quiet"> {say.settings.since(new Date(one.since).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }))}</span>}
            </p>
            <p class="quiet address">{one.url}</p>
            {one.scope && <p class="quiet">{say.settings.scope(one.scope)}</p>}
            {one.waiting > 0 && <p class="waits">{say.settings.waiting(one.waiting)}</p>}
            <div class="actions">
              {one.state !== "connected" && (
                <a class="primary button" href={one.connect} target="_blank" rel="noopener">
                  {one.state === "revoked" ? say.settings.again(one.server) : say.connect(one.server)}
                </a>
              )}
              {one.waiting > 0 && (
                <button type="button" onClick={() => void act(() => post(`/v1/connections/${one.server}/refuse`))}>
                  {say.settings.refuse(one.server)}
                </button>
              )}
              {one.state !== "not_connected" && (
                <button type="button" onClick={() => void act(() => call("DELETE", `/v1/connections/${one.server}`))}>
                  {say.settings.signOut(one.server)}
                </button>
              )}
            </div>
          </li>
        ))}
      </ul>
    </>
  );
}
