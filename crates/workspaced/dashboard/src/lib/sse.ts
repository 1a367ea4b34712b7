/** Server-Sent Events by `fetch`: a header carries the token, which `EventSource` cannot send. */

import { RequestError, send } from "./api.ts";

export interface StreamEvent { event: string; id: string; data: string }

/** Splits a stream of text into events. Parts of an event are kept until the rest arrives. */
export class EventParser {
  private rest = "";
  /** Returns the events that `chunk` completes. */
  push(chunk: string): StreamEvent[] {
    this.rest += chunk;
    const events: StreamEvent[] = [];
    for (;;) {
      const end = /\r?\n\r?\n/.exec(this.rest);
      if (!end) return events;
      const event = parseEvent(this.rest.slice(0, end.index));
      this.rest = this.rest.slice(end.index + end[0].length);
      if (event) events.push(event);
    }
  }
}

function parseEvent(block: string): StreamEvent | undefined {
  const event: StreamEvent = { event: "message", id: "", data: "" };
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const name = line.slice(0, colon);
    if (name === "data") data.push(value);
    else if (name === "event") event.event = value;
    else if (name === "id") event.id = value;
  }
  event.data = data.join("\n");
  return data.length ? event : undefined;
}

export type StreamState = "connecting" | "live" | "reconnecting" | "refused";

interface Follow {
  /** Called for each event, in order. */
  onEvent: (event: StreamEvent) => void;
  onState: (state: StreamState) => void;
  /** Called when a connection begins that no `Last-Event-ID` resumes: reads what came before it. */
  onFresh: () => void;
}

const RETRY_MILLIS = [500, 1000, 2000, 5000, 10000];
/** The service sends a comment every 15 seconds: a connection that is silent for longer is lost. */
const SILENCE_MILLIS = 40000;
/** A connection that lasted for longer was a good one: the next attempt follows soon. */
const GOOD_MILLIS = 10000;

/** Follows a stream until `signal` ends it. A lost connection is resumed after the last event. */
export async function follow(path: string, signal: AbortSignal, handlers: Follow): Promise<void> {
  let lastId = "";
  let failures = 0;
  while (!signal.aborted) {
    const connection = new AbortController();
    const began = Date.now();
    const end = () => connection.abort();
    signal.addEventListener("abort", end);
    try {
      handlers.onState(failures ? "reconnecting" : "connecting");
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (lastId) headers["last-event-id"] = lastId;
      const response = await send(path, { headers, signal: connection.signal });
      handlers.onState("live");
      if (!lastId) handlers.onFresh();
      await readEvents(response, connection, (event) => {
        failures = 0;
        lastId = event.id || lastId;
        handlers.onEvent(event);
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof RequestError && [400, 401, 403, 404].includes(error.status)) return handlers.onState("refused");
    } finally {
      signal.removeEventListener("abort", end);
      connection.abort();
    }
    if (signal.aborted) return;
    handlers.onState("reconnecting");
    if (Date.now() - began > GOOD_MILLIS) failures = 0;
    await new Promise((done) => setTimeout(done, RETRY_MILLIS[Math.min(failures, RETRY_MILLIS.length - 1)]));
    failures += 1;
  }
}

async function readEvents(response: Response, connection: AbortController, onEvent: (event: StreamEvent) => void): Promise<void> {
  const parser = new EventParser();
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const silence = setTimeout(() => connection.abort(), SILENCE_MILLIS);
    const { value, done } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    for (const event of parser.push(value)) onEvent(event);
  }
}
