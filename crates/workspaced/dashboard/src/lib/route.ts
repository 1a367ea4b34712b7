/** The address bar as the state of the page: path and search parameters. */

import { useEffect, useState } from "preact/hooks";

export interface Route { path: string[]; params: URLSearchParams }

const listeners = new Set<() => void>();

/** Returns the route of an address. */
export function parse(pathname: string, search: string): Route {
  const path = pathname.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { path, params: new URLSearchParams(search) };
}

export function navigate(address: string, replace = false): void {
  if (address === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  for (const listener of listeners) listener();
}

/** Changes search parameters of the address; an empty value removes one. */
export function setParams(changes: Record<string, string>, replace = true): void {
  const params = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) params.set(name, value);
    else params.delete(name);
  }
  const text = params.toString();
  navigate(location.pathname + (text ? `?${text}` : ""), replace);
}

export function useRoute(): Route {
  const [, refresh] = useState(0);
  useEffect(() => {
    const listener = () => refresh((count) => count + 1);
    listeners.add(listener);
    addEventListener("popstate", listener);
    return () => {
      listeners.delete(listener);
      removeEventListener("popstate", listener);
    };
  }, []);
  return parse(location.pathname, location.search);
}

/** Follows links within the dashboard without loading the page again. */
export function interceptLinks(): void {
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.origin !== location.origin || link.hasAttribute("download") || link.dataset.outside !== undefined) return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
}

export const runHref = (run: string): string => `/runs/${encodeURIComponent(run)}`;
/** The page of a record. Those of the service's own chain are of no run, and are listed. */
export const callHref = (run: string, seq: number): string => run === "_service" ? "/audit?by=all&run=_service" : `${runHref(run)}/calls/${seq}`;
