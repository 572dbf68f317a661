// The terminal of a retained agent beside the chat. It shows; keys go nowhere until a person takes the keyboard over,
// which has a right of its own and holds the queue. Loaded, with xterm, when it is first opened.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, get, post, Problem } from "./api";
import { act, say } from "./state";
import { w } from "./words-beside";

type View = { state: string; cli: string; taken_over_by: string | null; why: string | null; exit: string | null; native_session: string | null; blocked_by: { sentence?: string } | null };

const bytesOf = (base64: string) => Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
const base64Of = (text: string) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

const LOOK_MS = 3000;
const LETTER_PX = 13;
/** Nobody reads smaller letters than these: a screen that is wider then is moved sideways. */
const LETTER_MIN_PX = 9;
/** At the screen's sides: what its place and its bar take. */
const BESIDE_PX = 32;

export default function Terminal({ conversation }: { conversation: string }) {
  const at = `/v1/conversations/${conversation}/terminal`;
  const place = useRef<HTMLDivElement>(null);
  const [view, set] = useState<View | null>(null);
  const [mine, setMine] = useState(false);
  const typing = useRef(false);
  typing.current = mine;

  useEffect(() => {
    const terminal = new Xterm({ disableStdin: false, fontSize: LETTER_PX, scrollback: 5000, convertEol: false, screenReaderMode: true });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    const ground = place.current!;
    terminal.open(ground);
    // A screen has the size that its program draws for, in letters that fit; lines of no size are broken at the edge.
    let columns = 0;
    const suit = () => {
      if (!columns) {
        fit.fit();
        return;
      }
      const drawn = ground.querySelector<HTMLElement>(".xterm-screen")!.clientWidth;
      const letter = ((terminal.options.fontSize ?? LETTER_PX) * (ground.clientWidth - BESIDE_PX)) / Math.max(1, drawn);
      terminal.options.fontSize = Math.max(LETTER_MIN_PX, Math.min(LETTER_PX, Math.floor(letter * 2) / 2));
    };
    suit();
    const seen = new ResizeObserver(suit);
    seen.observe(ground);
    // Keys are sent one request at a time and in order; what is typed meanwhile goes with the next one.
    let waiting = "";
    let busy = false;
    const pump = async () => {
      if (busy) return;
      busy = true;
      while (waiting) {
        const data = waiting;
        waiting = "";
        try {
          await post(`${at}/keys`, { data: base64Of(data) });
        } catch (error) {
          say(error);
          setMine(false);
          waiting = "";
        }
      }
      busy = false;
    };
    terminal.onData((data) => {
      if (!typing.current) return;
      waiting += data;
      void pump();
    });

    let source: EventSource | null = null;
    let timer = 0;
    let ended = false;
    const look = async () => {
      try {
        const now = await get<View>(at);
        set(now);
        if (!source && now.state !== "none" && now.state !== "ended") listen();
      } catch (error) {
        if (!(error instanceof Problem) || !error.passing) {
          say(error);
          return;
        }
      }
      if (!ended) timer = window.setTimeout(() => void look(), LOOK_MS);
    };
    const listen = () => {
      source = new EventSource(`${at}/stream`);
      source.addEventListener("delta", (message) => {
        const frame = JSON.parse((message as MessageEvent<string>).data) as { kind: string; data: string; columns?: number; rows?: number };
        if (frame.kind === "terminal_seed" || frame.kind === "terminal_dropped") terminal.reset();
        if (frame.kind === "terminal_seed") {
          columns = frame.columns ?? 0;
          if (columns) terminal.resize(columns, frame.rows!);
          suit();
        }
        if (frame.kind === "terminal_ended") {
          source?.close();
          source = null;
          set((now) => (now ? { ...now, state: "ended" } : now));
          setMine(false);
          return;
        }
        terminal.write(bytesOf(frame.data));
      });
      source.onerror = () => {
        source?.close();
        source = null;
      };
    };
    void look();
    return () => {
      ended = true;
      window.clearTimeout(timer);
      source?.close();
      seen.disconnect();
      terminal.dispose();
    };
  }, [conversation]);

  const changed = (work: () => Promise<View>, now_mine: boolean) =>
    act(async () => {
      set(await work());
      setMine(now_mine);
    });
  const state = view?.state ?? "";
  const alive = state !== "" && state !== "none" && state !== "ended";
  return (
    <>
      <h2>
        {w.term.title} {view && <span class="quiet">{`${view.cli} · ${w.term.state[state] ?? state}`}</span>}
      </h2>
      {view?.why && <p class="quiet">{view.why}</p>}
      {view?.blocked_by?.sentence && <p class="banner wait">{view.blocked_by.sentence}</p>}
      {state === "none" && <p>{w.term.none}</p>}
      {state === "ended" && <p>{w.term.ended}</p>}
      <div class="actions">
        {mine ? (
          <button type="button" class="stop" onClick={() => void changed(() => call<View>("DELETE", `${at}/take-over`), false)}>
            {w.term.giveBack}
          </button>
        ) : (
          <button type="button" disabled={!alive} onClick={() => void changed(() => post<View>(`${at}/take-over`), true)}>
            {w.term.takeOver}
          </button>
        )}
        <button type="button" disabled={!alive} onClick={() => void changed(() => post<View>(`${at}/interrupt`), mine)}>
          {w.term.interrupt}
        </button>
        <button type="button" disabled={!alive} onClick={() => void changed(() => post<View>(`${at}/restart`), false)}>
          {w.term.restart}
        </button>
      </div>
      <p class="quiet" role="status">
        {view?.taken_over_by ? w.term.takenBy(view.taken_over_by) : w.term.looking}
      </p>
      <div ref={place} class="xterm-place" role="region" aria-label={w.term.screen} />
    </>
  );
}
