/** Who decides or comments, where the token names nobody. */

import type { Rights } from "../app.tsx";

const KEY = "workspaced.person";
/** The first token of a service, which names nobody. */
const FIRST = "operator";

export const needsPerson = ({ operator }: Rights): boolean => operator === FIRST;
/** The name that was given in this tab. */
export const knownPerson = (): string => sessionStorage.getItem(KEY) ?? "";
/** Keeps a name in this tab. Returns it, or nothing if it is empty. */
export function rememberPerson(name: string): string | undefined {
  const given = name.trim();
  if (given) sessionStorage.setItem(KEY, given);
  return given || undefined;
}
