// Parts of the page that are loaded when they are first needed: asked for again until they have come, because the
// server may be gone just then. Meanwhile their place is empty, and what stands around it stays.

import type { ComponentType } from "preact";
import { lazy } from "preact/compat";

const AGAIN_MS = 1000;

export function later<P>(load: () => Promise<{ default: ComponentType<P> }>) {
  return lazy(() => untilCome(load));
}

async function untilCome<M>(load: () => Promise<M>): Promise<M> {
  let from = load;
  for (let failures = 0; ; failures++) {
    try {
      return await from();
    } catch (error) {
      // A browser may remember that an address failed: the next try asks under another one.
      const address = /https?:\/\/[^\s?]+\.js/.exec(String(error))?.[0];
      from = address ? () => import(/* @vite-ignore */ `${address}?again=${failures}`) as Promise<M> : load;
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
}
