// What a checkout needs of Node.js, loaded when the first one is opened: a browser has none of it.
let loaded;
export function node() {
    return (loaded ??= load());
}
async function load() {
    // By a variable, so that a bundler for browsers does not look for them.
    const module = (name) => import(`node:${name}`);
    const [processes, files, os, url, process] = await Promise.all(["child_process", "fs/promises", "os", "url", "process"].map(module));
    return {
        spawn: processes.spawn,
        readFile: files.readFile,
        isFile: (path) => files.stat(path).then((found) => found.isFile(), () => false),
        tmpdir: os.tmpdir,
        beside: (name) => url.fileURLToPath(new URL(name, import.meta.url)),
        env: process.env,
        kill: process.kill,
    };
}
