/** Files into the master's store, each under the SHA-256 of its bytes: sending one twice changes nothing. */
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex } from "@noble/hashes/utils.js";
import { request } from "../api/client";

const CHUNK_BYTES = 4_000_000;
/** Largest file that the browser hashes itself, which is quicker but needs the whole file at once. */
const WHOLE_UP_TO_BYTES = 64_000_000;

export async function upload(file: Blob, onHashed: (share: number) => void, signal: AbortSignal): Promise<string> {
  const hash = await hashOf(file, onHashed, signal);
  const headers = { "Content-Type": "application/octet-stream" };
  await request("PUT", `/files/${hash}`, { body: file, headers, signal });
  return hash;
}

/** crypto.subtle is there on https and on the loopback address only; elsewhere a library does it. */
export async function hashOf(file: Blob, onHashed: (share: number) => void, signal: AbortSignal): Promise<string> {
  if (globalThis.crypto?.subtle && file.size <= WHOLE_UP_TO_BYTES) {
    return bytesToHex(new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer())));
  }
  const hash = sha256.create();
  for (let at = 0; at < file.size; at += CHUNK_BYTES) {
    signal.throwIfAborted();
    hash.update(new Uint8Array(await file.slice(at, at + CHUNK_BYTES).arrayBuffer()));
    onHashed(Math.min(1, (at + CHUNK_BYTES) / file.size));
  }
  return bytesToHex(hash.digest());
}
