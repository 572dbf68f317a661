// The HTTP interface as the page uses it. Every answer that is no success becomes a Problem with a sentence.

import { signal } from "@preact/signals";
import { w } from "./words";

export type Receipt = { state: "queued" | "accepted" | "confirmed" | "uncertain" | "failed"; evidence: unknown };

export type Turn = {
  turn_id: string;
  conversation_id: string;
  state: "queued" | "running" | "parked" | "settled" | "failed" | "cancelled";
  reason: string | null;
  position: number | null;
  receipt: Receipt;
  attempts: number;
  mode: string;
  created_at: string | null;
  failure: { kind: string; retryable: boolean; sentence: string } | null;
  needs: Record<string, unknown> | null;
  parent: string | null;
  resend_of: string | null;
  started_at: string | null;
  ended_at: string | null;
  text: string | null;
  key: string | null;
  parts: { type: string; text?: string; attachment_id?: string; name?: string }[] | null;
};

export type Step = {
  kind: "thinking" | "text" | "tool" | "other";
  text?: string;
  name?: string;
  arguments?: unknown;
  result?: string;
  attachments?: FilePart[];
  is_error?: boolean;
  synthetic?: boolean;
  disposition?: string;
  effect?: string;
  seconds?: number;
  cut?: boolean;
};

export type FilePart = { attachment_id: string; name?: string; media_type?: string; size_bytes?: number; transcript?: string | null };

export type Agent = { name: string; runner: string; provider: string; model: string };

export type Row = {
  key: string;
  kind: "user" | "answer" | "progress" | "notice" | "aside" | "queued" | "live" | "sending" | "compacted" | "resumed" | "session";
  seq?: number;
  turn_id?: string;
  text?: string;
  attachments?: FilePart[];
  steps?: Step[];
  standing?: string;
  error?: string;
  provenance?: string;
  at?: string;
  turn?: Turn;
  /** Of a resumed row: what was kept; of a session row: which session, and why. */
  facts?: Record<string, unknown>;
  /** Of a live row: the round that is being written. */
  round?: number;
  /** Of a row that was sent and is not among the server's: the conversation (null: the one being made), how, what went wrong. */
  into?: string | null;
  how?: "queue" | "steer" | "interrupt";
  problem?: string;
  again?: number;
};

export type Timeline = { rows: Row[]; next: number | null; as_of_seq: number; epoch: string };

export type Conversation = {
  conversation_id: string;
  title: string;
  agent: string;
  archived: boolean;
  active_at: string | null;
  last_seq: number;
  state: string;
};

export type Snapshot = {
  conversation_id: string;
  title: string;
  agent: string;
  as_of_seq: number;
  epoch: string;
  lane: { phase: string; paused: string | null; queue_depth: number };
  queue: Turn[];
  running: { turn: Turn; text: string; thinking: string; round: number } | null;
  parked: Turn[];
};

export type Approval = {
  approval_id: string;
  kind: string;
  turn_id: string;
  conversation_id: string;
  title: string;
  name?: string;
  arguments?: unknown;
  expires_at?: string;
  sentence?: string;
  server?: string;
  connect?: string;
  /** Of a sign-in: why it is asked, and which calls wait for it. */
  why?: string;
  calls?: { name: string }[];
  choices?: string[];
  offers?: string[];
};

export type Accepted = { turn_id: string; outcome: "started" | "queued" | "steered"; position: number | null };

/** How far the server's clock is ahead of this device's, in milliseconds; for countdowns, never for order. */
export const clockOffset = signal(0);

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    sentence: string,
    readonly retryable: boolean,
  ) {
    super(sentence);
  }

  /** Nobody can tell from this answer whether the request was carried out. */
  get unknown(): boolean {
    return this.status === 0 || [408, 425, 502, 503, 504].includes(this.status) || this.code === "key_in_flight";
  }

  /** It may well be gone at the next try. */
  get passing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export async function call<T>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}, within_ms = 30_000): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers: body === undefined ? headers : { "content-type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(within_ms),
    });
  } catch {
    throw new Problem(0, "offline", w.ask.offline, true);
  }
  const at = Date.parse(answer.headers.get("date") ?? "");
  if (at && Math.abs(at - Date.now() - clockOffset.value) > 2000) clockOffset.value = at - Date.now();
  if (answer.ok) {
    try {
      return (answer.status === 204 ? undefined : await answer.json()) as T;
    } catch {
      throw new Problem(0, "broken", w.ask.broken, true);
    }
  }
  const problem = (await answer.json().catch(() => ({}))) as Record<string, unknown>;
  throw new Problem(
    answer.status,
    String(problem.code ?? "error"),
    String(problem.detail ?? problem.title ?? w.ask.status(answer.status)),
    Boolean(problem.retryable),
  );
}

export const get = <T,>(path: string) => call<T>("GET", path);
export const post = <T,>(path: string, body: unknown = {}, headers?: Record<string, string>, within_ms?: number) =>
  call<T>("POST", path, body, headers, within_ms);

export async function upload(file: File): Promise<FilePart> {
  const answer = await fetch(`/v1/attachments?name=${encodeURIComponent(file.name)}`, {
    method: "POST",
    headers: { "content-type": "application/octet-stream" },
    body: file,
  });
  if (!answer.ok) {
    const problem = (await answer.json().catch(() => ({}))) as Record<string, unknown>;
    throw new Problem(answer.status, "upload", String(problem.detail ?? w.ask.upload), false);
  }
  return (await answer.json()) as FilePart;
}
