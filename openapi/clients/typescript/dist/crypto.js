// The Web Crypto of browsers and of Node.js, which has no global one before version 19.
const module = "node:crypto";
export const crypto = globalThis.crypto ?? (await import(module)).webcrypto;
