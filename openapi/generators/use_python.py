"""Reads answers of the service with the models that OpenAPI Generator makes for Python."""

import json

from workspaced_generated import models

HASH = "0" * 64
STORED = {"path": "a.txt", "created": True, "newSha256": HASH, "sizeBytes": 1, "ok": True, "toolCallId": "tc_1", "seq": 2,
          "headHash": HASH, "artifactUris": [], "summary": "a.txt: new", "warnings": []}  # fmt: skip

stored = models.StoredFile.from_json(json.dumps(STORED))
assert stored is not None and stored.ok is True and stored.seq == 2, stored
source = models.Source.from_dict({"type": "git", "url": "https://example.org/a.git"})
assert source is not None and json.loads(source.to_json())["type"] == "git", source
print("done")
