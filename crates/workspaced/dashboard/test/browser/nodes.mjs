// The page of the nodes that share the database: two, of which the second has ended.

import assert from "node:assert/strict";
import { look, LOOKS } from "./appearance.mjs";

export async function the_nodes_and_their_runs_are_shown_at_every_size({ base, operator, open, screenshots }) {
  const { items } = (await operator.request("GET", "/v1/nodes")).body;
  const [self, other] = [true, false].map((isThis) => items.find((node) => node.isThis === isThis));
  const problems = [];
  for (const { options, label } of LOOKS) {
    const { page, close } = await open("audit", options);
    await page.getByRole("link", { name: "Nodes" }).click();
    await page.getByRole("heading", { name: "Nodes 1 alive of 2" }).waitFor();
    const mine = page.getByRole("region", { name: self.nodeId });
    await mine.getByText("alive").waitFor();
    assert.match(await mine.innerText(), new RegExp(`${self.ownedRuns}[^]*${new URL(self.url).host}`));
    await page.getByRole("region", { name: other.nodeId }).getByText("ended").waitFor();
    problems.push(...(await look(page, "nodes", label, screenshots)));
    await close();
  }
  assert.equal(problems.join("\n"), "");
}
