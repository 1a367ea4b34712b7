// Tools for the package `openai`.
import { dispatch } from "./tools.js";
/** Returns the tools of the run for the SDK's runner, `client.chat.completions.runTools({ tools })`. */
export async function toolsFor(run) {
    return (await declared(run)).map((tool) => ({
        type: "function",
        function: { ...tool.function, function: async (input) => (await dispatch(run, tool.function.name, input)).text },
    }));
}
/** Returns the tools of the run for `client.chat.completions.create({ tools })`. */
export async function chatTools(run) {
    return declared(run);
}
/** Executes one of the `tool_calls` of a message and returns the message that answers it. */
export async function answerChat(run, toolCall) {
    const [name, input] = toolCall.type === "custom" ? [toolCall.custom.name, toolCall.custom.input] : [toolCall.function.name, toolCall.function.arguments];
    return { role: "tool", tool_call_id: toolCall.id, content: (await dispatch(run, name, input)).text };
}
/** Returns the tools of the run for `client.responses.create({ tools })`. */
export async function responseTools(run) {
    return (await declared(run)).map((tool) => ({ type: "function", strict: false, ...tool.function }));
}
/** Executes a `function_call` of a response's output and returns the input that answers it. */
export async function answerResponse(run, item) {
    const answer = await dispatch(run, item.name, item.arguments);
    return { type: "function_call_output", call_id: item.call_id, output: answer.text };
}
async function declared(run) {
    return (await run.tools("openai", "model"));
}
