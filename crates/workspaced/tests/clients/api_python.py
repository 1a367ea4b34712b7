"""Drives the service with the package that openapi-python-client generates. Arguments: the service's URL, an operator's token."""

import io
import json
import sys

from workspaced_client import AuthenticatedClient
from workspaced_client.api.audit import list_run_audit, stream_audit
from workspaced_client.api.files import get_archive, get_file, put_file
from workspaced_client.api.runs import create_run
from workspaced_client.api.tools import call_edit_file, call_read_file, call_write_file
from workspaced_client.models import (
    CreateRunRequest,
    EditFileInput,
    EmptySource,
    EmptySourceType,
    PolicyOverrides,
    Problem,
    ReadFileInput,
    WriteFileInput,
)
from workspaced_client.types import UNSET, File

url, operator_token = sys.argv[1:]
operator = AuthenticatedClient(url, operator_token, raise_on_unexpected_status=True)
source = EmptySource(EmptySourceType.EMPTY)
created = create_run.sync(client=operator, body=CreateRunRequest(source, policy=PolicyOverrides(profile="AUTONOMOUS")))
assert not isinstance(created, Problem) and created is not None, created
run = created.run.run_id
assert created.run.created_at.tzinfo is not None
agent = AuthenticatedClient(url, created.token.token, raise_on_unexpected_status=True)

written = call_write_file.sync(run, client=agent, body=WriteFileInput(path="src/a.txt", content="one\ntwo\n", reason="to edit it"))
assert written.ok is True and written.created is True, written
edit = EditFileInput(
    path="src/a.txt", old_string="two", new_string="three", reason="to count", expected_sha_256="seen"
)
edited = call_edit_file.sync(run, client=agent, body=edit)
assert edited.ok is True and edited.replacements == 1, edited
read = call_read_file.sync(run, client=agent, body=ReadFileInput("src/a.txt"))
assert read.content == "     1 | one\n     2 | three\n", read
refused = call_read_file.sync_detailed(run, client=agent, body=ReadFileInput(".env"))
assert refused.status_code == 403 and refused.parsed.code == "POLICY_DENIED_SECRET", refused

data = bytes([0, 255, 10, 13, 128])
stored = put_file.sync_detailed(
    run, "data/b.bin", client=agent, body=File(io.BytesIO(data)), x_reason="to keep it", if_none_match="*"
)
assert stored.status_code == 201, stored
loaded = get_file.sync_detailed(run, "data/b.bin", client=agent)
assert loaded.parsed.payload.read() == data and loaded.headers["ETag"] == stored.headers["ETag"], loaded
part = get_file.sync_detailed(run, "data/b.bin", client=agent, range_="bytes=1-2")
assert part.status_code == 206 and part.parsed.payload.read() == data[1:3], part
assert get_archive.sync(run, client=agent).payload.read(2) == b"\x1f\x8b"

records, cursor = [], UNSET
while True:
    page = list_run_audit.sync(run, client=operator, limit=2, cursor=cursor)
    assert len(page.items) <= 2, page
    records += page.items
    cursor = page.next_cursor
    if not cursor:
        break
assert [record.seq for record in records] == list(range(1, len(records) + 1)), records
assert any(record.tool == "edit_file" and record.outcome == "ok" for record in records), records

# The function of the package reads a whole response, and a stream does not end. Its request is that of the package.
streamed = []
request = stream_audit._get_kwargs(run=run, since=records[0].timestamp)
with operator.get_httpx_client().stream(**request) as response:
    assert response.headers["Content-Type"].startswith("text/event-stream"), response.headers
    for line in response.iter_lines():
        if line.startswith("data: "):
            streamed.append(json.loads(line[6:]))
        if len(streamed) == len(records):
            break
assert [record["hash"] for record in streamed] == [record.hash_ for record in records], streamed
print("done")
