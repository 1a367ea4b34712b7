// Requests with retries. A repeated request has the same IDs, so that it is the same call.
import { errorOf, NoAnswer } from "./errors.js";
const MAX_WAIT_MILLIS = 30_000;
/** Sends requests with a token. */
export class Transport {
    token;
    options;
    url;
    retries;
    constructor(url, token, options) {
        this.token = token;
        this.options = options;
        this.url = url.replace(/\/+$/, "");
        this.retries = options.retries ?? 5;
    }
    withToken(token) {
        return new Transport(this.url, token, this.options);
    }
    /** Sends a request and returns the JSON of the answer, or undefined for an empty one. */
    async json(method, path, options = {}) {
        const text = await (await this.send(method, path, { ...options, whole: true })).text();
        try {
            return (text === "" ? undefined : JSON.parse(text));
        }
        catch (failure) {
            throw new NoAnswer(failure, this.url);
        }
    }
    /** Sends a request and returns the answer, whose body is not read yet. Throws refusals, `NoAnswer`, and the reason of `signal`. */
    async send(method, path, options = {}) {
        const { repeatable = true, content } = options;
        for (let attempt = 0;; attempt++) {
            const last = attempt === this.retries || content instanceof ReadableStream;
            let response;
            try {
                response = await this.once(method, path, options);
            }
            catch (failure) {
                if (options.signal?.aborted)
                    throw failure;
                if (last || !repeatable)
                    throw new NoAnswer(failure, this.url);
                await sleep(waitMillis(attempt, null), options.signal);
                continue;
            }
            if (response.status < 400 && response.status !== 202)
                return response;
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
            if (refused && (hopeless || !options.acceptRefusal))
                throw error;
            return response;
        }
    }
    async once(method, path, options) {
        const query = Object.entries(options.query ?? {}).filter(([, value]) => value !== undefined);
        const search = new URLSearchParams(query.map(([name, value]) => [name, String(value)])).toString();
        const headers = { Authorization: `Bearer ${this.token}`, ...options.headers };
        if (options.json !== undefined)
            headers["Content-Type"] = "application/json";
        const body = options.json === undefined ? options.content : JSON.stringify(options.json);
        // The time limit is for the head of the answer: a body may be long, and a stream has no end.
        const controller = new AbortController();
        const abort = () => controller.abort(options.signal?.reason);
        if (options.signal?.aborted)
            abort();
        options.signal?.addEventListener("abort", abort);
        const limit = (this.options.timeoutMillis ?? 60_000) + (options.extraMillis ?? 0);
        const timer = setTimeout(() => controller.abort(new Error(`no answer within ${limit} ms`)), limit);
        // Redirects are not followed: the service sends none, and the token is for this service alone.
        const init = { method, headers, redirect: "error", signal: controller.signal, duplex: "half" };
        if (body !== undefined)
            init.body = body;
        try {
            const send = this.options.fetch ?? fetch;
            const answer = await send(`${this.url}${path}${search ? `?${search}` : ""}`, init);
            if (!options.whole)
                return answer;
            const bytes = await answer.arrayBuffer();
            return new Response(bytes.byteLength === 0 ? null : bytes, { status: answer.status, headers: answer.headers });
        }
        finally {
            clearTimeout(timer);
        }
    }
}
/** How long to wait: as long as the service asks for, or twice as long as before, with jitter. */
export function waitMillis(attempt, retryAfter) {
    const asked = /^\d+$/.test(retryAfter ?? "") ? Number(retryAfter) * 1000 : 0;
    return Math.min(MAX_WAIT_MILLIS, Math.max(asked, 100 * 2 ** attempt)) * (1 + Math.random() / 4);
}
export function sleep(millis, signal) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, millis);
        signal?.addEventListener("abort", () => {
            clearTimeout(timer);
            reject(signal.reason);
        });
    });
}
/** Yields the items of a list, page by page. */
export async function* pages(transport, path, filters) {
    let cursor;
    do {
        const query = cursor === undefined ? filters : { ...filters, cursor };
        const page = await transport.json("GET", path, { query });
        yield* page.items;
        cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
}
