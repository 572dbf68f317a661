// The words of what is loaded only when it is opened: the drawer and the terminal. See words.ts.

const plural = (count: number, one: string, many: string) => `${count} ${count === 1 ? one : many}`;

export const english = {
  evidence: {
    title: "What is known of this message",
    ends: (what: string) => `What ends the wait: ${what}`,
    calls: "Tool calls",
    used: "Used",
    tokens: (input: number, output: number) => `${input.toLocaleString()} tokens in, ${output.toLocaleString()} out`,
    cached: (count: number) => `${count.toLocaleString()} from the cache`,
    cost: (cost: number) => `cost ${cost.toLocaleString(undefined, { maximumSignificantDigits: 3 })}`,
    noPrice: "no price is set for this model",
    modelCalls: (count: number) => plural(count, "model call", "model calls"),
    attempt: (number: number) => `attempt ${number}`,
    saved: (rounds: number, results: number) => `Not paid again: ${plural(rounds, "round", "rounds")}, ${plural(results, "tool result", "tool results")}`,
    chain: "What happened, in order",
  },
  feed: {
    title: "What the model sees",
    intro: (provider: string) => `As ${provider} would be sent it now, beside what you see. The chat keeps everything.`,
    same: "Nothing differs from what you see.",
    differences: (count: number) => plural(count, "difference", "differences"),
    youSee: "You see",
    modelSees: "The model sees",
    notSent: "not sent",
    added: "added",
    alike: "the same",
  },
  keysTitle: "Keys",
  keyList: [
    ["Enter", "send"],
    ["Shift+Enter", "new line"],
    ["Ctrl+Enter", "send to the running turn (steer)"],
    ["Esc", "stop the running turn; close what is open"],
    ["Ctrl+K", "search conversations"],
    ["Alt+N", "new conversation"],
    ["Alt+↑ / Alt+↓", "previous, next conversation; on a waiting message: move it"],
    ["Page Up / Page Down", "previous, next message"],
    ["Ctrl+End", "newest message, and the composer"],
    ["?", "this sheet"],
  ] as [string, string][],
  term: {
    title: "Terminal",
    none: "The agent's program has not been started yet. It starts with the first message.",
    ended: "The program has ended. The next message starts it again and goes on with its session.",
    state: { idle: "idle", busy: "busy", blocked: "asks something", starting: "starting", ended: "ended", unknown: "not known", none: "not started" } as Record<string, string>,
    takeOver: "Take over the keyboard",
    giveBack: "Give the keyboard back",
    takenBy: (who: string) => `${who} has the keyboard; what waits in the queue is held meanwhile.`,
    looking: "You are looking. What you type goes nowhere until you take over.",
    interrupt: "Interrupt",
    restart: "Restart",
    screen: "The terminal's screen",
  },
};

export type Words = typeof english;

export const w: Words = english;
