// The catalogue as tools of agent frameworks, and what executes the calls that a model asks for.
/** Returns the tools for OpenAI's function calling. */
export function openaiTools(run) {
    return run.tools("openai", "model");
}
/** Returns the tools for Anthropic's messages. */
export function anthropicTools(run) {
    return run.tools("anthropic", "model");
}
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
/** Executes one of the `tool_calls` of a message and returns the message that answers it. */
export async function answerOpenAI(run, toolCall) {
    const answer = await dispatch(run, toolCall.function.name, toolCall.function.arguments);
    return { role: "tool", tool_call_id: toolCall.id, content: answer.text };
}
/** Executes a block of type `tool_use` and returns the block that answers it. */
export async function answerAnthropic(run, block) {
    const answer = await dispatch(run, block.name, block.input);
    return { type: "tool_result", tool_use_id: block.id, content: answer.text, is_error: !answer.ok };
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
