import { afterEach, describe, expect, it, vi } from "vitest";
import { hashOf } from "../src/submit/upload";

const ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; // FIPS 180-2

describe("a file's hash", () => {
  afterEach(() => vi.unstubAllGlobals());

  it("is the browser's own where it has one", async () => {
    expect(await hashOf(new Blob(["abc"]), () => {}, AbortSignal.timeout(5000))).toBe(ABC);
  });

  it("is the same on a plain http address, where it has none", async () => {
    vi.stubGlobal("crypto", {});
    const shares: number[] = [];
    expect(await hashOf(new Blob(["abc"]), (share) => shares.push(share), AbortSignal.timeout(5000))).toBe(ABC);
    expect(shares.at(-1)).toBe(1);
  });

  it("is given up when it is not wanted any more", async () => {
    vi.stubGlobal("crypto", {});
    await expect(hashOf(new Blob(["abc"]), () => {}, AbortSignal.abort())).rejects.toThrow();
  });
});
