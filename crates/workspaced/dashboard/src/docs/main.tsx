/** The pages of the API, made from the document that the service gives to programs. They need no token. */

import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useKeys, useLoad } from "../lib/hooks.ts";
import { Boundary } from "../ui/boundary.tsx";
import { Failed, Loading } from "../ui/parts.tsx";
import { codesByStatus, indexOf, routesOf, search, type ApiDocument, type Route } from "./document.ts";
import { Method, OperationPage } from "./operation.tsx";
import { Line, Prose, Targets } from "./prose.tsx";
import "../style/tokens.css";
import "../style/base.css";
import "../style/parts.css";
import "../style/pages.css";
import "../style/docs.css";

/** What the page says without scripts too: what the service is, and where to begin. */
const begin = document.getElementById("begin")!;

/** The operation in the address; `#runs/createRun` leads to the same as `#createRun`. */
const wanted = (): string => location.hash.slice(1).split("/").pop() ?? "";

function useHash(): string {
  const [name, setName] = useState(wanted());
  useEffect(() => {
    const listener = () => setName(wanted());
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
  }, []);
  return name;
}

async function read(path: string, accept: string, signal: AbortSignal): Promise<string> {
  const response = await fetch(path, { headers: { accept }, signal });
  if (!response.ok) throw new Error(`The service answered with status ${response.status}.`);
  return await response.text();
}

interface Api { document: ApiDocument; codes: Map<string, string[]> }

async function load(signal: AbortSignal): Promise<Api> {
  const [document, codes] = await Promise.all([read("/openapi.json", "application/json", signal), read("/problems", "text/plain", signal)]);
  return { document: JSON.parse(document) as ApiDocument, codes: codesByStatus(codes) };
}

function Docs() {
  const api = useLoad("document", load);
  if (api.error) return <main id="main"><Static /><Failed error={api.error} what="Reading the document" retry={api.reload} /></main>;
  if (!api.data) return <main id="main"><Static /><Loading what="the routes" /></main>;
  return <Pages api={api.data.document} codes={api.data.codes} />;
}

/** Puts what the page has without scripts where it stands with them. */
function Static() {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => place.current!.append(begin), []);
  return <div ref={place} />;
}

function Pages({ api, codes }: { api: ApiDocument; codes: Map<string, string[]> }) {
  const name = useHash();
  const [query, setQuery] = useState("");
  const routes = useMemo(() => routesOf(api), [api]);
  const index = useMemo(() => indexOf(api, routes), [api]);
  const targets = useMemo(() => new Map([...routes.map(({ method, path, operationId }): [string, string] => [`${method} ${path}`, `#${operationId}`]), ...[...codes.values()].flat().map((code): [string, string] => [code, `/problems/${code}`])]), [api]);
  const found = query.trim() ? search(index, query) : routes;
  const at = routes.findIndex(({ operationId }) => operationId === name);
  const route = routes[at];
  const main = useRef<HTMLElement>(null);
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = route ? `${route.summary.replaceAll("`", "")} – workspaced: the API` : "workspaced: the API";
    main.current!.scrollTop = 0;
    document.querySelector("[data-routes] [aria-current]")?.scrollIntoView({ block: "nearest" });
    // What has been chosen is read next, also by a screen reader.
    if (!isFirst.current) main.current!.querySelector<HTMLElement>("h1")?.focus();
    isFirst.current = false;
  }, [name]);
  const go = (by: number) => {
    const here = found.findIndex(({ operationId }) => operationId === name);
    const next = found[Math.min(found.length - 1, Math.max(0, here < 0 ? 0 : here + by))];
    if (next) location.hash = next.operationId;
  };
  useKeys({ "/": () => document.querySelector<HTMLInputElement>("[data-search]")?.focus(), j: () => go(1), k: () => go(-1) });
  const open = (event: Event) => {
    event.preventDefault();
    if (found.length) location.hash = found[0].operationId;
  };
  return (
    <Targets.Provider value={targets}>
      <div class={`docs ${name ? "with-route" : ""} ${query ? "with-query" : ""}`}>
        <nav aria-label="Routes">
          <form role="search" onSubmit={open}>
            <input type="search" data-search aria-label="Search routes, fields and codes" placeholder="Routes, fields, codes  ( / )" value={query} onInput={(event) => setQuery(event.currentTarget.value)} />
          </form>
          {query && <p class="small quiet" role="status">{found.length} of {routes.length} routes</p>}
          <div class="routes" data-routes>
            <a class="docs-start" href="#begin" aria-current={route ? undefined : "page"}>Where to begin</a>
            {api.tags.map((tag) => <Topic key={tag.name} name={tag.name} routes={found.filter(({ tags }) => tags[0] === tag.name)} current={route} />)}
          </div>
        </nav>
        <main id="main" ref={main} tabIndex={-1}>
          <p class="docs-back"><a href="#">← All routes</a></p>
          {route ? <Boundary key={name} what="this route"><OperationPage document={api} route={route} codes={codes} /></Boundary> : <Start api={api} unknown={name} />}
        </main>
      </div>
    </Targets.Provider>
  );
}

function Topic({ name, routes, current }: { name: string; routes: Route[]; current?: Route }) {
  if (!routes.length) return null;
  return (
    <section aria-labelledby={`topic-${name}`}>
      <h2 id={`topic-${name}`}>{name}</h2>
      <ul>{routes.map((route) => <li key={route.operationId}><a href={`#${route.operationId}`} title={route.path} aria-current={route === current ? "page" : undefined}><Method method={route.method} /> <span class="cut"><Line text={route.summary} /></span></a></li>)}</ul>
    </section>
  );
}

function Start({ api, unknown }: { api: ApiDocument; unknown: string }) {
  return (
    <article>
      {unknown && unknown !== "begin" && <p class="note wait" role="status">There is no route of the name <code>{unknown}</code> in this version.</p>}
      <Static />
      <section class="more" aria-labelledby="conventions"><h2 id="conventions">Conventions</h2><Prose text={api.info.description} /></section>
      <section class="more" aria-labelledby="topics"><h2 id="topics">Topics</h2><dl>{api.tags.map(({ name, description }) => <><dt key={name}>{name}</dt><dd><Line text={description ?? ""} /></dd></>)}</dl></section>
      <p class="quiet">Version {api.info.version}</p>
    </article>
  );
}

render(<Docs />, document.getElementById("pages")!);
