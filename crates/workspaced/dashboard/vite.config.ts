import { defineConfig } from "vite";

// `WORKSPACED_URL` is the service that `npm run dev` sends requests to.
const service = process.env.WORKSPACED_URL ?? "http://127.0.0.1:8080";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: Object.fromEntries(["/v1", "/healthz", "/readyz", "/openapi.json", "/sign-in", "/sign-out"].map((path) => [path, service])) },
  build: {
    target: "es2022",
    // The Content-Security-Policy permits no inline script.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    // The dashboard, and the pages of the API, which need no token.
    rolldownOptions: { input: ["index.html", "docs.html"] },
  },
});
