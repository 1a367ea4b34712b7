/**
 * Requests to the service. A token is in memory and in the session storage of the tab, nowhere else. Without one the session counts of
 * whoever has signed in at the issuer: a cookie that no script reads, with a header that says that this page asks.
 */

const KEY = "workspaced.token";
let token = sessionStorage.getItem(KEY) ?? "";
let onSignedOut: () => void = () => undefined;

export function setToken(value: string): void {
  token = value;
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}
export const hasToken = (): boolean => token !== "";
const credentials = (): Record<string, string> => (token ? { authorization: `Bearer ${token}` } : { "workspaced-session": "1" });
/** Returns the issuer at which people sign in, if there is one. */
export async function signInIssuer(signal?: AbortSignal): Promise<string | undefined> {
  const response = await fetch("/sign-in/issuer", { signal, cache: "no-store" });
  return ((await response.json()) as { issuer?: string | null }).issuer ?? undefined;
}
/** Whether somebody has signed in at the issuer in this browser. */
export async function hasSession(signal?: AbortSignal): Promise<boolean> {
  const response = await fetch("/v1/operators/self", { headers: { "workspaced-session": "1" }, signal, cache: "no-store" });
  return response.ok;
}
/** Ends every session of whoever has signed in at the issuer. */
export async function endSession(): Promise<void> {
  await send("/sign-out", { method: "POST" });
}
/** Sets what happens when the service no longer accepts the token. */
export function whenSignedOut(handler: () => void): void {
  onSignedOut = handler;
}

/** A refusal of the service, or a request that did not reach it. */
export class RequestError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
    readonly requestId: string,
  ) {
    super(message);
  }
}

interface Options { method?: string; body?: unknown; headers?: Record<string, string>; signal?: AbortSignal; keepalive?: boolean }

/** Sends a request and returns the response, whatever its media type. Throws a `RequestError` on a status of 400 or more. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { ...credentials(), ...options.headers };
  if (options.body !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method: options.method ?? "GET",
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal,
      keepalive: options.keepalive,
      cache: "no-store",
      credentials: token ? "omit" : "same-origin",
    });
  } catch (cause) {
    if (options.signal?.aborted) throw cause;
    throw new RequestError(0, "UNREACHABLE", "The service did not answer.", "Check that it is running, then retry.", "");
  }
  if (response.status < 400) return response;
  throw await refusal(response);
}

async function refusal(response: Response): Promise<RequestError> {
  const requestId = response.headers.get("x-request-id") ?? "";
  let problem: { code?: string; detail?: string; hint?: string } = {};
  try {
    problem = (await response.json()) as typeof problem;
  } catch {
    problem = { detail: `Status ${response.status} without a problem document.` };
  }
  if (response.status === 401) {
    setToken("");
    onSignedOut();
  }
  return new RequestError(
    response.status,
    problem.code ?? String(response.status),
    problem.detail ?? "The request was refused.",
    problem.hint ?? "",
    requestId,
  );
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await send(path, { signal })).json()) as T;
}
export async function getText(path: string, signal?: AbortSignal): Promise<string> {
  return await (await send(path, { signal })).text();
}
export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await send(path, { method: "POST", body, signal })).json()) as T;
}

export const runPath = (run: string): string => `/v1/runs/${encodeURIComponent(run)}`;
/** Calls a tool as the operator. The service records the call in the run's chain. */
export function callTool<T>(run: string, tool: string, input: unknown, signal?: AbortSignal): Promise<T> {
  return post<T>(`${runPath(run)}/tools/${tool}`, input, signal);
}

/** Builds a query string of the parameters that have a value. */
export function query(parameters: Record<string, string | number | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined && value !== "") search.set(name, String(value));
  const text = search.toString();
  return text ? `?${text}` : "";
}

/** Reads every page of a list, up to `most` items. */
export async function getAll<T>(
  path: string,
  parameters: Record<string, string | number | undefined>,
  most: number,
  signal?: AbortSignal,
): Promise<{ items: T[]; isComplete: boolean }> {
  const items: T[] = [];
  let cursor: string | undefined;
  do {
    const page = await get<{ items: T[]; nextCursor?: string }>(path + query({ ...parameters, limit: 1000, cursor }), signal);
    items.push(...page.items);
    cursor = page.nextCursor;
  } while (cursor && items.length < most);
  return { items, isComplete: !cursor };
}

/** Saves what the service answers as a file. */
export async function download(path: string, name: string): Promise<void> {
  const url = URL.createObjectURL(await (await send(path)).blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
