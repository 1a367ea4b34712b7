// The catalogue as tools of agent frameworks, and what executes the calls that a model asks for.
/**
 * Executes a model's call and returns the text that the model reads.
 *
 * The ID of the call is new each time: the IDs that models invent may repeat.
 */
export async function dispatch(run, name, input) {
    let parsed;
    try {
        parsed = typeof input === "string" ? JSON.parse(input || "{}") : input;
        if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed))
            throw new Error("they are not an object");
    }
    catch (error) {
        const text = `INVALID_REQUEST: the arguments of \`${name}\` are not a JSON object: ${error.message}\nSend one JSON object.\n`;
        return { text, ok: false, status: 400, callId: null, seq: null, sha256: null };
    }
    const { toolCallId: _, ...rest } = parsed;
    return run.text(name, rest);
}
/** Returns each tool as a function. */
export async function functions(run) {
    return (await run.tools("workspaced", "model")).map((tool) => ({
        name: tool["name"],
        description: tool["description"],
        schema: tool["inputSchema"],
        call: async (input) => (await dispatch(run, tool["name"], input)).text,
    }));
}
