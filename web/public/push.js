// Wakes when the server tells this browser something by web push: shows it, and opens its conversation. The words to
// show are in this file's own address, in the language of the page that registered it.
const words = JSON.parse(new URL(self.location.href).searchParams.get("words") || "{}");

self.addEventListener("push", (event) => {
  const told = event.data ? event.data.json() : {};
  event.waitUntil(
    (async () => {
      const open = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
      // Who looks at the page sees it there.
      if (open.some((one) => one.visibilityState === "visible")) return;
      await self.registration.showNotification(words[told.what] || words.title || "", {
        icon: "/static/icon.svg",
        tag: `push-${told.conversation_id}`,
        data: { address: `/#${told.conversation_id}` },
      });
    })(),
  );
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(
    (async () => {
      const wanted = new URL(event.notification.data.address, self.location.origin).href;
      const [open] = await self.clients.matchAll({ type: "window" });
      if (!open) return self.clients.openWindow(wanted);
      await open.focus();
      return open.navigate(wanted);
    })(),
  );
});

// Only a page that this worker answers for can be taken to another conversation. It answers for no request.
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
