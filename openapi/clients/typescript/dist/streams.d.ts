import { type Query, type Transport } from "./transport.js";
/** One event of a stream. `data` is a record or a change. */
export interface StreamEvent<Data> {
    id: string;
    kind: string;
    data: Data;
}
/** Where to continue a stream: updated with each event, so that it can be kept and given again. */
export interface ResumePoint {
    lastEventId?: string;
}
export interface FollowOptions {
    resume?: ResumePoint;
    /** Ends the stream with its reason as error. */
    signal?: AbortSignal;
}
/**
 * Yields events without end. A lost connection is opened again from the last event, without a gap.
 *
 * Ends with an error: a refusal, that of the signal, or that of `fetch` after as many failures as the transport retries.
 */
export declare function follow<Data>(transport: Transport, path: string, query: Query, { resume, signal }: FollowOptions): AsyncGenerator<StreamEvent<Data>>;
