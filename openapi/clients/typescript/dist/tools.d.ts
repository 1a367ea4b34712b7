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
/**
 * Executes a model's call and returns the text that the model reads.
 *
 * The ID of the call is new each time: the IDs that models invent may repeat.
 */
export declare function dispatch(run: Run, name: string, input: unknown): Promise<TextAnswer>;
/** Returns each tool as a function. */
export declare function functions(run: Run): Promise<ToolFunction[]>;
export {};
