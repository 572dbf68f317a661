// Asking to be told when an answer is done or a turn needs a person, while the page is not looked at.

import { useState } from "preact/hooks";
import { w } from "./words-beside";

export function Notify() {
  const [permission, set] = useState("Notification" in window ? Notification.permission : "denied");
  const say = w.notify;
  return (
    <section>
      <h3>{say.title}</h3>
      <p class="quiet">{permission === "granted" ? say.on : permission === "denied" ? say.denied : say.intro}</p>
      {permission === "default" && (
        <button type="button" onClick={() => void Notification.requestPermission().then(set)}>
          {say.ask}
        </button>
      )}
    </section>
  );
}
