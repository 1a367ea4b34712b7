/** Paths as a tree of folders, flat: each row knows its depth. Folders that hold one folder alone are one row. */

export interface TreeRow { depth: number; name: string; path: string; file?: number }
interface Folder { folders: Map<string, Folder>; files: [name: string, index: number][] }

/** Returns the rows of the given paths; `closed` are folders whose content is left out. */
export function treeRows(paths: [path: string, index: number][], closed: Set<string>): TreeRow[] {
  const root: Folder = { folders: new Map(), files: [] };
  for (const [path, index] of paths) {
    const parts = path.split("/");
    let folder = root;
    for (const part of parts.slice(0, -1)) {
      let next = folder.folders.get(part);
      if (!next) folder.folders.set(part, (next = { folders: new Map(), files: [] }));
      folder = next;
    }
    folder.files.push([parts[parts.length - 1], index]);
  }
  const rows: TreeRow[] = [];
  const walk = (folder: Folder, depth: number, prefix: string) => {
    for (let [name, inner] of folder.folders) {
      while (inner.folders.size === 1 && !inner.files.length) {
        const [[next, deeper]] = inner.folders;
        [name, inner] = [`${name}/${next}`, deeper];
      }
      const path = `${prefix}${name}/`;
      rows.push({ depth, name: `${name}/`, path });
      if (!closed.has(path)) walk(inner, depth + 1, path);
    }
    for (const [name, file] of folder.files) rows.push({ depth, name, path: `${prefix}${name}`, file });
  };
  walk(root, 0, "");
  return rows;
}
