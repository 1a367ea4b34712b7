export interface Options {
    /** How often a request is sent again that fails in transport or is answered with 429 or 503. Default: 5. */
    retries?: number;
    /** Milliseconds until the answer begins. Default: 60,000. */
    timeoutMillis?: number;
    /** What sends the requests. Default: the global `fetch`. */
    fetch?: typeof fetch;
}
export type Query = {
    [name: string]: string | number | boolean | undefined;
};
export type Body = Blob | Uint8Array | ReadableStream<Uint8Array>;
export interface RequestOptions {
    query?: Query;
    headers?: {
        [name: string]: string;
    };
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
export declare class Transport {
    readonly token: string;
    readonly options: Options;
    readonly url: string;
    readonly retries: number;
    constructor(url: string, token: string, options: Options);
    withToken(token: string): Transport;
    /** Sends a request and returns the JSON of the answer, or undefined for an empty one. */
    json<Answer>(method: string, path: string, options?: RequestOptions): Promise<Answer>;
    /** Sends a request and returns the answer, whose body is not read yet. Throws refusals, `NoAnswer`, and the reason of `signal`. */
    send(method: string, path: string, options?: RequestOptions): Promise<Response>;
    private once;
}
/** How long to wait: as long as the service asks for, or twice as long as before, with jitter. */
export declare function waitMillis(attempt: number, retryAfter: string | null): number;
export declare function sleep(millis: number, signal?: AbortSignal): Promise<void>;
/** Yields the items of a list, page by page. */
export declare function pages<Item>(transport: Transport, path: string, filters: Query): AsyncGenerator<Item>;
