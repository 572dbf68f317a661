// What the page's source itself must keep: no message waits for another, and every word can be said in another language.

import ts from "typescript";
import { expect, test } from "vitest";

const texts = import.meta.glob("../src/*.{ts,tsx}", { query: "?raw", import: "default", eager: true }) as Record<string, string>;
const files = Object.entries(texts).map(([path, text]) => parsed(path.replace("../src/", ""), text));

function parsed(name: string, text: string): ts.SourceFile {
  return ts.createSourceFile(name, text, ts.ScriptTarget.ES2022, true, name.endsWith("x") ? ts.ScriptKind.TSX : ts.ScriptKind.TS);
}

function* inside(node: ts.Node): Generator<ts.Node> {
  for (const child of node.getChildren()) {
    yield child;
    yield* inside(child);
  }
}

const place = (node: ts.Node) => {
  const file = node.getSourceFile();
  return `${file.fileName}:${file.getLineAndCharacterOfPosition(node.getStart()).line + 1}: ${node.getText().slice(0, 60)}`;
};

// --- sending

/** What an `await` waits for: the name of the function that is called, or the text. */
const awaited = (node: ts.AwaitExpression) => (ts.isCallExpression(node.expression) ? node.expression.expression.getText() : node.expression.getText());

/** Ways in which a send of `source` could wait for another send. */
function chains(source: ts.SourceFile): string[] {
  const found: string[] = [];
  for (const node of inside(source)) {
    if (ts.isFunctionDeclaration(node) && ["send", "resend", "resendUnheard", "deliver"].includes(node.name?.text ?? "")) {
      if (node.modifiers?.some((one) => one.kind === ts.SyntaxKind.AsyncKeyword)) found.push(`it is async: ${node.name!.text}`);
      for (const part of inside(node)) {
        if (ts.isAwaitExpression(part)) found.push(`it waits: ${place(part)}`);
        if (ts.isPropertyAccessExpression(part) && ["then", "finally", "catch"].includes(part.name.text)) found.push(`a chain: ${place(part)}`);
      }
    }
    // A message waits for its own conversation to be there, and for its own answer.
    if (ts.isFunctionDeclaration(node) && node.name?.text === "attempt") {
      for (const part of inside(node)) if (ts.isAwaitExpression(part) && !["made", "post"].includes(awaited(part))) found.push(`it waits: ${place(part)}`);
    }
    if (ts.isCallExpression(node) && ["attempt", "deliver", "send", "s.send"].includes(node.expression.getText())) {
      if (ts.isAwaitExpression(node.parent) || ts.isPropertyAccessExpression(node.parent) || ts.isReturnStatement(node.parent)) found.push(`a send is waited for: ${place(node.parent)}`);
    }
    // A tail that sends could be hung onto: the one promise that is shared is that of the conversation being made.
    if (!ts.isVariableDeclaration(node)) continue;
    const kept = node.parent.parent.parent === source && /Promise/.test(node.type?.getText() ?? node.initializer?.getText() ?? "");
    if (source.fileName === "outbox.ts" && kept && node.name.getText() !== "making") found.push(`a promise is kept: ${place(node)}`);
  }
  return found;
}

test("no message waits for another one: no chain stands around sending", () => {
  expect(files.map((file) => file.fileName)).toContain("outbox.ts");
  expect(files.flatMap(chains)).toEqual([]);
});

test("one place sends messages", () => {
  const sending = files.flatMap((file) => [...inside(file)].filter((node) => ts.isTemplateExpression(node) && /\/turns`$/.test(node.getText())).map(() => file.fileName));
  expect(sending).toEqual(["outbox.ts"]);
});

test.each([
  ["a tail of promises", (text: string) => text.replace("let making", "let tail: Promise<void> = Promise.resolve();\nlet making").replace("void attempt(one, 0);", "tail = tail.then(() => attempt(one, 0));")],
  ["an awaited send", (text: string) => text.replace("function deliver(one: Sent): void {", "async function deliver(one: Sent) {").replace("void attempt(one, 0);", "await attempt(one, 0);")],
  ["a wait for all that is being sent", (text: string) => text.replace("one.into ??= await made();", "one.into ??= await made();\n    await Promise.all(others);")],
])("the check sees %s", (_name, plant) => {
  const text = texts["../src/outbox.ts"]!;
  expect(plant(text)).not.toBe(text);
  expect(chains(parsed("outbox.ts", plant(text)))).not.toEqual([]);
});

// --- words

const SHOWN = ["title", "aria-label", "placeholder", "alt", "label", "summary"];
const LETTERS = /\p{L}{2,}/u;

/** Words of `source` that a person would see or hear and that stand in no file of words. */
function literals(source: ts.SourceFile): string[] {
  const found: string[] = [];
  const words = (node: ts.Node): string => {
    if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return node.text;
    if (ts.isTemplateExpression(node)) return [node.head.text, ...node.templateSpans.map((span) => span.literal.text)].join(" ");
    return "";
  };
  const shown = (node: ts.Expression): ts.Node[] => {
    if (ts.isConditionalExpression(node)) return [...shown(node.whenTrue), ...shown(node.whenFalse)];
    if (ts.isBinaryExpression(node)) {
      const joined = ["||", "??", "+"].includes(node.operatorToken.getText()) ? shown(node.left) : [];
      return [...joined, ...(joined.length || node.operatorToken.getText() === "&&" ? shown(node.right) : [])];
    }
    if (ts.isParenthesizedExpression(node)) return shown(node.expression);
    return [node];
  };
  const check = (node: ts.Node) => {
    if (LETTERS.test(words(node))) found.push(place(node));
  };
  for (const node of inside(source)) {
    if (ts.isJsxText(node) && LETTERS.test(node.text)) found.push(place(node));
    if (ts.isJsxAttribute(node) && SHOWN.includes(node.name.getText()) && node.initializer) {
      if (ts.isJsxExpression(node.initializer)) shown(node.initializer.expression!).forEach(check);
      else check(node.initializer);
    }
    if (ts.isJsxExpression(node) && node.expression && !ts.isJsxAttribute(node.parent)) shown(node.expression).forEach(check);
    if (ts.isNewExpression(node) && /Error$|^Problem$/.test(node.expression.getText())) {
      for (const one of node.arguments ?? []) if (/ /.test(words(one))) check(one);
    }
    if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsToken && /(textContent|\.title|spoken\.value|problem\.value|trouble\.value)$/.test(node.left.getText())) shown(node.right).forEach(check);
    if (ts.isCallExpression(node) && /^(window\.)?(prompt|confirm|alert)$/.test(node.expression.getText())) node.arguments.forEach(check);
  }
  return found;
}

test("every word that a person sees stands in the files of words", () => {
  expect(files.filter((file) => !file.fileName.startsWith("words")).flatMap(literals)).toEqual([]);
});

test.each([
  ["<p>Hello there</p>"],
  ['<button title="Press me" />'],
  ['<p>{open && "It is open"}</p>'],
  ['<p>{open ? "Close it" : w.x}</p>'],
  ["<p>{`So many: ${n}`}</p>"],
  ['<button aria-label={busy ? "Wait" : w.x} />'],
])("the check sees %s", (planted) => {
  expect(literals(parsed("planted.tsx", `export const A = () => ${planted};`))).toHaveLength(1);
});
