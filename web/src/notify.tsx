// Asking to be told when an answer is done or a turn needs a person: by web push, which also reaches a browser whose
// page is closed, and where there is no push service by the open page itself.

import { useEffect, useState } from "preact/hooks";
import { get, post } from "./api";
import * as s from "./state";
import { PUSHED } from "./timeline";
import { w } from "./words-beside";

type Way = "unknown" | "none" | "page" | "push" | "denied";

const worker = () => `/static/push.js?words=${encodeURIComponent(JSON.stringify(w.notify.told))}`;

async function subscription(): Promise<PushSubscription | null> {
  if (!("serviceWorker" in navigator) || !("PushManager" in window)) return null;
  const known = await navigator.serviceWorker.getRegistration("/");
  return (await known?.pushManager.getSubscription()) ?? null;
}

async function way(): Promise<Way> {
  if (!("Notification" in window) || Notification.permission === "denied") return "denied";
  if (Notification.permission === "default") return "none";
  return localStorage.getItem(PUSHED) && (await subscription()) ? "push" : "page";
}

/** Ask the browser for an address at which the server can tell it things, and give that to the server. */
async function subscribe(): Promise<void> {
  if (!("serviceWorker" in navigator) || !("PushManager" in window)) return;
  const registration = await navigator.serviceWorker.register(worker(), { scope: "/" });
  await ready(registration);
  const { public_key } = await get<{ public_key: string }>("/v1/push");
  let made: PushSubscription;
  try {
    made = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: public_key });
  } catch {
    throw new Error(w.notify.noService);
  }
  await post("/v1/push", made.toJSON());
  localStorage.setItem(PUSHED, "yes");
}

/** A push needs a worker that is there. */
function ready(registration: ServiceWorkerRegistration): Promise<void> {
  const coming = registration.installing ?? registration.waiting;
  if (registration.active || !coming) return Promise.resolve();
  return new Promise((done) => coming.addEventListener("statechange", () => coming.state === "activated" && done()));
}

async function unsubscribe(): Promise<void> {
  localStorage.removeItem(PUSHED);
  const known = await subscription();
  if (!known) return;
  await post("/v1/push/remove", { endpoint: known.endpoint });
  await known.unsubscribe();
}

export function Notify() {
  const [now, set] = useState<Way>("unknown");
  const say = w.notify;
  const look = async () => set(await way());
  useEffect(() => void look(), []);
  const act = async (work: () => Promise<void>) => {
    await s.act(work);
    await look();
  };
  const begin = async () => {
    if ((await Notification.requestPermission()) === "granted") await subscribe();
  };
  return (
    <section>
      <h3>{say.title}</h3>
      {now !== "unknown" && <p class="quiet">{say[now]}</p>}
      {now === "none" && (
        <button type="button" onClick={() => void act(begin)}>
          {say.ask}
        </button>
      )}
      {now === "page" && (
        <button type="button" onClick={() => void act(subscribe)}>
          {say.askPush}
        </button>
      )}
      {now === "push" && (
        <button type="button" onClick={() => void act(unsubscribe)}>
          {say.stop}
        </button>
      )}
    </section>
  );
}
