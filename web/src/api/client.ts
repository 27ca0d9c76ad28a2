/** Requests to the master's REST API, and their errors. */
import { inSeconds } from "./times";

export const API = "/api/v1";

export interface FieldError {
  at: string;
  message: string;
}

/** Why a request failed: the master's own words (problem+json), or that it did not answer. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly hint = "",
    readonly errors: FieldError[] = [],
  ) {
    super(detail);
  }

  /** No answer: the master or the network is down. */
  get isAway(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export interface Options {
  query?: Query | undefined;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

/** Within which an answer has to begin. */
const ANSWER_MS = 20_000;
const UPLOAD_MS = 600_000;
const AGAIN = "ask again once it is back";

/** Says whether the master is known to be away: then nothing is asked of it that would change anything. */
let isAway = (): boolean => false;

export function askOnlyUnless(known: () => boolean): void {
  isAway = known;
}

/** The id of the last change that was heard of: what is read must not be older (the master keeps answers for others). */
let seen = "";

export function heard(id: string): void {
  seen = id;
}

type Listener = (problem: Problem | null) => void;
const listeners = new Set<Listener>();

/** Calls the listener with the outcome of each request: null, or the error. */
export function onOutcome(listener: Listener): void {
  listeners.add(listener);
}

export function url(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return API + path + (text ? `?${text}` : "");
}

/** The answer's body, which the caller knows the type of. */
export async function ask<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const response = await request(method, path, options);
  return (response.status === 204 ? undefined : inSeconds(await response.json())) as T;
}

export const get = <T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> =>
  ask<T>("GET", path, { query, signal });

export const post = <T>(path: string, body?: unknown, headers?: Record<string, string>): Promise<T> =>
  ask<T>("POST", path, { body, headers });

/** Returns a successful response. Throws a Problem if it fails, or does not begin in time. */
export async function request(method: string, path: string, options: Options = {}): Promise<Response> {
  const isDeed = method !== "GET";
  if (isDeed && isAway()) throw new Problem(0, "unreachable", "the master is away: nothing was asked of it", AGAIN);
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), options.body instanceof Blob ? UPLOAD_MS : ANSWER_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, late.signal]) : late.signal;
  try {
    if (isDeed) seen = ""; // nothing that is kept shows what was done just now
    const response = await fetch(url(path, options.query), { method, ...written({ ...options, signal }) });
    if (!response.ok) throw await problemOf(response);
    listeners.forEach((listener) => listener(null));
    return response;
  } catch (error) {
    if (options.signal?.aborted) throw error;
    const problem = asProblem(error, isDeed);
    listeners.forEach((listener) => listener(problem));
    throw problem;
  } finally {
    clearTimeout(timer);
  }
}

export function asProblem(error: unknown, isDeed = false): Problem {
  if (error instanceof Problem) return error;
  const isSilent = error instanceof TypeError || (error instanceof DOMException && error.name === "AbortError");
  const detail = isSilent ? "the master does not answer" : String(error);
  const hint = isDeed ? "whether it was done is not known: look before you ask again" : "it is asked again by itself";
  return new Problem(0, "unreachable", detail, hint);
}

function written({ body, headers, signal }: Options): RequestInit {
  const raw = body instanceof Blob || typeof body === "string";
  const type: Record<string, string> = body === undefined || raw ? {} : { "Content-Type": "application/json" };
  const init: RequestInit = {
    headers: { ...type, ...(seen && { "X-Loopline-Seen": seen }), ...headers },
    credentials: "same-origin",
    signal: signal ?? null,
  };
  if (body !== undefined) init.body = raw ? (body as BodyInit) : JSON.stringify(body);
  return init;
}

async function problemOf(response: Response): Promise<Problem> {
  const said = await response.json().catch(() => ({}));
  const detail = said.detail ?? `${response.status} ${response.statusText}`;
  return new Problem(response.status, said.code ?? "unknown", detail, said.hint, said.errors);
}
