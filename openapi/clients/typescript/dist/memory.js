// A memory for the package `@anthropic-ai/sdk` that is kept in the files of a run.
import { betaMemoryTool } from "@anthropic-ai/sdk/helpers/beta/memory";
import { ToolError } from "@anthropic-ai/sdk/lib/tools/ToolError";
const ROOT = "/memories";
/** Lines of files have a number, or are indented. */
const OF_FILE = /^( *\d+\t|  )/;
/**
 * Returns the memory tool of the SDK, whose `/memories` is the folder `folder` of the run.
 *
 * The service answers in the words of the SDK's own memory of files, and adds what helps with a refusal. Policy, budgets and the record
 * are those of the run. A change made meanwhile by another is not overwritten.
 */
export function memoryTool(run, folder = "memories") {
    const name = folder.replace(/^\/+|\/+$/g, "");
    const base = name === "" || name === "." ? ROOT : `${ROOT}/${name}`;
    const execute = (command) => remember(run, base, command);
    return betaMemoryTool({ view: execute, create: execute, str_replace: execute, insert: execute, delete: execute, rename: execute });
}
async function remember(run, base, command) {
    const send = (input, name) => run.textInFormat("anthropic-memory", "memory", input, { reason: `the memory tool's ${name}` });
    const shown = (text) => text.replace(/\n$/, "").split("\n").map((line) => (OF_FILE.test(line) ? line : line.replaceAll(base, ROOT))).join("\n");
    const given = {};
    for (const [member, value] of Object.entries(command)) {
        given[member] = member.endsWith("path") && typeof value === "string" ? inside(base, value, command.command) : value;
    }
    let answer = await send(given, command.command);
    if (answer.status === 409 && answer.text.includes("this token has not seen")) {
        // The SDK's own memory changes what the model has not viewed. The service is shown which version is meant.
        await send({ command: "view", path: given["path"] ?? given["old_path"] }, "view");
        answer = await send(given, command.command);
    }
    const text = shown(answer.text);
    if (answer.status === 404 && command.command === "view" && given["path"] === base) {
        const [notices] = text.split(`The path ${command.path} does not exist`);
        return `${notices}Here're the files and directories up to 2 levels deep in ${command.path}, excluding hidden items:\n0B\t${ROOT}`;
    }
    if (!answer.ok)
        throw new ToolError(text.replace(/^INVALID_REQUEST: /, ""));
    return text;
}
/** Returns a path of a command as that of a file in the folder. The folder itself is neither deleted nor renamed. */
function inside(base, path, command) {
    if (path !== ROOT && !path.startsWith(`${ROOT}/`))
        throw new ToolError(`Path must start with ${ROOT}, got: ${path}`);
    const names = path.slice(ROOT.length).split("/").filter((name) => name !== "" && name !== ".");
    if (names.includes(".."))
        throw new ToolError(`Path ${path} would escape ${ROOT} directory`);
    return names.length === 0 && command !== "view" ? ROOT : [base, ...names].join("/");
}
