// Server-Sent Events, followed across lost connections.
import { NoAnswer, WorkspacedError } from "./errors.js";
import { sleep } from "./transport.js";
const MAX_EVENT_CHARACTERS = 16 * 1024 * 1024;
/**
 * Yields events without end. A lost connection is opened again from the last event, without a gap.
 *
 * Ends with an error: a refusal, that of the signal, or that of `fetch` after as many failures as the transport retries.
 */
export async function* follow(transport, path, query, { resume = {}, signal }) {
    for (let failures = 0;;) {
        const headers = { Accept: "text/event-stream" };
        if (resume.lastEventId !== undefined)
            headers["Last-Event-ID"] = resume.lastEventId;
        // Also ends the connection when the caller stops to iterate.
        const controller = new AbortController();
        const abort = () => controller.abort(signal?.reason);
        if (signal?.aborted)
            abort();
        signal?.addEventListener("abort", abort);
        try {
            const response = await transport.send("GET", path, { query, headers, signal: controller.signal });
            for await (const event of parse(response)) {
                failures = 0;
                if (event.id !== "")
                    resume.lastEventId = event.id;
                yield event;
            }
        }
        catch (failure) {
            const refused = failure instanceof WorkspacedError && !(failure instanceof NoAnswer);
            if (refused || signal?.aborted)
                throw failure;
            if (++failures > transport.retries)
                throw failure instanceof NoAnswer ? failure : new NoAnswer(failure, transport.url);
        }
        finally {
            signal?.removeEventListener("abort", abort);
            controller.abort();
        }
        await sleep(Math.min(5000, 100 * 2 ** failures), signal);
    }
}
async function* parse(response) {
    const [decoder, reader] = [new TextDecoder(), response.body.getReader()];
    let [rest, id, kind, size] = ["", "", "message", 0];
    let data = [];
    for (;;) {
        const { done, value } = await reader.read();
        if (done)
            return;
        const lines = (rest + decoder.decode(value, { stream: true })).split(/\r?\n/);
        rest = lines.pop();
        for (const line of lines) {
            size += line.length;
            if (line === "") {
                if (data.length > 0)
                    yield { id, kind, data: JSON.parse(data.join("\n")) };
                [kind, data, size] = ["message", [], 0];
                continue;
            }
            const [, name, content] = /^([^:]*):? ?([^]*)$/.exec(line);
            if (name === "data")
                data.push(content);
            else if (name === "event")
                kind = content;
            else if (name === "id")
                id = content;
        }
        if (size + rest.length > MAX_EVENT_CHARACTERS)
            throw new Error(`an event has over ${MAX_EVENT_CHARACTERS} characters`);
    }
}
