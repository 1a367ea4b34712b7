/** One route: what it does, what it takes, what it answers, how it refuses, and a request to copy. */

import { useState } from "preact/hooks";
import { codesOf, curlOf, exampleOf, follow, inside, type Answer, type ApiDocument, type Content, type Parameter, type Route } from "./document.ts";
import { Answered, FieldOf, Fields } from "./fields.tsx";
import { Line, Prose } from "./prose.tsx";

export function OperationPage({ document, route, codes }: { document: ApiDocument; route: Route; codes: ReadonlyMap<string, string[]> }) {
  const parameters = (route.parameters ?? []).map((parameter) => follow(document, parameter));
  const answers = Object.entries(route.responses).map(([status, answer]) => ({ status, answer: follow(document, answer) }));
  // `APPROVAL_REQUIRED` is a refusal with a status of success.
  const isRefusal = ({ status, answer }: (typeof answers)[0]) => Number(status) >= 400 || /^`[A-Z_]+`/.test(answer.description ?? "");
  const refusals = answers.filter(isRefusal);
  return (
    <article aria-labelledby="operation">
      <h1 id="operation" tabIndex={-1}><Line text={route.summary} /></h1>
      <p class="route"><Method method={route.method} /> <code>{route.path}</code></p>
      <Prose text={route.description} />
      <Example title="Request" text={curlOf(document, route, location.origin)} />
      <Parameters document={document} title="In the path" parameters={parameters.filter((parameter) => parameter.in === "path")} />
      <Parameters document={document} title="In the query" parameters={parameters.filter((parameter) => parameter.in === "query")} />
      {route.requestBody && <section><h2>Body</h2><Prose text={route.requestBody.description} /><Bodies document={document} content={route.requestBody.content} /></section>}
      <Parameters document={document} title="Headers" parameters={parameters.filter((parameter) => parameter.in === "header")} />
      {answers.filter((answer) => !isRefusal(answer)).map(({ status, answer }) => (
        <section key={status}>
          <h2>Answer <span class="tone-good">{status}</span></h2>
          <Prose text={answer.description} />
          {answer.content && <Answered.Provider value={true}><Bodies document={document} content={answer.content} example={`Example of an answer ${status}`} /></Answered.Provider>}
          <Headers document={document} answer={answer} />
        </section>
      ))}
      {refusals.length > 0 && <section>
        <h2>Refusals</h2>
        <table class="refusals">
          <thead><tr><th scope="col">Status</th><th scope="col">Code</th><th scope="col">When</th></tr></thead>
          <tbody>{refusals.map(({ status, answer }) => <tr key={status}><td>{status}</td><td class="wrap">{codesOf(status, answer, codes).map((code) => <div key={code}><a href={`/problems/${code}`}><code>{code}</code></a></div>)}</td><td><Line text={answer.description ?? ""} /></td></tr>)}</tbody>
        </table>
      </section>}
    </article>
  );
}

function Parameters({ document, title, parameters }: { document: ApiDocument; title: string; parameters: Parameter[] }) {
  if (!parameters.length) return null;
  return (
    <section>
      <h2>{title}</h2>
      <ul class="api-fields">{parameters.map((parameter) => <FieldOf key={parameter.name} document={document} name={parameter.name} schema={parameter.schema ?? {}} isRequired={parameter.required} description={parameter.description} />)}</ul>
    </section>
  );
}

const TONES: Record<string, string> = { POST: "good", PUT: "wait", PATCH: "wait", DELETE: "bad" };
export const Method = ({ method }: { method: string }) => <code class={`method tone-${TONES[method] ?? "quiet"}`}>{method}</code>;

function Bodies({ document, content, example: title }: { document: ApiDocument; content: Content; example?: string }) {
  const bodies = Object.entries(content);
  return (
    <>{bodies.map(([type, { schema, example }]) => {
      const hasFields = schema !== undefined && inside(document, schema) !== undefined;
      return (
        <div key={type}>
          <p class="quiet"><code>{type}</code></p>
          {hasFields && <Fields document={document} schema={schema} />}
          {title && hasFields && type.endsWith("json") && <Example title={title} text={JSON.stringify(example ?? exampleOf(document, schema), null, 2)} />}
        </div>
      );
    })}</>
  );
}

function Headers({ document, answer }: { document: ApiDocument; answer: Answer }) {
  const headers = Object.entries(answer.headers ?? {}).map(([name, header]) => ({ name, header: follow(document, header) }));
  if (!headers.length) return null;
  return (
    <details>
      <summary>{headers.length} headers</summary>
      <ul class="api-fields">{headers.map(({ name, header }) => <FieldOf key={name} document={document} name={name} schema={header.schema ?? {}} description={header.description} />)}</ul>
    </details>
  );
}

function Example({ title, text }: { title: string; text: string }) {
  const [isCopied, setCopied] = useState(false);
  // A page that is not loaded over HTTPS has no clipboard.
  const copy = navigator.clipboard && (() => void navigator.clipboard.writeText(text).then(() => setCopied(true)));
  return (
    <figure class="example">
      <figcaption>{title}{copy && <button type="button" class="plain" onClick={copy}>{isCopied ? "✓ Copied" : "Copy"}</button>}</figcaption>
      <pre tabIndex={0} role="region" aria-label={title}>{text}</pre>
    </figure>
  );
}
