// Requests with retries. A repeated request has the same IDs, so that it is the same call.

import { errorOf, NoAnswer } from "./errors.js";

const MAX_WAIT_MILLIS = 30_000;

export interface Options {
  /** How often a request is sent again that fails in transport or is answered with 429 or 503. Default: 5. */
  retries?: number;
  /** Milliseconds until the answer begins. Default: 60,000. */
  timeoutMillis?: number;
  /** What sends the requests. Default: the global `fetch`. */
  fetch?: typeof fetch;
}

export type Query = { [name: string]: string | number | boolean | undefined };
export type Body = Blob | Uint8Array | ReadableStream<Uint8Array>;

export interface RequestOptions {
  query?: Query;
  headers?: { [name: string]: string };
  json?: unknown;
  content?: Body;
  /** Whether a request that may have been executed can be sent again. Default: true. */
  repeatable?: boolean;
  /** Whether refusals are returned. Those are thrown anyway that no model can do anything about. */
  acceptRefusal?: boolean;
  /**
   * Whether a command is asked for. Where no runner runs it, the answer is a refusal with 503 in the run's record: to ask again would not
   * help, and a model can go on without.
   */
  isCommand?: boolean;
  /** Whether the body is read before the answer is returned, and again if the connection is lost. Default: false. */
  whole?: boolean;
  signal?: AbortSignal | undefined;
  /** Milliseconds added to the time limit: how long the request asks the service to wait. */
  extraMillis?: number;
}

/** Sends requests with a token. */
export class Transport {
  readonly url: string;
  readonly retries: number;

  constructor(url: string, readonly token: string, readonly options: Options) {
    this.url = url.replace(/\/+$/, "");
    this.retries = options.retries ?? 5;
  }

  withToken(token: string): Transport {
    return new Transport(this.url, token, this.options);
  }

  /** Sends a request and returns the JSON of the answer, or undefined for an empty one. */
  async json<Answer>(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
    const text = await (await this.send(method, path, { ...options, whole: true })).text();
    try {
      return (text === "" ? undefined : JSON.parse(text)) as Answer;
    } catch (failure) {
      throw new NoAnswer(failure, this.url);
    }
  }

  /** Sends a request and returns the answer, whose body is not read yet. Throws refusals, `NoAnswer`, and the reason of `signal`. */
  async send(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
    const { repeatable = true, content } = options;
    for (let attempt = 0; ; attempt++) {
      const last = attempt === this.retries || content instanceof ReadableStream;
      let response: Response;
      try {
        response = await this.once(method, path, options);
      } catch (failure) {
        if (options.signal?.aborted) throw failure;
        if (last || !repeatable) throw new NoAnswer(failure, this.url);
        await sleep(waitMillis(attempt, null), options.signal);
        continue;
      }
      if (response.status < 400 && response.status !== 202) return response;
      // The caller reads the body of a refusal that is returned.
      const error = await errorOf(response.clone());
      const isAnswer = options.isCommand === true && response.status === 503 && error.isRecorded;
      const overloaded = !isAnswer && (response.status === 429 || response.status === 503);
      if (overloaded && !last && error.code !== "RUN_NEEDS_REPAIR") {
        await response.body?.cancel();
        await sleep(waitMillis(attempt, response.headers.get("retry-after")), options.signal);
        continue;
      }
      const hopeless = !isAnswer && (response.status === 401 || response.status === 429 || response.status >= 500);
      const refused = response.status !== 202 || error.code === "APPROVAL_REQUIRED";
      if (refused && (hopeless || !options.acceptRefusal)) throw error;
      return response;
    }
  }

  private async once(method: string, path: string, options: RequestOptions): Promise<Response> {
    const query = Object.entries(options.query ?? {}).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(query.map(([name, value]) => [name, String(value)])).toString();
    const headers: { [name: string]: string } = { Authorization: `Bearer ${this.token}`, ...options.headers };
    if (options.json !== undefined) headers["Content-Type"] = "application/json";
    const body = options.json === undefined ? options.content : JSON.stringify(options.json);
    // The time limit is for the head of the answer: a body may be long, and a stream has no end.
    const controller = new AbortController();
    const abort = () => controller.abort(options.signal?.reason);
    if (options.signal?.aborted) abort();
    options.signal?.addEventListener("abort", abort);
    const limit = (this.options.timeoutMillis ?? 60_000) + (options.extraMillis ?? 0);
    const timer = setTimeout(() => controller.abort(new Error(`no answer within ${limit} ms`)), limit);
    // Redirects are not followed: the service sends none, and the token is for this service alone.
    const init = { method, headers, redirect: "error", signal: controller.signal, duplex: "half" } as RequestInit;
    if (body !== undefined) init.body = body as BodyInit;
    try {
      const send = this.options.fetch ?? fetch;
      const answer = await send(`${this.url}${path}${search ? `?${search}` : ""}`, init);
      if (!options.whole) return answer;
      const bytes = await answer.arrayBuffer();
      return new Response(bytes.byteLength === 0 ? null : bytes, { status: answer.status, headers: answer.headers });
    } finally {
      clearTimeout(timer);
    }
  }
}

/** How long to wait: as long as the service asks for, or twice as long as before, with jitter. */
export function waitMillis(attempt: number, retryAfter: string | null): number {
  const asked = /^\d+$/.test(retryAfter ?? "") ? Number(retryAfter) * 1000 : 0;
  return Math.min(MAX_WAIT_MILLIS, Math.max(asked, 100 * 2 ** attempt)) * (1 + Math.random() / 4);
}

export function sleep(millis: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, millis);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/** Yields the items of a list, page by page. */
export async function* pages<Item>(transport: Transport, path: string, filters: Query): AsyncGenerator<Item> {
  let cursor: string | undefined;
  do {
    const query = cursor === undefined ? filters : { ...filters, cursor };
    const page = await transport.json<{ items: Item[]; nextCursor?: string | null }>("GET", path, { query });
    yield* page.items;
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
}
