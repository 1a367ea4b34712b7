import { render } from "preact";
import { App } from "./app.tsx";
import { interceptLinks } from "./lib/route.ts";
import "./style/tokens.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/pages.css";
import "./style/diff.css";

interceptLinks();
render(<App />, document.getElementById("app")!);
