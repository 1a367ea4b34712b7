// The catalogue as tools of agent frameworks, and what executes the calls that a model asks for.
/** Returns the tools for OpenAI's function calling in chat completions. */
export async function openaiTools(run) {
    return (await run.tools("openai", "model"));
}
/** Returns the tools for OpenAI's responses. */
export async function openaiResponseTools(run) {
    return (await openaiTools(run)).map((tool) => ({ type: "function", strict: false, ...tool.function }));
}
/** Returns the tools for Anthropic's messages. */
export async function anthropicTools(run) {
    return (await run.tools("anthropic", "model"));
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
    const [name, input] = "function" in toolCall ? [toolCall.function.name, toolCall.function.arguments] : [toolCall.custom.name, toolCall.custom.input];
    return { role: "tool", tool_call_id: toolCall.id, content: (await dispatch(run, name, input)).text };
}
/** Executes a `function_call` of a response's output and returns the input that answers it. */
export async function answerOpenAIResponse(run, item) {
    const answer = await dispatch(run, item.name, item.arguments);
    return { type: "function_call_output", call_id: item.call_id, output: answer.text };
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
