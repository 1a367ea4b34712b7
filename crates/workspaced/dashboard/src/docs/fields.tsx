/** The fields of a body, with those that they hold folded beneath them. */

import { createContext } from "preact";
import { useContext, useState } from "preact/hooks";
import { inside, limitsOf, resolve, typeOf, type ApiDocument, type Resolved, type Schema } from "./document.ts";
import { Line, Prose } from "./prose.tsx";

/** Whether the fields are those of an answer: it has the required ones always. */
export const Answered = createContext(false);

interface FieldProps { document: ApiDocument; name: string; schema: Schema; isRequired?: boolean; description?: string }

/** A field or a parameter: name, type, what it means, what it must keep to, what it holds. */
export function FieldOf({ document, name, schema, isRequired, description }: FieldProps) {
  const resolved = resolve(document, schema);
  const held = inside(document, schema);
  const isAnswered = useContext(Answered);
  return (
    <li>
      <p class="field-head"><code class="strong">{name}</code> <span class="quiet">{typeOf(document, schema)}</span>{isAnswered ? !isRequired && <span class="quiet">not always</span> : isRequired && <span class="tone-wait">required</span>}{resolved.deprecated && <span class="tone-bad">deprecated</span>}</p>
      <Prose text={description ?? resolved.description} />
      <Limits document={document} schema={schema} />
      {held && <Held document={document} name={name} schema={held} />}
    </li>
  );
}

function Limits({ document, schema }: { document: ApiDocument; schema: Schema }) {
  const resolved = resolve(document, schema);
  const values = (resolved.items ? resolve(document, resolved.items) : resolved).enum;
  const limits = limitsOf(document, schema);
  return (
    <>
      {values && <p class="small">{values.map((value) => <><code key={String(value)}>{String(value)}</code> </>)}</p>}
      {limits.length > 0 && <p class="small quiet">{limits.map((limit, index) => <span key={limit}>{index > 0 && " · "}<Line text={limit} /></span>)}</p>}
    </>
  );
}

/** The fields of a value, rendered once they are opened: a schema may hold itself. */
function Held({ document, name, schema }: { document: ApiDocument; name: string; schema: Resolved }) {
  const [isOpen, setOpen] = useState(false);
  const number = schema.oneOf ? `${schema.oneOf.length} forms` : `${Object.keys(schema.properties ?? {}).length} fields`;
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{number} of <code>{name}</code></summary>
      {isOpen && <Fields document={document} schema={schema} />}
    </details>
  );
}

/** The fields of a schema, or those of each form that it can have. */
export function Fields({ document, schema }: { document: ApiDocument; schema: Schema }) {
  const resolved = inside(document, schema) ?? resolve(document, schema);
  const entries = Object.entries(resolved.properties ?? {});
  return (
    <>
      {entries.length > 0 && <ul class="api-fields">{entries.map(([name, part]) => <FieldOf key={name} document={document} name={name} schema={part} isRequired={resolved.required?.includes(name)} />)}</ul>}
      {resolved.oneOf?.map((kind, index) => <Form key={index} document={document} schema={kind} />)}
      {!entries.length && !resolved.oneOf && <p class="quiet">{typeOf(document, schema)}{resolved.description && <>: <Line text={resolved.description} /></>}</p>}
    </>
  );
}

function Form({ document, schema }: { document: ApiDocument; schema: Schema }) {
  const resolved = resolve(document, schema);
  return (
    <section class="api-form">
      <p><span class="tag">or</span> <span class="strong">{resolved.title ?? resolved.name ?? typeOf(document, schema)}</span></p>
      {resolved.description && <Prose text={resolved.description} />}
      {(resolved.properties || resolved.oneOf) && <Fields document={document} schema={schema} />}
      {resolved.enum && <p class="small">{resolved.enum.map((value) => <><code key={String(value)}>{String(value)}</code> </>)}</p>}
    </section>
  );
}
