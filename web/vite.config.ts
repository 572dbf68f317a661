import { defineConfig } from "vite";

// Preact stands in for React where a library (virtua) asks for it; JSX is compiled by Vite itself.
export default defineConfig({
  base: "/static/",
  logLevel: "warn",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  resolve: {
    alias: {
      "react/jsx-runtime": "preact/jsx-runtime",
      "react-dom": "preact/compat",
      react: "preact/compat",
    },
  },
  build: {
    outDir: "../src/turnkeeper/server/static",
    emptyOutDir: true,
    target: "es2022",
    assetsDir: "assets",
    modulePreload: { polyfill: false },
    rolldownOptions: {
      // virtua says "use client", which means nothing here; every other warning is to be read.
      onLog: (level, log, show) => log.code === "MODULE_LEVEL_DIRECTIVE" || show(level, log),
    },
  },
});
