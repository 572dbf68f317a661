// Markdown of a model or a person, made safe: no scripts, no remote images, links that leave say so.

import DOMPurify from "dompurify";
import { marked } from "marked";
import { w } from "./words";

const MARKS: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

marked.use({
  gfm: true,
  breaks: true,
  renderer: {
    // Tags that a text contains are shown as they are written: they are words, not markup of ours.
    html: ({ text }) => text.replace(/[&<>"]/g, (mark) => MARKS[mark] ?? mark),
  },
});

const purifier = DOMPurify(window);
purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  if (node.tagName === "IMG") {
    const source = node.getAttribute("src") ?? "";
    if (!source.startsWith("/v1/")) {
      const words = document.createElement("span");
      words.className = "blocked-image";
      words.textContent = w.pictureBlocked(node.getAttribute("alt") || source.slice(0, 60));
      node.replaceWith(words);
    }
  }
});

const LONG = 400_000;

/** HTML of `text`; very long texts are shown as they are. */
export function html(text: string): string {
  if (text.length > LONG) return "";
  return purifier.sanitize(marked.parse(text, { async: false }), {
    FORBID_TAGS: ["style", "form", "input", "button", "iframe", "video", "audio", "svg", "math"],
    FORBID_ATTR: ["style", "id", "class", "name"],
  });
}
