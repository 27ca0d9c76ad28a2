/// <reference types="vitest/config" />
import { defineConfig } from "vite";

const MASTER = process.env.LOOPLINE_MASTER ?? "http://127.0.0.1:7461";

export default defineConfig({
  build: {
    outDir: "../master/loopline_master/dashboard/assets",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the policy lets no data: script or style in
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    license: { fileName: "licenses.txt" }, // of what is built in
  },
  // While developing: the page from here, all else from a master. It takes the page for its own.
  server: {
    proxy: Object.fromEntries(
      ["/api", "/openapi.json"].map((path) => [
        path,
        { target: MASTER, changeOrigin: true, headers: { Origin: MASTER } },
      ]),
    ),
  },
  test: { environment: "node" },
});
