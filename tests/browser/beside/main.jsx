// A thread of @assistant-ui/react, as its documentation builds one, over the history that `history.json` holds.

import { AssistantRuntimeProvider, MessagePrimitive, ThreadPrimitive, useExternalStoreRuntime } from "@assistant-ui/react";
import { MarkdownTextPrimitive } from "@assistant-ui/react-markdown";
import { createElement as h } from "react";
import { createRoot } from "react-dom/client";

const convert = (one) => ({ id: one.id, role: one.role, content: [{ type: "text", text: one.text }] });
const Text = () => h(MarkdownTextPrimitive);
const Message = () => h("article", null, h(MessagePrimitive.Root, null, h(MessagePrimitive.Content, { components: { Text } })));

function Thread({ messages }) {
  const runtime = useExternalStoreRuntime({ messages, convertMessage: convert, isRunning: false, onNew: async () => {} });
  return h(
    AssistantRuntimeProvider,
    { runtime },
    h(
      ThreadPrimitive.Root,
      { style: { height: "100%" } },
      h(ThreadPrimitive.Viewport, { className: "list" }, h(ThreadPrimitive.Messages, { components: { UserMessage: Message, AssistantMessage: Message } })),
    ),
  );
}

const messages = await (await fetch("./history.json")).json();
createRoot(document.getElementById("app")).render(h(Thread, { messages }));
