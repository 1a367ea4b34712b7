import type { Run, TextAnswer } from "./run.js";
type Members = {
    [member: string]: unknown;
};
/** A tool as a function with its name, description and JSON Schema. Answers the text for the model, also of refusals. */
export interface ToolFunction {
    name: string;
    description: string;
    schema: Members;
    call(input: object): Promise<string>;
}
/** Returns the tools for OpenAI's function calling. */
export declare function openaiTools(run: Run): Promise<Members[]>;
/** Returns the tools for Anthropic's messages. */
export declare function anthropicTools(run: Run): Promise<Members[]>;
/**
 * Executes a model's call and returns the text that the model reads.
 *
 * The ID of the call is new each time: the IDs that models invent may repeat.
 */
export declare function dispatch(run: Run, name: string, input: string | object): Promise<TextAnswer>;
/** Executes one of the `tool_calls` of a message and returns the message that answers it. */
export declare function answerOpenAI(run: Run, toolCall: {
    id: string;
    function: {
        name: string;
        arguments: string;
    };
}): Promise<{
    role: "tool";
    tool_call_id: string;
    content: string;
}>;
/** Executes a block of type `tool_use` and returns the block that answers it. */
export declare function answerAnthropic(run: Run, block: {
    id: string;
    name: string;
    input: object;
}): Promise<{
    type: "tool_result";
    tool_use_id: string;
    content: string;
    is_error: boolean;
}>;
/** Returns each tool as a function. */
export declare function functions(run: Run): Promise<ToolFunction[]>;
export {};
